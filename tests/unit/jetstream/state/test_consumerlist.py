"""The index of consumers by filter finds the same consumers as asking every one of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.js import NativeJs

from gnats.core.subjects.subject import collide, literal_match, subset_match
from gnats.jetstream.consumer.consumer import Consumer

pytestmark = pytest.mark.timeout(120)
TOKENS = st.sampled_from("ab")
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=3).map(lambda tokens: ".".join(["s", *tokens]))
PATTERNS = st.one_of(
    st.lists(st.sampled_from("ab*"), min_size=1, max_size=3).map(lambda tokens: ".".join(["s", *tokens])),
    st.sampled_from(["s.>", "s.a.>", "s.*.>", "s.b.a.>", "*.a"]),
)


def apart(patterns: list[str]) -> list[str]:
    """Return patterns for one consumer: no two of them overlap."""
    kept: list[str] = []
    for pattern in patterns:
        if not any(collide(pattern, other) for other in kept):
            kept.append(pattern)
    return kept


FILTERS = st.lists(PATTERNS, max_size=4).map(apart)
STEPS = st.one_of(
    st.tuples(st.just("add"), FILTERS),
    st.tuples(st.just("add"), FILTERS),
    st.tuples(st.just("add"), FILTERS),
    st.tuples(st.just("drop"), st.integers(0, 30)),
    st.tuples(st.just("change"), st.integers(0, 30), FILTERS),
    st.tuples(st.just("publish"), st.lists(SUBJECTS, min_size=1, max_size=8)),
    st.tuples(st.just("delete"), st.integers(0, 30)),
    st.tuples(st.just("purge"), st.one_of(PATTERNS, st.just(""))),
)


@pytest.fixture(scope="module")
def js() -> Iterator[NativeJs]:
    js = NativeJs(0)
    yield js
    js.close()


class Model:
    """A stream, its consumers, and their expected numbers."""

    names = count(1)

    def __init__(self, js: NativeJs) -> None:
        self.js = js
        self.stream = f"L{next(self.names)}"
        self.consumers: dict[str, list[str]] = {}
        self.past: dict[str, int] = {}
        """By consumer: the sequence to which a purge of all its subjects moved it, whatever its filters."""
        self.messages: dict[int, str] = {}
        self.last = 0
        self.next = 0
        self.prefix = self.stream + "."
        js.create_stream(self.stream, subjects=[f"{self.stream}.s.>"])

    def of(self, patterns: list[str]) -> list[str]:
        return [self.prefix + pattern for pattern in patterns]

    def _nth(self, number: int) -> str:
        return list(self.consumers)[number % len(self.consumers)]

    def add(self, patterns: list[str]) -> None:
        self.next += 1
        name = f"c{self.next}"
        self.js.create_consumer(
            self.stream, name, durable_name=name, ack_policy="explicit", filter_subjects=self.of(patterns)
        )
        self.consumers[name] = patterns

    def drop(self, number: int) -> None:
        if self.consumers:
            name = self._nth(number)
            self.js.delete_consumer(self.stream, name)
            del self.consumers[name]

    def change(self, number: int, patterns: list[str]) -> None:
        if self.consumers:
            name = self._nth(number)
            self.js.update_consumer(
                self.stream,
                name,
                durable_name=name,
                ack_policy="explicit",
                filter_subjects=self.of(patterns),
            )
            self.consumers[name] = patterns

    def publish(self, subjects: list[str]) -> None:
        self.js.publish(*self.of(subjects))
        for subject in subjects:
            self.last += 1
            self.messages[self.last] = subject

    def delete(self, number: int) -> None:
        if self.messages:
            seq = list(self.messages)[number % len(self.messages)]
            self.js.delete_msg(self.stream, seq)
            del self.messages[seq]

    def purge(self, pattern: str) -> None:
        if any(len(patterns) > 1 for patterns in self.consumers.values()):
            pattern = (
                ""  # a purge of one subject moves consumers of several past the others too, as in nats-server
            )
        self.js.purge(self.stream, filter=self.prefix + pattern if pattern else "")
        self.messages = {
            seq: subject
            for seq, subject in self.messages.items()
            if pattern and not literal_match(subject, pattern)
        }
        for name, patterns in self.consumers.items():
            if pattern and patterns and subset_match(patterns[0], pattern):
                self.past[name] = self.last

    def check(self) -> None:
        pending = {name: self.js.consumer_info(self.stream, name)["num_pending"] for name in self.consumers}
        assert pending == {
            name: sum(
                wants(patterns, subject) and seq > self.past.get(name, 0)
                for seq, subject in self.messages.items()
            )
            for name, patterns in self.consumers.items()
        }

    def check_look_up(self, pattern: str) -> None:
        """The index leaves out no interested consumer; where it chooses, it names only interested ones."""

        def ask(_: object) -> tuple[list[str], bool]:
            stream = self.js.streams[self.stream]
            found = stream.consumers_with((self.prefix + pattern).encode())
            assert all(isinstance(each, Consumer) for each in found)
            return [each.name for each in found], len(found) < len(stream.consumers)

        found, chosen = self.js.call(ask)
        wanted = {
            name
            for name, patterns in self.consumers.items()
            if not patterns or any(collide(pattern, each) for each in patterns)
        }
        assert set(found) == wanted if chosen else set(found) >= wanted


def wants(patterns: list[str], subject: str) -> bool:
    return not patterns or any(literal_match(subject, pattern) for pattern in patterns)


@settings(max_examples=25)
@given(st.lists(FILTERS, max_size=14), st.lists(STEPS, min_size=10, max_size=40), PATTERNS)
def test_consumers_count_what_they_want(
    js: NativeJs, first: list[list[str]], steps: list[tuple[object, ...]], pattern: str
) -> None:
    model = Model(js)
    for patterns in first:
        model.add(patterns)
    for step, *arguments in steps:
        getattr(model, str(step))(*arguments)
    model.check()
    model.check_look_up(pattern)
    model.publish(["s.a", "s.b.a", "s.b.a.b"])
    model.check()
    while model.consumers:
        model.drop(0)
    model.publish(["s.a"])
    model.add(["s.a"])
    model.publish(["s.a", "s.b"])
    model.check()
    js.call(lambda _: js.streams.pop(model.stream).close())


@pytest.mark.parametrize("many", [3, 30])
def test_interest_is_any_consumers(js: NativeJs, many: int) -> None:
    """An interest stream keeps exactly the messages that a consumer still needs."""
    name = f"I{many}"
    js.create_stream(name, subjects=[f"{name}.>"], retention="interest")
    for number in range(many):
        js.create_consumer(
            name,
            f"c{number}",
            durable_name=f"c{number}",
            ack_policy="explicit",
            filter_subject=f"{name}.{number}",
        )
    js.create_consumer(name, "all", durable_name="all", ack_policy="explicit", filter_subject=f"{name}.*")
    js.publish(f"{name}.0", f"{name}.nobody.wants", f"{name}.0")
    assert js.messages(name) == 2
    with js.peer() as peer:
        for consumer, left in (("c0", 2), ("all", 1)):
            message = peer.request(f"$JS.API.CONSUMER.MSG.NEXT.{name}.{consumer}", b"1")
            peer.request(message.reply, b"+ACK")
            assert js.messages(name) == left
    js.delete_consumer(name, "all")
    js.delete_consumer(name, "c0")
    assert js.messages(name) == 0


def test_a_consumer_that_has_left_is_left_alone(js: NativeJs) -> None:
    js.create_stream("gone", subjects=["gone.>"])
    for number in range(10):
        js.create_consumer("gone", f"c{number}", durable_name=f"c{number}", filter_subject=f"gone.{number}")

    def close(_: object) -> int:
        stream = js.streams["gone"]
        stream.close()
        for number in range(10):
            js.consumers.pop(("gone", f"c{number}")).close()
        return len(stream.consumers)

    assert js.call(close) == 0
    js.call(lambda _: js.streams.pop("gone"))


@pytest.mark.parametrize("others", [0, 40])
def test_a_sequence_that_a_second_message_gets_is_counted_off_again(js: NativeJs, others: int) -> None:
    """A stream that takes messages back gives their sequences to later ones."""
    name = f"back{others}"
    js.create_stream(name, subjects=[f"{name}.>"], max_msgs_per_subject=1)
    for number in range(others):
        js.create_consumer(name, f"c{number}", durable_name=f"c{number}", filter_subject=f"{name}.{number}")
    js.create_consumer(name, "C", durable_name="C", filter_subjects=[f"{name}.a", f"{name}.c"])
    js.publish(f"{name}.b", f"{name}.a", f"{name}.a")
    js.call(lambda _: js.streams[name].store.truncate_to(1))
    for _ in range(2):
        js.publish(f"{name}.c")
        assert js.consumer_info(name, "C")["num_pending"] == 1
