"""Compiled permissions against a plain model of what nats-server decides, and the table of reply subjects."""

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnats.core.auth.permission_cache import Verdicts
from gnats.core.auth.permissions import Permissions as Compiled
from gnats.core.auth.permissions import compile_permissions
from gnats.core.auth.replies import Replies
from gnats.core.runtime.kinds import CLIENT, LEAF, ROUTER
from gnats.options.values.auth import Permissions, ResponsePermission, SubjectPermission

pytestmark = pytest.mark.timeout(120)

Entry = tuple[str, str]


# ---- the model ----


def matches(entry: str, subject: str) -> bool:
    """Return True if an entry matches a subject; the subject's own wildcards are plain tokens."""
    wanted, given_ = entry.split("."), subject.split(".")
    if "" in given_:
        return False
    for i, token in enumerate(wanted):
        if token == ">":
            return len(given_) > i
        if i == len(given_) or token not in ("*", given_[i]):
            return False
    return len(wanted) == len(given_)


def covers(wide: str, narrow: str) -> bool:
    """Return True if `wide` matches every subject that `narrow` matches."""
    w, n = wide.split("."), narrow.split(".")
    for i, token in enumerate(w):
        if i == len(n):
            return False
        if token == ">":
            return True
        if n[i] == ">" or (n[i] == "*" and token != "*") or token not in ("*", n[i]):
            return False
    return len(w) == len(n)


def overlap(a: str, b: str) -> bool:
    """Return True if both match some literal subject."""
    x, y = a.split("."), b.split(".")
    for i in range(max(len(x), len(y))):
        if i == len(x) or i == len(y):
            return False
        if x[i] == ">" or y[i] == ">":
            return True
        if x[i] != y[i] and "*" not in (x[i], y[i]):
            return False
    return True


def wild(subject: str) -> bool:
    return bool({"*", ">"} & set(subject.split(".")))


def named(queue: str, queues: list[str]) -> bool:
    return any(queue == entry or (wild(entry) and covers(entry, queue)) for entry in queues)


def interest(entries: list[Entry], subject: str) -> tuple[bool, list[str]]:
    found = [queue for entry, queue in entries if matches(entry, subject)]
    return "" in found, [queue for queue in found if queue]


def may_publish(allow: list[str] | None, deny: list[str], subject: str) -> bool:
    allowed = allow is None or any(matches(entry, subject) for entry in allow)
    return allowed and not any(matches(entry, subject) for entry in deny)


def denied(deny: list[Entry], subject: str, queue: str) -> bool:
    plain, queues = interest(deny, subject)
    return plain or (queue != "" and named(queue, queues))


def may_subscribe(allow: list[Entry], deny: list[Entry], subject: str, queue: str) -> bool:
    if allow:
        plain, queues = interest(allow, subject)
        if not (named(queue, queues) if queue and queues else plain):
            return False
    return not denied(deny, subject, queue)


def filters(deny: list[Entry], subject: str, queue: str) -> bool:
    return (queue != "" or wild(subject)) and any(overlap(entry, subject) for entry, _ in deny)


# ---- strategies ----

TOKENS = st.sampled_from(["a", "b", "c", "*", "*", "a*", "$MQTT", "long-token-of-a-subject"])
PUBLISHED = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
SUBJECTS = st.tuples(PUBLISHED, st.booleans()).map(lambda pair: pair[0] + ".>" * pair[1]) | st.just(">")
QUEUES = st.lists(st.sampled_from(["q", "v1", "*"]), min_size=1, max_size=2).map(".".join) | st.just(">")
NAMES = st.just("") | QUEUES
ENTRIES = st.lists(st.tuples(SUBJECTS, NAMES), max_size=6)
ODD = SUBJECTS | st.sampled_from(["a..b", ".a", "a.", "a.>.b"])


def joined(entries: list[Entry]) -> tuple[str, ...]:
    return tuple(f"{subject} {queue}".strip() for subject, queue in entries)


@given(
    allow=st.none() | st.lists(SUBJECTS, max_size=6),
    deny=st.lists(SUBJECTS, max_size=6),
    subjects=st.lists(ODD, min_size=1, max_size=20),
)
@settings(max_examples=400)
def test_publish_is_what_the_model_says(
    allow: list[str] | None, deny: list[str], subjects: list[str]
) -> None:
    compiled = Compiled(
        Permissions(publish=SubjectPermission(None if allow is None else tuple(allow), tuple(deny)))
    )
    assert compiled.errors == ()
    for subject in subjects:
        assert compiled.publish_allowed(subject.encode()) is may_publish(allow, deny, subject), subject


@given(allow=ENTRIES, deny=ENTRIES, wanted=st.lists(st.tuples(ODD, NAMES), min_size=1, max_size=20))
@settings(max_examples=400)
def test_subscribe_and_delivery_are_what_the_model_says(
    allow: list[Entry], deny: list[Entry], wanted: list[Entry]
) -> None:
    compiled = Compiled(Permissions(subscribe=SubjectPermission(joined(allow), joined(deny))))
    assert compiled.errors == ()
    for subject, queue in wanted:
        s, q = subject.encode(), queue.encode()
        assert compiled.subscribe_allowed(s, q) is may_subscribe(allow, deny, subject, queue)
        assert compiled.delivery_refused(s, q) is denied(deny, subject, queue)
        if ".." not in f".{subject}." and ".>." not in subject:
            assert compiled.filters(s, q) is filters(deny, subject, queue)


# ---- examples ----


def test_no_permission_allows_everything() -> None:
    compiled = Compiled(Permissions())
    assert compiled.publish_allowed(b"a") and compiled.subscribe_allowed(b">", b"q")
    assert not compiled.restricts_publish and not compiled.restricts_delivery


def test_an_empty_list_allows_no_publish_and_every_subscription() -> None:
    compiled = Compiled(Permissions(SubjectPermission(()), SubjectPermission(())))
    assert not compiled.publish_allowed(b"a")
    assert compiled.subscribe_allowed(b"a")


def test_responses_alone_allow_no_other_publish_and_have_defaults() -> None:
    compiled = Compiled(Permissions(response=ResponsePermission(0, 0)))
    assert not compiled.publish_allowed(b"a")
    assert (compiled.max_responses, compiled.response_expires) == (1, 120_000_000_000)
    unlimited = Compiled(Permissions(response=ResponsePermission(-1, -1)))
    assert (unlimited.max_responses, unlimited.response_expires) == (-1, -1_000_000_000)


def test_responses_beside_a_deny_list_only() -> None:
    compiled = Compiled(Permissions(SubjectPermission(None, ("a",)), response=ResponsePermission()))
    assert not compiled.publish_allowed(b"b")


def test_mqtt_subjects_are_open_to_all_but_clients_unless_denied() -> None:
    compiled = Compiled(
        Permissions(
            SubjectPermission(("a",), ("$MQTT.no",)),
            SubjectPermission(("a",), ("$MQTT.no",)),
        )
    )
    for allowed in (compiled.publish_allowed, compiled.subscribe_allowed):
        assert not allowed(b"$MQTT.x", kind=CLIENT)
        assert allowed(b"$MQTT.x", kind=ROUTER)
        assert not allowed(b"$MQTT.no", kind=ROUTER)
        assert not allowed(b"$MQTTx", kind=ROUTER)


def test_a_leaf_node_may_subscribe_to_more_than_is_allowed() -> None:
    compiled = Compiled(Permissions(subscribe=SubjectPermission(("a.b", "c q"))))
    assert compiled.subscribe_allowed(b"a.*", kind=LEAF)
    assert not compiled.subscribe_allowed(b"a.*", kind=CLIENT)
    assert not compiled.subscribe_allowed(b"d.*", kind=LEAF)
    assert not compiled.subscribe_allowed(b"*", kind=LEAF)


def test_entries_that_are_not_valid_are_left_out_and_named() -> None:
    compiled = Compiled(
        Permissions(
            SubjectPermission(("a b", "x..y", "ok"), ("c q", "d e f", "")),
            SubjectPermission(("a b c", "b q", ""), ("e..f", "g")),
        )
    )
    assert compiled.errors == (
        'invalid publish subject "a b"',
        'invalid publish subject "x..y"',
        'queue qualifier is not valid for publish deny subject "c q"',
        'invalid publish deny subject "d e f"',
        'invalid publish deny subject ""',
        'invalid subject-queue "a b c"',
        'invalid subject-queue ""',
        'invalid subject-queue "e..f"',
    )
    assert compiled.publish_allowed(b"ok") and not compiled.publish_allowed(b"c")
    assert compiled.subscribe_allowed(b"b", b"q") and not compiled.subscribe_allowed(b"b")


def test_equal_permissions_are_compiled_once_while_they_are_used() -> None:
    def source() -> Permissions:
        return Permissions(SubjectPermission(("a",)), None, ResponsePermission())

    first = compile_permissions(source())
    assert compile_permissions(source()) is first
    assert compile_permissions(Permissions(SubjectPermission(("b",)))) is not first
    last = first.id
    del first
    gc.collect()
    assert compile_permissions(source()).id > last


# ---- a poller's cache ----


def test_verdicts_are_remembered_by_permissions_and_question() -> None:
    first = Compiled(Permissions(SubjectPermission(("a.>",)), SubjectPermission(None, ("a.b", "c q"))))
    second = Compiled(Permissions(SubjectPermission(("b", "$SYS"), ("$MQTT.x",))))
    verdicts = Verdicts()
    for kept in (0, 13, 13):
        assert verdicts.publish(first, b"a.b") and not verdicts.publish(first, b"b")
        assert not verdicts.publish(second, b"a.b") and verdicts.publish(second, b"b")
        assert not verdicts.publish(second, b"$MQTT.y") and verdicts.publish(second, b"$MQTT.y", ROUTER)
        assert not verdicts.publish(second, b"$MQTT.x", ROUTER)
        assert not verdicts.deliver(first, b"a.b") and not verdicts.deliver(first, b"a.b", b"q")
        assert verdicts.deliver(first, b"c") and not verdicts.deliver(first, b"c", b"q")
        assert verdicts.deliver(first, b"c", b"qq") and verdicts.deliver(first, b"cq")
        assert len(verdicts) == kept, "the cache keeps an answer from the second question on"


@given(steps=st.lists(st.tuples(st.integers(0, 2), st.booleans(), PUBLISHED, NAMES), max_size=100))
@settings(max_examples=100)
def test_a_remembered_verdict_is_the_permissions_own(steps: list[tuple[int, bool, str, str]]) -> None:
    several = [
        Compiled(
            Permissions(SubjectPermission((f"*.{c}",), (f"{c}.>",)), SubjectPermission(None, (f"*.{c} q",)))
        )
        for c in "abc"
    ]
    verdicts = Verdicts()
    for which, publish, subject, queue in steps:
        s, q = subject.encode(), queue.encode()
        if publish:
            assert verdicts.publish(several[which], s) is several[which].publish_allowed(s)
        else:
            assert verdicts.deliver(several[which], s, q) is not several[which].delivery_refused(s, q)


def test_what_is_remembered_is_bounded() -> None:
    compiled = Compiled(Permissions(SubjectPermission(("a.>",))))
    verdicts, long = Verdicts(), Verdicts()
    most = most_long = 0
    for n in range(40_000):
        for _ in range(20):
            assert verdicts.publish(compiled, b"a.%d" % n)
        most = max(most, len(verdicts))
    for n in range(1_000):
        for _ in range(20):
            assert not long.publish(compiled, b"x" * 10_000 + b"%d" % n)
        most_long = max(most_long, len(long))
    assert (most, most_long < 500) == (16_384, True)


# ---- replies ----


def test_a_reply_is_allowed_as_often_as_configured() -> None:
    table = Replies(2, -1)
    assert not table.use(b"r", 0)
    table.note(b"r", 0)
    assert [table.use(b"r", 0) for _ in range(4)] == [True, True, False, False]
    assert len(table) == 0


def test_a_reply_expires() -> None:
    table = Replies(-1, 100)
    table.note(b"r", 0)
    assert table.use(b"r", 100)
    assert not table.use(b"r", 101)
    assert len(table) == 0


def test_noting_a_known_reply_uses_up_one_response() -> None:
    table = Replies(3, 100)
    table.note(b"r", 0)
    table.note(b"r", 50)
    assert [table.use(b"r", 60) for _ in range(3)] == [True, True, False]
    table.note(b"r", 70)
    table.note(b"r", 90)
    assert table.use(b"r", 170), "the time must count from the first request"
    table.note(b"r", 171)
    assert [table.use(b"r", 171) for _ in range(4)] == [True, True, True, False]


def test_what_has_expired_goes_when_something_is_noted() -> None:
    table = Replies(1, 1000)
    for n in range(5000):
        table.note(b"_INBOX.%d" % n, n)
    assert len(table) == 1001
    assert [n for n in range(5000) if table.use(b"_INBOX.%d" % n, 4999)] == list(range(3999, 5000))
    assert len(table) == 0


@given(
    most=st.sampled_from([-1, 1, 2, 3]),
    expires=st.sampled_from([-1, 5, 20]),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 4)), min_size=1, max_size=200),
)
@settings(max_examples=200)
def test_replies_are_what_a_lazy_table_says(
    most: int, expires: int, steps: list[tuple[bool, int, int]]
) -> None:
    """The model keeps used and expired entries for a while, as nats-server does: the answers are the same."""
    table = Replies(most, expires)
    model: dict[bytes, list[int]] = {}
    now = 0

    def used(subject: bytes) -> bool:
        if subject not in model:
            return False
        entry = model[subject]
        entry[1] += 1
        if (most > 0 and entry[1] > most) or (expires > 0 and now - entry[0] > expires):
            del model[subject]
            return False
        return True

    for note, which, passed in steps:
        now += passed
        subject = b"r%d" % which
        if note:
            table.note(subject, now)
            if not used(subject):
                model[subject] = [now, 0]
        else:
            assert table.use(subject, now) is used(subject)
