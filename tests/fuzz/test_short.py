"""A short run of the fuzzer with a fixed seed, and tests that it finds faults.

GNATS_FUZZ_SEED sets another seed, GNATS_FUZZ_SEQUENCES the number of sequences for each server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from support.launch import require
from support.servers import REFERENCE, Kind, selected

from .compare import Comparison, apart
from .compare import sequence as sequence_of_one
from .hunt import Finding, Hunt, fails, sequence, shorten
from .steps import Step

SEED = int(os.environ.get("GNATS_FUZZ_SEED", "1"))
SEQUENCES = int(os.environ.get("GNATS_FUZZ_SEQUENCES", "8"))

pytestmark = pytest.mark.timeout(120 + 10 * SEQUENCES)


@pytest.fixture(params=[kind for kind in selected() if not kind.is_reference], ids=lambda kind: kind.name)
def hunt(request: pytest.FixtureRequest) -> Iterator[Hunt]:
    hunt = Hunt(request.param)
    yield hunt
    hunt.end()


@pytest.fixture
def comparison() -> Iterator[Comparison]:
    require(REFERENCE)
    comparison = Comparison([kind for kind in selected() if not kind.is_reference])
    yield comparison
    comparison.end()


def test_a_server_answers_and_rests_after_any_sequence(hunt: Hunt) -> None:
    for number in range(SEQUENCES):
        hunt.play(sequence(SEED, number))


def test_one_connection_sees_what_it_sees_of_the_reference(comparison: Comparison) -> None:
    for number in range(SEQUENCES):
        steps = sequence_of_one(SEED, number)
        if comparison.difference(steps):
            assert not comparison.certain(steps), steps


def test_a_seed_makes_the_same_sequence_again() -> None:
    assert sequence(5, 6) == sequence(5, 6) != sequence(5, 7)
    assert sequence_of_one(5, 6) == sequence_of_one(5, 6) != sequence_of_one(6, 6)


def test_a_server_that_ends_is_found(hunt: Hunt) -> None:
    hunt.play([["connect", 0, "a"], ["request", 0, "$JS.API.STREAM.NAMES", None, ""]])
    assert hunt.server
    hunt.server.process.kill()
    hunt.server.process.wait()
    with pytest.raises(Finding):
        hunt.play([["connect", 0, "a"]])


def test_a_server_that_does_not_rest_is_found() -> None:
    """The server redelivers a message a thousand times a second."""
    kind = selected_one()
    config = {"name": "C0", "ack_policy": "explicit", "deliver_subject": "push.a", "ack_wait": 1_000_000}
    steps: list[Step] = [
        ["connect", 0, "a"],
        ["send", 0, "SUB push.a 2\r\n"],
        ["request", 0, "$JS.API.STREAM.CREATE.S0", None, {"name": "S0", "subjects": ["s0.>"]}],
        ["wait", 0],
        ["request", 0, "$JS.API.CONSUMER.CREATE.S0.C0", None, {"stream_name": "S0", "config": config}],
        ["wait", 0],
        ["request", 0, "s0.a", None, 1],
    ]
    assert "does not rest" in fails(kind, steps)


def selected_one() -> Kind:
    for kind in selected():
        if not kind.is_reference:
            return kind
    pytest.skip("only the reference is tested")


def test_what_fails_is_made_short() -> None:
    steps: list[Step] = [["pause", number] for number in range(50)]
    wrong = [["pause", 7], ["pause", 31]]
    short = shorten(steps, lambda fewer: all(step in fewer for step in wrong), 30)
    assert short == wrong


def test_differences_are_told_by_where_they_are() -> None:
    right = [("type", "t"), ("state", [("messages", 1), ("bytes", 7)])]
    wrong = [("type", "t"), ("state", [("messages", 2), ("bytes", 7)])]
    assert apart(wrong, right) == ".state.messages: 2  <>  1"
