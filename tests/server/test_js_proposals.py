"""Changes of streams and consumers: checked without a change, then applied as a proposal."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnats.go.json import Json
from gnats.jetstream.control.info import stream_info
from gnats.jetstream.control.jsaccount import JSAccount
from gnats.jetstream.control.proposals import Proposal
from gnats.jetstream.errors import ApiError
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig
from gnats.options.values.jetstream import JetStreamOptions

from .conftest import Start

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def jsa(start: Start, tmp_path: Path) -> JSAccount:
    server = await start(jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path)))
    assert server.jetstream is not None
    return server.jetstream.accounts["$G"]


def described(jsa: JSAccount) -> dict[str, tuple[Json, Any]]:
    return {
        name: (
            stream_info(stream) | {"ts": ""},
            {each.name: (each.config, each.created) for each in stream.consumers.values()},
        )
        for name, stream in jsa.streams.items()
    }


async def test_a_change_happens_when_its_proposal_is_applied(jsa: JSAccount) -> None:
    before: dict[str, tuple[Json, Any]] = {}

    async def propose(proposal: Proposal[Any], *, changes: bool = True) -> Any:
        nonlocal before
        assert described(jsa) == before
        assert pickle.loads(pickle.dumps(proposal)) == proposal  # plain values only
        result = await jsa.propose(proposal)
        assert (described(jsa) != before) is changes
        before = described(jsa)
        return result

    config = StreamConfig(name="S", subjects=("s.*",))
    made = await jsa.check_add_stream(config)
    await propose(made)
    stream = jsa.stream("S")
    assert stream.created == made.created
    await propose(await jsa.check_add_stream(config), changes=False)
    await propose(await jsa.check_update_stream(stream, replace(stream.config, subjects=("s.>",))))

    consumer = ConsumerConfig(durable_name="C", name="C", ack_policy="explicit")
    await propose(await stream.check_add_consumer(consumer))
    changed = await stream.check_add_consumer(replace(consumer, description="changed"))
    assert changed.created == stream.consumer("C").created
    await propose(changed)
    await propose(stream.consumer("C").check_pause("2100-01-01T00:00:00Z"))

    assert await propose(stream.check_purge("", 0, 0), changes=False) == 0
    deletion = stream.check_delete_consumer("C")
    await propose(deletion)
    await propose(await stream.check_add_consumer(consumer))
    await propose(deletion, changes=False)  # of another consumer, which had the name
    await propose(jsa.check_delete_stream("S"))
    assert not jsa.streams


@pytest.mark.parametrize(
    ("subjects", "allowed"),
    [(["a.>"], True), (["a.b", "a.c", "b"], True), (["a.*"], True), (["a.b", "c"], False), (["*"], False)],
)
async def test_a_stream_may_overlap_with_its_own_old_subjects_only(
    jsa: JSAccount, subjects: list[str], allowed: bool
) -> None:
    for name, own in (("A", ("a.b", "a.c")), ("C", ("c", "d"))):
        await jsa.propose(await jsa.check_add_stream(StreamConfig(name=name, subjects=own)))
    stream = jsa.stream("A")
    new = replace(stream.config, subjects=tuple(subjects))
    if allowed:
        await jsa.propose(await jsa.check_update_stream(stream, new))
        assert stream.config.subjects == tuple(subjects)
        return
    with pytest.raises(ApiError, match="overlap"):
        await jsa.check_update_stream(stream, new)
    with pytest.raises(ApiError, match="overlap"):  # nothing has changed: its subjects are still taken
        await jsa.check_add_stream(StreamConfig(name="B", subjects=("a.c",)))
