"""The subscription trie: matches, removal without leftovers, and reads by threads while it changes."""

from __future__ import annotations

import gc
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnats.core.subjects.subject import collide, literal_match
from gnats.core.subjects.sublist import Handle, Sublist

pytestmark = pytest.mark.timeout(120)

ROUTER, GATEWAY, LEAF = 1, 2, 4  # kinds of connection


@pytest.fixture
def sublist() -> Sublist:
    return Sublist()


def fill(sublist: Sublist, *subjects: str, queue: str = "") -> list[Handle]:
    """Subscribe to each subject, with the subject as sid; return the handles."""
    return [sublist.subscribe(s.encode(), queue.encode(), s.encode()) for s in subjects]


def plain(sublist: Sublist, subject: str) -> set[str]:
    sids, groups = sublist.lookup(subject.encode())
    assert groups == []
    assert len(set(sids)) == len(sids)
    return {sid.decode() for sid in sids}


# ---- matching ----


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("foo", {"foo", "*", ">"}),
        ("foo.bar", {"foo.bar", "foo.*", "*.bar", "*.*", "foo.>", "*.>", ">"}),
        ("foo.baz", {"foo.*", "*.*", "foo.>", "*.>", ">"}),
        ("bar.bar", {"*.bar", "*.*", "*.>", ">"}),
        ("foo.bar.baz", {"foo.*.baz", "foo.bar.>", "foo.>", "*.>", ">"}),
        ("foo.x.baz", {"foo.*.baz", "foo.>", "*.>", ">"}),
        ("foo.bar.baz.x", {"foo.bar.>", "foo.>", "*.>", ">"}),
        ("fo", {"*", ">"}),
        ("foo.*", {"foo.*", "*.*", "foo.>", "*.>", ">"}),
        ("foo.>", {"foo.*", "*.*", "foo.>", "*.>", ">"}),
        ("*", {"*", ">"}),
        (">", {"*", ">"}),
        (">.bar", {"*.bar", "*.*", "*.>", ">"}),
    ],
)
def test_a_message_goes_to_every_subject_that_matches(
    sublist: Sublist, subject: str, expected: set[str]
) -> None:
    held = fill(
        sublist, "foo", "*", ">", "foo.bar", "foo.*", "*.bar", "*.*", "foo.>", "*.>", "foo.*.baz", "foo.bar.>"
    )
    assert plain(sublist, subject) == expected
    assert sublist.interest(subject.encode()) == (len(expected), 0)
    assert sublist.interested(subject.encode())
    del held


def test_an_empty_sublist_matches_nothing(sublist: Sublist) -> None:
    assert sublist.lookup(b"foo") == ([], [])
    assert not sublist.interested(b"foo")
    assert sublist.interest(b"foo") == (0, 0)
    assert sublist.subs() == []


@pytest.mark.parametrize("subject", [b"", b".", b".foo", b"foo.", b"foo..bar", b"..", b"foo.bar..baz"])
def test_a_subject_with_an_empty_token_matches_nothing(sublist: Sublist, subject: bytes) -> None:
    held = [*fill(sublist, ">", "*.>", "foo.>", "*.*"), *fill(sublist, ">", queue="q")]
    assert sublist.lookup(subject) == ([], [])
    assert not sublist.interested(subject)
    assert sublist.interest(subject) == (0, 0)
    del held


def test_a_longer_or_shorter_subject_does_not_match(sublist: Sublist) -> None:
    held = fill(sublist, "foo.bar", "foo.*.baz", "foo.bar.baz.>")
    assert plain(sublist, "foo") == set()
    assert plain(sublist, "foo.bar.b") == set()
    assert plain(sublist, "foo.bar.baz") == {"foo.*.baz"}
    del held


def test_wildcard_characters_within_a_token_are_literal(sublist: Sublist) -> None:
    held = fill(sublist, "foo.*-", "foo.>-", "*x")
    assert plain(sublist, "foo.bar") == set()
    assert plain(sublist, "foo.*-") == {"foo.*-"}
    assert plain(sublist, "foo.>-") == {"foo.>-"}
    assert plain(sublist, "yx") == set()
    del held


def test_bytes_of_any_value_are_told_apart(sublist: Sublist) -> None:
    tokens = [bytes([i]) for i in range(256) if i not in b".*>"]
    held = [sublist.subscribe(t + b"." + t * n, sid=t) for t in tokens for n in (1, 7, 8, 16, 17, 40)]
    for t in tokens:
        assert sublist.lookup(t + b"." + t * 17) == ([t], [])
        assert sublist.lookup(t + b"." + t * 18) == ([], [])
    del held


def test_equal_subjects_of_different_subscribers_all_match(sublist: Sublist) -> None:
    held = [sublist.subscribe(b"foo", sid=b"%d" % i) for i in range(1000)]
    order = list(range(1000))
    random.Random(7).shuffle(order)
    left = {b"%d" % i for i in order}
    for i in order:
        assert sublist.unsubscribe(held[i])
        left.discard(b"%d" % i)
        if i % 50 == 0 or len(left) < 6:
            assert set(sublist.lookup(b"foo")[0]) == left
            assert len(sublist.lookup(b"foo")[0]) == len(left)
    assert sublist.stats()["num_nodes"] == 0


def test_every_combination_of_wildcards_is_found_once(sublist: Sublist) -> None:
    depth = 10
    held = fill(sublist, *(".".join(p) for p in product("a*", repeat=depth)))
    assert len(plain(sublist, ".".join("a" * depth))) == 2**depth
    assert len(plain(sublist, ".".join("ab" * (depth // 2)))) == 2 ** (depth // 2)
    assert plain(sublist, ".".join("a" * (depth + 1))) == set()
    del held


# ---- long subjects ----


def test_subjects_of_thousands_of_tokens(sublist: Sublist) -> None:
    n = 20_000
    literal = ".".join(["t"] * n)
    held = fill(sublist, literal, ".".join(["*"] * n), ".".join([*["t"] * (n - 1), "x"]))
    held += fill(sublist, ".".join([*["*"] * (n - 1), ">"]), ".".join([*["*", "t"] * (n // 2 - 1), ">"]))
    assert len(plain(sublist, literal)) == 4
    assert len(plain(sublist, literal + ".t")) == 2
    assert len(sublist.reverse_lookup(literal.encode())[0]) == 4
    assert {s for s, _, _ in sublist.subs()} == {h.subject for h in held}
    held.clear()
    assert sublist.stats()["num_nodes"] == 0


def test_a_wildcard_at_every_level_does_not_make_matching_exponential(sublist: Sublist) -> None:
    # Two branches at each of 2,000 levels, but only 4,000 nodes.
    n = 2000
    held = fill(sublist, *(".".join([*["t"] * i, "*"]) for i in range(n)), ".".join(["t"] * n))
    assert plain(sublist, ".".join(["t"] * n)) == {".".join(["t"] * n), ".".join([*["t"] * (n - 1), "*"])}
    assert plain(sublist, ".".join([*["t"] * (n - 1), "x"])) == {".".join([*["t"] * (n - 1), "*"])}
    del held


def test_a_token_of_many_bytes(sublist: Sublist) -> None:
    token = "x" * 100_000
    held = fill(sublist, token, token + "y", f"a.{token}.b")
    assert plain(sublist, token) == {token}
    assert plain(sublist, f"a.{token}.b") == {f"a.{token}.b"}
    del held


# ---- insert and remove ----


@pytest.mark.parametrize(
    "subject",
    [b"", b".", b".foo", b"foo.", b"foo..bar", b"foo.bar..baz", b">.bar", b"foo.>.bar", b"foo.*.>.>", b">."],
)
@pytest.mark.parametrize("queue", [b"", b"q"])
def test_an_invalid_subject_is_refused_and_leaves_nothing(
    sublist: Sublist, subject: bytes, queue: bytes
) -> None:
    before = sublist.generation(subject)
    with pytest.raises(ValueError, match="invalid subject"):
        sublist.subscribe(subject, queue)
    assert sublist.count() == 0
    assert sublist.stats()["num_nodes"] == 0
    assert sublist.generation(subject) == before


def test_counts_follow_inserts_and_removes(sublist: Sublist) -> None:
    held = [*fill(sublist, "foo", "foo.*", "foo.>", ">"), *fill(sublist, "foo", "foo", queue="q")]
    assert sublist.count() == 6
    assert sublist.unsubscribe(held[0])
    assert not sublist.unsubscribe(held[0])
    sublist.lookup(b"foo")
    stats = sublist.stats()
    assert stats["num_subscriptions"] == sublist.count() == 5
    assert (stats["num_inserts"], stats["num_removes"], stats["num_matches"]) == (6, 1, 1)


def test_a_subscription_of_another_sublist_is_not_found(sublist: Sublist) -> None:
    other = Sublist()
    (there,) = fill(other, "foo.bar")
    held = fill(sublist, "foo.bar")
    before = sublist.generation(b"foo.bar")
    assert not sublist.unsubscribe(there)
    sublist.unsubscribe_all([there])
    assert sublist.count() == other.count() == len(held)
    assert plain(other, "foo.bar") == {"foo.bar"}
    assert sublist.generation(b"foo.bar") == before


def test_removing_prunes_what_is_empty_and_nothing_else(sublist: Sublist) -> None:
    held = fill(sublist, "a.b.c.d.e.f", "a.b.c.*.e", "a.b.>", "a")
    full = sublist.stats()["num_nodes"]
    extra = [*fill(sublist, "a.b.c.x.y.z", "a.*.*.>"), *fill(sublist, "a.b.c", "a.b.>", queue="q")]
    assert sublist.stats()["num_nodes"] == full + 3 + 3 + 1 + 1
    extra.clear()
    assert sublist.stats()["num_nodes"] == full
    assert plain(sublist, "a.b.c.d.e.f") == {"a.b.c.d.e.f", "a.b.>"}
    sublist.unsubscribe(held[0])
    assert plain(sublist, "a.b.c.x.e") == {"a.b.c.*.e", "a.b.>"}
    held.clear()
    assert sublist.stats()["num_nodes"] == sublist.count() == 0


def test_a_batch_is_removed_with_those_skipped_that_are_gone(sublist: Sublist) -> None:
    batch = fill(sublist, *(f"foo.{i}" for i in range(100)), "foo.*", ">")
    keep = fill(sublist, "foo.1.x", "foo.>")
    sublist.unsubscribe(batch[5])
    sublist.unsubscribe_all(batch)
    assert sublist.count() == len(keep)
    assert plain(sublist, "foo.1") == {"foo.>"}
    with pytest.raises(TypeError):
        sublist.unsubscribe_all([None])  # type: ignore[list-item]


def test_a_collected_handle_takes_its_subscription_along(sublist: Sublist) -> None:
    held = fill(sublist, "foo", "foo.*")
    cycle: list[object] = [held.pop()]
    cycle.append(cycle)
    assert sublist.count() == 2
    held.clear()
    assert sublist.count() == 1
    del cycle
    gc.collect()
    assert sublist.count() == sublist.stats()["num_nodes"] == 0


def test_a_sublist_goes_with_subscriptions_in_it() -> None:
    sublist = Sublist()
    held = [*fill(sublist, *(f"a.*.{i}.*.>" for i in range(100)), ">", "*"), *fill(sublist, "a.b", queue="q")]
    del sublist
    assert held[-1].subject == b"a.b"
    held.clear()


def test_a_hundred_thousand_come_and_go(sublist: Sublist) -> None:
    for _ in range(2):
        held = [sublist.subscribe(b"_INBOX.%d.*" % i, sid=b"%d" % i) for i in range(100_000)]
        assert sublist.count() == 100_000
        assert sublist.stats()["num_nodes"] == 200_001
        for i in range(0, 100_000, 997):
            assert sublist.lookup(b"_INBOX.%d.x" % i) == ([b"%d" % i], [])
        sublist.unsubscribe_all(held[:50_000])
        for i in range(0, 100_000, 997):
            assert sublist.lookup(b"_INBOX.%d.x" % i) == ([b"%d" % i] if i >= 50_000 else [], [])
        held.clear()
        assert sublist.stats()["num_nodes"] == sublist.count() == 0


# ---- queue groups ----


def grouped(sublist: Sublist, subject: str) -> list[list[bytes]]:
    sids, groups = sublist.lookup(subject.encode())
    assert sids == []
    return sorted(sorted(g) for g in groups)


def test_members_of_one_group_share_a_slot_whatever_their_subject(sublist: Sublist) -> None:
    held = [
        sublist.subscribe(s, q, sid)
        for s, q, sid in [
            (b"foo.bar", b"a", b"1"),
            (b"foo.bar", b"a", b"2"),
            (b"foo.*", b"a", b"3"),
            (b">", b"a", b"4"),
            (b"foo.*", b"b", b"5"),
            (b"*.bar", b"c", b"6"),
            (b"other", b"a", b"7"),
        ]
    ]
    assert grouped(sublist, "foo.bar") == [[b"1", b"2", b"3", b"4"], [b"5"], [b"6"]]
    assert sublist.interest(b"foo.bar") == (0, 6)
    sublist.unsubscribe(held[2])
    assert grouped(sublist, "foo.bar") == [[b"1", b"2", b"4"], [b"5"], [b"6"]]
    sublist.unsubscribe(held[4])
    assert grouped(sublist, "foo.bar") == [[b"1", b"2", b"4"], [b"6"]]


def test_a_group_is_not_a_token_of_the_same_name(sublist: Sublist) -> None:
    held = [sublist.subscribe(b"foo", b"bar", b"1"), sublist.subscribe(b"foo.bar", b"", b"2")]
    assert sublist.lookup(b"foo") == ([], [[b"1"]])
    assert sublist.lookup(b"foo.bar") == ([b"2"], [])
    held.pop(0)
    assert sublist.lookup(b"foo") == ([], [])
    assert sublist.lookup(b"foo.bar") == ([b"2"], [])


def test_groups_and_plain_subscribers_are_told_apart(sublist: Sublist) -> None:
    held = [sublist.subscribe(b"foo", b"", b"1"), sublist.subscribe(b"foo", b"q", b"2")]
    assert sublist.lookup(b"foo") == ([b"1"], [[b"2"]])
    assert sublist.interest(b"foo") == (1, 1)
    assert sorted(sublist.subs()) == [(b"foo", b"", b"1"), (b"foo", b"q", b"2")]
    del held


@pytest.mark.parametrize("kind", [ROUTER, GATEWAY, LEAF])
def test_a_remote_member_appears_once_whatever_its_weight(sublist: Sublist, kind: int) -> None:
    local = [sublist.subscribe(b"foo", b"q", b"local") for _ in range(2)]
    remote = [sublist.subscribe(b"foo", b"q", sid, kind, 10) for sid in (b"r1", b"r2")]
    unweighted = sublist.subscribe(b"foo", b"q", b"r3", kind, 0)
    other = sublist.subscribe(b"*", b"q", b"r4", kind, 1_000_000)
    client = sublist.subscribe(b"*", b"q", b"client", 0, 5)
    assert sublist.count() == 7
    _, (group,) = sublist.lookup(b"foo")
    assert sorted(group[:3]) == [b"client", b"local", b"local"]
    assert sorted(group[3:]) == [b"r1", b"r2", b"r3", b"r4"]
    assert sublist.interest(b"foo") == (0, 7)
    before = sublist.generation(b"foo")
    sublist.update_weight(remote[1], 1)
    assert sublist.generation(b"foo") == before
    for handle in (local[0], remote[0], unweighted, other, client):
        sublist.unsubscribe(handle)
    assert grouped(sublist, "foo") == [[b"local", b"r2"]]


def test_links_and_clients_come_and_go(sublist: Sublist) -> None:
    """Links stand first in a list, whatever the order."""
    chance = random.Random(7)
    held: list[tuple[bytes, int, Any]] = []
    for n in range(3_000):
        if held and chance.random() < 0.49:
            held.pop(chance.randrange(len(held)))
        else:
            kind = chance.choice([0, ROUTER, LEAF])
            held.append((b"%d" % n, kind, sublist.subscribe(b"foo", b"", b"%d" % n, kind)))
        plain, _ = sublist.lookup(b"foo")
        links = {sid for sid, kind, _ in held if kind}
        assert set(plain[: len(links)]) == links
        assert sorted(plain) == sorted(sid for sid, _, _ in held)


def test_weight_means_nothing_outside_of_a_group(sublist: Sublist) -> None:
    held = [sublist.subscribe(b"foo", b"", b"1", ROUTER, 10)]
    assert sublist.lookup(b"foo") == ([b"1"], [])
    del held


def test_ten_thousand_groups_of_one_subject(sublist: Sublist) -> None:
    names = [b"group-%d" % i for i in range(10_000)]
    held = {s: [sublist.subscribe(s, q, s + q) for q in names] for s in (b"foo.bar", b"foo.*", b">")}
    expected = sorted(sorted(s + q for s in held) for q in names)
    for _ in range(20):
        assert grouped(sublist, "foo.bar") == expected
    sublist.unsubscribe_all(held[b"foo.*"])
    assert grouped(sublist, "foo.bar") == sorted(sorted([b"foo.bar" + q, b">" + q]) for q in names)
    held.clear()
    assert sublist.stats()["num_nodes"] == 0


# ---- reverse match ----


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("foo", {"foo"}),
        ("*", {"foo", "bar"}),
        ("baz", set()),
        ("foo.*", {"foo.bar", "foo.baz"}),
        ("*.*", {"foo.bar", "foo.baz"}),
        ("*.bar", {"foo.bar"}),
        ("bar.*", set()),
        ("foo.>", {"foo.bar", "foo.baz", "foo.bar.baz"}),
        (">", {"foo", "bar", "foo.bar", "foo.baz", "foo.bar.baz", "uplink.*.*.>"}),
        ("uplink.1.*.*.>", {"uplink.*.*.>"}),
        ("uplink.1.2.3.>", {"uplink.*.*.>"}),
        ("uplink.*", set()),
    ],
)
def test_a_pattern_finds_the_subjects_it_collides_with(
    sublist: Sublist, subject: str, expected: set[str]
) -> None:
    held = fill(sublist, "foo", "bar", "foo.bar", "foo.baz", "foo.bar.baz", "uplink.*.*.>")
    sids, groups = sublist.reverse_lookup(subject.encode())
    assert groups == []
    assert len(sids) == len(expected)
    assert {sid.decode() for sid in sids} == expected
    del held


# ---- generations ----


def test_the_generation_moves_with_every_change_of_a_result(sublist: Sublist) -> None:
    seen = [sublist.generation(b"foo.bar")]
    held = []
    for subject in (b"foo.bar", b"foo.*", b"foo.>", b"*.bar", b">"):
        for queue in (b"", b"q"):
            held.append(sublist.subscribe(subject, queue))
            seen.append(sublist.generation(b"foo.bar"))
    while held:
        held.pop()
        seen.append(sublist.generation(b"foo.bar"))
    batch = fill(sublist, "foo.bar", "foo.*")
    seen.append(sublist.generation(b"foo.bar"))
    sublist.unsubscribe_all(batch)
    seen.append(sublist.generation(b"foo.bar"))
    assert seen == sorted(set(seen))


def test_churn_below_one_first_token_leaves_most_others_alone(sublist: Sublist) -> None:
    others = [b"other%d.x" % i for i in range(200)]
    before = [sublist.generation(s) for s in others]
    for i in range(50):
        sublist.unsubscribe(sublist.subscribe(b"_INBOX.%d" % i))
    moved = sum(sublist.generation(s) != b for s, b in zip(others, before, strict=True))
    assert moved < 20  # only those that share its counter, one of 256
    held = fill(sublist, "*.x")
    assert all(sublist.generation(s) > b for s, b in zip(others, before, strict=True))
    del held


# ---- against a model ----

tokens = st.sampled_from(["a", "b", "c", "*"])
subjects = st.builds(
    lambda head, tail: ".".join(head + tail) or "*",
    st.lists(tokens, max_size=4),
    st.sampled_from([[], [], [">"]]),
)
published = st.lists(st.sampled_from(["a", "b", "c", "d", "*", ">"]), min_size=1, max_size=5).map(".".join)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), subjects, st.sampled_from(["", "", "q1", "q2", "a"])),
        st.tuples(st.just("remove"), st.integers(0, 1000), st.none()),
        st.tuples(st.just("batch"), st.integers(0, 1000), st.integers(0, 10)),
        st.tuples(st.just("match"), published, st.none()),
        st.tuples(st.just("reverse"), subjects, st.none()),
    ),
    max_size=60,
)


class Model:
    """A list of patterns; match() tries all of them."""

    def __init__(self) -> None:
        self.held: list[Handle] = []

    def found(self, subject: str, match: Callable[[str, str], bool]) -> tuple[list[bytes], list[list[bytes]]]:
        sids = []
        groups = defaultdict(list)
        for handle in self.held:
            if match(subject, handle.subject.decode()):
                if handle.queue:
                    groups[handle.queue].append(handle.sid)
                else:
                    sids.append(handle.sid)
        return sorted(sids), sorted(sorted(g) for g in groups.values())


def in_order(result: tuple[list[bytes], list[list[bytes]]]) -> tuple[list[bytes], list[list[bytes]]]:
    return sorted(result[0]), sorted(sorted(g) for g in result[1])


@settings(max_examples=300)
@given(operations)
def test_any_sequence_of_operations_agrees_with_a_list_of_patterns(
    operations: list[tuple[str, Any, Any]],
) -> None:
    sublist, model = Sublist(), Model()
    for number, (operation, what, more) in enumerate(operations):
        if operation == "insert":
            model.held.append(sublist.subscribe(what.encode(), more.encode(), b"%d" % number))
        elif operation == "match":
            expected = model.found(what, literal_match)
            assert in_order(sublist.lookup(what.encode())) == expected
            assert sublist.interest(what.encode()) == (len(expected[0]), sum(map(len, expected[1])))
            assert sublist.interested(what.encode()) is (expected != ([], []))
        elif operation == "reverse":
            assert in_order(sublist.reverse_lookup(what.encode())) == model.found(what, collide)
        elif operation == "batch":
            at = what % (len(model.held) + 1)
            gone, model.held[at : at + more] = model.held[at : at + more], []
            sublist.unsubscribe_all(gone)
        elif model.held:
            assert sublist.unsubscribe(model.held.pop(what % len(model.held)))
    assert sublist.count() == len(model.held)
    assert sorted(sublist.subs()) == sorted((h.subject, h.queue, h.sid) for h in model.held)
    model.held.clear()
    assert sublist.stats()["num_nodes"] == sublist.count() == 0


def test_growing_and_shrinking_loses_no_edge(sublist: Sublist) -> None:
    # Grow and shrink through every size of the table, far past its first segments.
    rng = random.Random(3)
    held: dict[bytes, Handle] = {}
    for n in (1, 2, 3, 5, 17, 100, 700, 3000, 600, 50, 4, 1, 0, 40, 0):
        while len(held) < n:
            subject = b"x.%d" % rng.randrange(1 << 60)
            held[subject] = sublist.subscribe(subject, sid=subject)
        while len(held) > n:
            subject = rng.choice(list(held)) if len(held) < 100 else next(iter(held))
            del held[subject]
            assert sublist.lookup(subject) == ([], [])
        for subject in held:
            assert sublist.lookup(subject) == ([subject], [])
        assert sublist.stats()["num_nodes"] == n + (n > 0)


# ---- threads ----


def test_threads_see_what_stays_and_nothing_that_never_was() -> None:
    sublist = Sublist()
    steady = [
        *fill(sublist, "a.steady", "a.*", "*.steady", "a.>", ">"),
        *(sublist.subscribe(s, b"q", b"q-" + s) for s in (b"a.steady", b"a.*")),
    ]
    expected = {h.sid for h in steady if not h.queue}
    members = {h.sid for h in steady if h.queue}
    failures: list[object] = []
    done = threading.Event()

    def churn(seed: int) -> None:
        rng = random.Random(seed)
        patterns = [b"a.steady", b"a.*", b"*.steady", b"*.*", b"a.>", b">", b"a.steady.x", b"b.%d.*" % seed]
        held: list[Handle] = []
        for i in range(8000):
            sid = b"churn-%d-%d" % (seed, i)
            held.append(sublist.subscribe(rng.choice(patterns), rng.choice([b"", b"q", b"r"]), sid))
            if len(held) > 30:
                action = rng.randrange(3)
                if action == 0:
                    sublist.unsubscribe_all(held[:15])
                    del held[:15]
                elif action == 1:
                    sublist.unsubscribe(held.pop(rng.randrange(len(held))))
                else:
                    del held[5:10]

    def look() -> None:
        while not done.is_set():
            sids, groups = sublist.lookup(b"a.steady")
            everyone = [*sids, *(sid for g in groups for sid in g)]
            by_name = [g for g in groups if members <= set(g)]
            if (
                not expected <= set(sids)
                or len(by_name) != 1
                or len(set(everyone)) != len(everyone)
                or not all(s in expected | members or s.startswith(b"churn-") for s in everyone)
                or any(not g for g in groups)
                or sublist.lookup(b"never..") != ([], [])
                or not sublist.interested(b"a.steady")
                or len(sublist.subs()) < len(steady)
            ):
                failures.append((sids, groups))
                return

    lookers = [threading.Thread(target=look) for _ in range(2)]
    churners = [threading.Thread(target=churn, args=(seed,)) for seed in range(3)]
    for thread in (*lookers, *churners):
        thread.start()
    for thread in churners:
        thread.join()
    done.set()
    for thread in lookers:
        thread.join()
    assert failures == []
    assert sublist.count() == len(steady)
    assert sorted(sublist.subs()) == sorted((h.subject, h.queue, h.sid) for h in steady)
    steady.clear()
    assert sublist.stats()["num_nodes"] == 0
