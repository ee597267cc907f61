"""kill -9 at random moments: acknowledged messages are there; messages behind them may be."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.caller import Caller
from support.faults import Home, Publisher, create, info, stored
from support.servers import KINDS

from .conftest import STRESS

pytestmark = pytest.mark.timeout(3600 if STRESS else 120)

KILLS = 5 * max(STRESS, 1)
SUBJECTS = 40
MARK = 30
"""Bytes of the record behind a message that marks the message as whole."""


def publish_and_kill(home: Home, chance: random.Random) -> list[Publisher]:
    """Publish until a random number of messages is acknowledged, then kill the server."""
    server = home.server
    assert server
    streams = ["S", "S", "K"]
    publishers = [
        Publisher(
            server, stream, f"p{index}x{chance.getrandbits(32):x}", SUBJECTS, random.Random(chance.random())
        )
        for index, stream in enumerate(streams)
    ]
    enough = chance.choice((1, 10, 300, 2000))
    for publisher in publishers:
        publisher.start()
    watched = chance.choice(publishers)
    with watched.changed:
        assert watched.changed.wait_for(lambda: len(watched.acked) >= enough or not watched.is_alive(), 60)
    home.kill()
    for publisher in publishers:
        publisher.join(60)
        assert not publisher.is_alive()
    return publishers


@pytest.mark.parametrize("sync_always", [False, True], ids=["interval", "always"])
def test_what_was_acknowledged_survives(home: Home, sync_always: bool) -> None:
    home.sync_always = sync_always
    seed = int(os.environ.get("GNATS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
    print(f"GNATS_SEED={seed}")
    chance = random.Random(seed)
    acked: dict[int, bytes] = {}
    latest: dict[str, tuple[int, bytes]] = {}
    with Caller(home.start()) as caller:
        create(caller, "S", storage="file")
        create(caller, "K", storage="file", max_msgs_per_subject=1)
    for _ in range(KILLS):
        first = max(acked, default=0) + 1
        for publisher in publish_and_kill(home, chance):
            for seq, payload in publisher.acked.items():
                subject = publisher.subjects[seq]
                if subject.startswith("K"):
                    latest[subject] = max(latest.get(subject, (0, b"")), (seq, payload))
                else:
                    assert seq not in acked, "a sequence was given out twice"
                    acked[seq] = payload
        with Caller(home.start()) as caller:
            check(stored(caller, "S", first), {seq: each for seq, each in acked.items() if seq >= first})
            newest = {subject: (seq, payload) for seq, (subject, payload) in stored(caller, "K").items()}
            for subject, (seq, payload) in latest.items():
                assert newest[subject] == (seq, payload) or newest[subject][0] > seq, subject
    home.stop()
    with Caller(home.start()) as caller:
        check(stored(caller, "S"), acked)
    home.stop()


def check(found: dict[int, tuple[str, bytes]], acked: dict[int, bytes]) -> None:
    assert len(found) >= len(acked), "fewer messages than were acknowledged"
    missing = [seq for seq, payload in acked.items() if seq not in found or found[seq][1] != payload]
    assert not missing, f"{len(missing)} of {len(acked)} acknowledged messages are gone: {missing[:10]}"


def end_of(path: Path, seq: int) -> int:
    """Return the end of a sequence's record in a block that is neither compressed nor encrypted."""
    data = path.read_bytes()
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little") & 0x7FFFFFFF
        at += size
        if int.from_bytes(data[at - size + 4 : at - size + 12], "little") == seq:
            return at
    raise AssertionError(f"{path.name} has no record of {seq}")


@pytest.mark.parametrize("rest", ["gone", "zeroes", "noise"])
@pytest.mark.parametrize("index", [True, False], ids=["index", "no-index"])
def test_synced_messages_survive_the_loss_of_what_is_behind_them(
    home: Home, tmp_path: Path, rest: str, index: bool
) -> None:
    """With `sync_interval: always`, bytes behind the last acknowledged record may not be on the disk."""
    home.sync_always = True
    chance = random.Random(4)
    with Caller(home.start()) as caller:
        create(caller, "S", storage="file")
        create(caller, "K", storage="file", max_msgs_per_subject=1)
    publishers = publish_and_kill(home, chance)
    acked = {
        seq: payload
        for publisher in publishers
        for seq, payload in publisher.acked.items()
        if publisher.subjects[seq].startswith("S")
    }
    last = max(acked, default=0)
    if not last:
        pytest.skip("killed before the first acknowledgement")
    copy = home.copy(tmp_path / "copy")
    for path in copy.blocks("S"):
        data = path.read_bytes()
        first = int.from_bytes(data[4:12], "little")
        if first > last:
            path.unlink()
            continue
        try:
            end = end_of(path, last)
        except AssertionError:
            continue
        lost = len(data) - end
        behind = {"gone": b"", "zeroes": bytes(max(lost, 4096)), "noise": chance.randbytes(max(lost, 4096))}[
            rest
        ]
        path.write_bytes(data[:end] + behind)
    if not index:
        (copy.stream("S") / "msgs" / "index.db").unlink(missing_ok=True)
    try:
        with Caller(copy.start()) as caller:
            check(stored(caller, "S"), acked)
            assert caller.request("S.1", b"next").json["seq"] > last
        copy.stop()
    finally:
        copy.kill()


def test_a_stream_is_there_as_soon_as_it_is_said_to_be(home: Home) -> None:
    """nats-server 2.12.1 may lose a whole stream to kill -9."""
    for number in range(4):
        with Caller(home.start()) as caller:
            for before in range(number):
                state = info(caller, f"N{before}")["state"]
                assert (state["messages"], state["last_seq"]) == (1, 1)
            create(caller, f"N{number}", storage="file")
            assert caller.request(f"N{number}.a", b"one").json["seq"] == 1
            home.kill()
    with Caller(home.start()) as caller:
        create(caller, "EMPTY", storage="file")
        home.kill()
    with Caller(home.start()) as caller:
        assert caller.request("$JS.API.STREAM.NAMES").json["streams"] == ["EMPTY", "N0", "N1", "N2", "N3"]
        home.stop()


def test_a_part_of_a_batch_pushes_nothing_out(home: Home) -> None:
    """When a batch's commit is cut off, recovery drops the batch; what limits removed for it is back."""

    def batched(subject: str, seq: int) -> None:
        lines = [b"NATS/1.0", b"Nats-Batch-Id: one", b"Nats-Batch-Sequence: %d" % seq]
        lines += [b"Nats-Batch-Commit: 1"] if seq == 2 else []
        caller.publish(subject, b"batched", header=b"\r\n".join([*lines, b"", b""]), reply="_INBOX.caller")

    with Caller(home.start()) as caller:
        create(caller, "S", storage="file", allow_atomic=True, max_msgs_per_subject=1, max_msgs=3)
        for subject in ("S.a", "S.b", "S.c"):
            assert "error" not in caller.request(subject, b"acknowledged").json
        before = stored(caller, "S")
    home.kill()
    [block] = home.blocks("S")
    with Caller(home.start()) as caller:
        batched("S.a", 1)
        batched("S.d", 2)
        caller.fence()
        assert info(caller, "S")["state"]["last_seq"] == 5
    home.kill()
    os.truncate(block, block.stat().st_size - 1)
    (block.parent / "index.db").unlink(missing_ok=True)
    for _ in range(2):
        with Caller(home.start()) as caller:
            assert stored(caller, "S") == before
        home.stop()


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[Home]:
    home = Home(KINDS["reference"], tmp_path / "reference")
    yield home
    home.kill()


def looks_batched(seq: int) -> bytes:
    return b"NATS/1.0\r\nNats-Batch-Id: one\r\nNats-Batch-Sequence: %d\r\n\r\n" % seq


def store_fast(home: Home, n: int) -> dict[int, tuple[str, bytes]]:
    """Store a message and a fast batch with an atomic one's headers; kill the server; return the messages."""
    server = home.start()
    with Caller(server) as caller:
        create(caller, "S", storage="file", allow_atomic=True, allow_batched=True)
        caller.request("S.a", b"before")
        with Caller(server) as publisher:
            publisher.subscribe("reply.>")
            for seq in range(1, n + 1):
                op = 2 if seq == n else int(seq > 1)
                reply = f"reply.one.1.ok.{seq}.{op}.$FI"
                publisher.publish("S.a", b"fast", header=looks_batched(seq), reply=reply)
            while b'"batch":"one"' not in publisher.next().payload:
                pass
        messages = stored(caller, "S")
        assert len(messages) == n + 1
    home.kill()
    return messages


def cut_off(home: Home, size: int) -> Path:
    """Cut `size` bytes off the end of the block and delete index.db; return its path."""
    [block] = home.blocks("S")
    os.truncate(block, block.stat().st_size - size)
    index = block.parent / "index.db"
    index.unlink(missing_ok=True)
    return index


def test_an_acknowledged_message_with_the_headers_of_a_batch_stays(home: Home, reference: Home) -> None:
    before = store_fast(home, 1)
    shutil.copytree(home.store, reference.store)
    for each in (reference, home):
        for _ in range(2):
            cut_off(each, 0)
            with Caller(each.start()) as caller:
                assert stored(caller, "S") == before
                assert info(caller, "S")["state"]["last_seq"] == 2
            each.kill()


def test_a_part_of_a_batch_behind_a_message_that_looks_like_one_goes(home: Home) -> None:
    before = store_fast(home, 1)
    with Caller(home.start()) as caller:
        for seq in (1, 2):
            last = b"Nats-Batch-Commit: 1\r\n\r\n" if seq == 2 else b"\r\n"
            caller.publish("S.a", b"x", header=looks_batched(seq)[:-2] + last, reply="_INBOX.caller")
        caller.fence()
        assert info(caller, "S")["state"]["last_seq"] == 4
    home.kill()
    cut_off(home, 1)
    with Caller(home.start()) as caller:
        assert stored(caller, "S") == before
    home.stop()


def test_a_message_that_may_be_a_part_costs_none_that_is_whole(home: Home) -> None:
    """Without the mark behind it the last message may go; the messages before it stay."""
    before = store_fast(home, 2)
    cut_off(home, 1)
    with Caller(home.start()) as caller:
        assert stored(caller, "S").items() >= {seq: before[seq] for seq in (1, 2)}.items()
    home.stop()


def test_what_an_index_knows_is_no_part_of_a_batch(home: Home, reference: Home) -> None:
    """A message that index.db covers is whole without a mark: nats-server writes none."""
    before = store_fast(home, 1)
    index = cut_off(home, MARK)
    shutil.copytree(home.store, reference.store)
    reference.start()
    reference.stop()
    shutil.copy(reference.stream("S") / "msgs" / "index.db", index)
    with Caller(home.start()) as caller:
        assert stored(caller, "S") == before
    home.stop()
