"""The protocol parser without a socket: its calls, which no cut of the input changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnats.core.protocol.parser import Violation
from gnats.core.protocol.parser_probe import ParserProbe
from gnats.core.runtime.kinds import CLIENT, GATEWAY, LEAF, ROUTER

pytestmark = pytest.mark.timeout(60)


def parse(*reads: bytes, **options: object) -> tuple[list[tuple[object, ...]], bool]:
    probe = ParserProbe(**options)
    alive = all(probe.feed(read) for read in reads)
    return probe.calls, alive


def msg(subject: bytes, payload: bytes, reply: bytes | None = None, hdr: int = -1) -> tuple[object, ...]:
    return ("msg", subject, reply, hdr, payload)


CLIENT_CASES: dict[bytes, list[tuple[object, ...]]] = {
    b"PUB foo 5\r\nhello\r\n": [msg(b"foo", b"hello")],
    b"pub foo 5\r\nhello\r\n": [msg(b"foo", b"hello")],
    b"PuB foo 5\r\nhello\r\n": [msg(b"foo", b"hello")],
    b"PUB foo bar 5\r\nhello\r\n": [msg(b"foo", b"hello", b"bar")],
    b"PUB  foo\t \tbar   5  \r\nhello\r\n": [msg(b"foo", b"hello", b"bar")],
    b"PUB\tfoo\t5\r\nhello\r\n": [msg(b"foo", b"hello")],
    b"PUB foo 5\nhello\r\n": [msg(b"foo", b"hello")],
    b"PUB foo 0\r\n\r\n": [msg(b"foo", b"")],
    b"PUB foo 1\r\nx\r\n": [msg(b"foo", b"x")],
    b"PUB foo 00005\r\nhello\r\n": [msg(b"foo", b"hello")],
    b"PUB foo 2\r\n\r\n\r\n": [msg(b"foo", b"\r\n")],
    b"PUB foo 14\r\nPUB bar 2\r\nok\r\r\n": [msg(b"foo", b"PUB bar 2\r\nok\r")],
    b"PUB a 1\r\n1\r\nPUB b 1\r\n2\r\nPING\r\n": [msg(b"a", b"1"), msg(b"b", b"2"), ("ping", b"")],
    b"PUB foo\r\n": [("violation", Violation.BAD_PUB_ARGS)],
    b"PUB a b c 5\r\n": [("violation", Violation.BAD_PUB_ARGS)],
    b"PUB foo x\r\n": [("violation", Violation.BAD_PUB_SIZE)],
    b"PUB foo -1\r\n": [("violation", Violation.BAD_PUB_SIZE)],
    b"PUB foo 1234567890\r\n": [("violation", Violation.BAD_PUB_SIZE)],
    b"PUB foo 2000000\r\n": [("violation", Violation.OVER_MAX_PAYLOAD)],
    b"PUB foo 5\r\nhelloxx": [("violation", Violation.BAD_OPERATION)],
    b"PUB foo 5\r\nhello\rx": [("violation", Violation.BAD_OPERATION)],
    b"HPUB foo 12 17\r\nNATS/1.0\r\n\r\nhello\r\n": [msg(b"foo", b"NATS/1.0\r\n\r\nhello", hdr=12)],
    b"hpub foo bar 12 12\r\nNATS/1.0\r\n\r\n\r\n": [msg(b"foo", b"NATS/1.0\r\n\r\n", b"bar", 12)],
    b"HPUB foo 0 2\r\nok\r\n": [msg(b"foo", b"ok", hdr=0)],
    b"HPUB foo 5\r\n": [("violation", Violation.BAD_HPUB_ARGS)],
    b"HPUB foo x 5\r\n": [("violation", Violation.BAD_HPUB_HEADER_SIZE)],
    b"HPUB foo 5 x\r\n": [("violation", Violation.BAD_HPUB_SIZE)],
    b"HPUB foo 6 5\r\n": [("violation", Violation.BAD_HPUB_HEADER_OVER_SIZE)],
    b"SUB foo 1\r\nSUB foo q 2\r\n": [("sub", b"foo 1"), ("sub", b"foo q 2")],
    b"sub\t foo 1\n": [("sub", b"foo 1")],
    b"UNSUB 1\r\nunsub 2 5\r\n": [("unsub", b"1"), ("unsub", b"2 5")],
    b"PING\r\nping\nPoNg trailing words\r\n": [("ping", b""), ("ping", b""), ("pong", b"")],
    b"+OK\r\n+ok whatever\nPING\r\n": [("ping", b"")],
    b"-ERR 'go away'\r\nPING\r\n": [("err", b"'go away'")],
    b"CONNECT {}\r\nPING\r\n": [("connect", b"{}"), ("ping", b"")],
    b'CONNECT{"verbose":true}\r\n': [("connect", b'{"verbose":true}')],
    b"connect  \t {}\r\nINFO {}\r\nPING\r\n": [("connect", b"{}"), ("info", b"{}"), ("ping", b"")],
    b"GET / HTTP/1.1\r\n": [("violation", Violation.BAD_OPERATION)],
    b"PUBX foo 5\r\n": [("violation", Violation.BAD_OPERATION)],
    b"PU\x00": [("violation", Violation.BAD_OPERATION)],
    b"RS+ $G foo\r\n": [("violation", Violation.BAD_OPERATION)],
    b"LS+ foo\r\n": [("violation", Violation.BAD_OPERATION)],
    b"A+ $G\r\n": [("violation", Violation.BAD_OPERATION)],
    b"\r\n": [("violation", Violation.BAD_OPERATION)],
    b"MSG foo 1 5\r\n": [("violation", Violation.BAD_OPERATION)],
    b"HMSG foo 1 5 5\r\n\r\n": [msg(b"", b"", hdr=0)],
    b"HMSG foo 1 5 5\r\nhello\r\n": [("violation", Violation.BAD_OPERATION)],
}


def remote(
    subject: bytes,
    payload: bytes,
    *,
    account: bytes | None = None,
    origin: bytes | None = None,
    reply: bytes | None = None,
    hdr: int = -1,
    queues: list[bytes] | None = None,
) -> tuple[object, ...]:
    return ("msg", subject, reply, hdr, payload, account, origin, queues or [])


REMOTE_CASES: list[tuple[int, bytes, tuple[object, ...]]] = [
    (ROUTER, b"RMSG $G foo 2\r\nok\r\n", remote(b"foo", b"ok", account=b"$G")),
    (ROUTER, b"RMSG $G foo re 2\r\nok\r\n", remote(b"foo", b"ok", account=b"$G", reply=b"re")),
    (
        ROUTER,
        b"RMSG $G foo + re q1 q2 2\r\nok\r\n",
        remote(b"foo", b"ok", account=b"$G", reply=b"re", queues=[b"q1", b"q2"]),
    ),
    (ROUTER, b"RMSG $G foo | q1 2\r\nok\r\n", remote(b"foo", b"ok", account=b"$G", queues=[b"q1"])),
    (ROUTER, b"RMSG $G foo ? q1 q2 2\r\n", ("violation", Violation.BAD_REMOTE_REPLY_INDICATOR)),
    (ROUTER, b"RMSG $G 2\r\n", ("violation", Violation.BAD_REMOTE_MSG_ARGS)),
    (ROUTER, b"RMSG $G foo x\r\n", ("violation", Violation.BAD_REMOTE_SIZE)),
    (
        ROUTER,
        b"HMSG $G foo 12 14\r\nNATS/1.0\r\n\r\nok\r\n",
        remote(b"foo", b"NATS/1.0\r\n\r\nok", account=b"$G", hdr=12),
    ),
    (ROUTER, b"LMSG east $G foo 0 2\r\nok\r\n", remote(b"foo", b"ok", account=b"$G", origin=b"east", hdr=0)),
    (
        ROUTER,
        b"LMSG east $G foo | q 0 2\r\nok\r\n",
        remote(b"foo", b"ok", account=b"$G", origin=b"east", hdr=0, queues=[b"q"]),
    ),
    (ROUTER, b"RS+ $G foo q 3\r\n", ("sub", b"$G foo q 3")),
    (ROUTER, b"RS- $G foo\r\n", ("unsub", b"$G foo")),
    (ROUTER, b"LS+ east $G foo\r\n", ("sub", b"east $G foo")),
    (ROUTER, b"A+ $G\r\n", ("account_sub", b"$G")),
    (GATEWAY, b"RMSG $G foo 2\r\nok\r\n", remote(b"foo", b"ok", account=b"$G")),
    (GATEWAY, b"A- $G\r\n", ("account_unsub", b"$G")),
    (GATEWAY, b"Au $G\r\n", ("account_unsub", b"$G")),
    (GATEWAY, b"LS+ foo\r\n", ("violation", Violation.BAD_OPERATION)),
    (LEAF, b"LMSG foo 2\r\nok\r\n", remote(b"foo", b"ok")),
    (LEAF, b"LMSG foo + re q 2\r\nok\r\n", remote(b"foo", b"ok", reply=b"re", queues=[b"q"])),
    (
        LEAF,
        b"HMSG foo re 12 14\r\nNATS/1.0\r\n\r\nok\r\n",
        remote(b"foo", b"NATS/1.0\r\n\r\nok", reply=b"re", hdr=12),
    ),
    (LEAF, b"LS+ foo\r\n", ("sub", b"foo")),
    (LEAF, b"LS- foo q\r\n", ("unsub", b"foo q")),
]


@pytest.mark.parametrize("data", CLIENT_CASES, ids=repr)
def test_a_client_line_calls_its_handler(data: bytes) -> None:
    assert parse(data)[0] == CLIENT_CASES[data]


@pytest.mark.parametrize("data", CLIENT_CASES, ids=repr)
def test_no_cut_changes_what_a_client_said(data: bytes) -> None:
    whole = parse(data)
    for i in range(1, len(data)):
        assert parse(data[:i], data[i:]) == whole, i
    assert parse(*(data[i : i + 1] for i in range(len(data)))) == whole


@pytest.mark.parametrize(("kind", "data", "call"), REMOTE_CASES)
def test_other_kinds_speak_their_verbs_at_any_cut(kind: int, data: bytes, call: tuple[object, ...]) -> None:
    for i in range(len(data)):
        assert parse(data[:i], data[i:], kind=kind)[0] == [call], i


def test_a_pinned_route_names_no_account() -> None:
    assert parse(b"RMSG foo 2\r\nok\r\n", kind=ROUTER, has_account=False)[0] == [remote(b"foo", b"ok")]
    assert parse(b"LMSG east foo 0 2\r\nok\r\n", kind=ROUTER, has_account=False)[0] == [
        remote(b"foo", b"ok", origin=b"east", hdr=0)
    ]


def test_only_connect_may_come_first_while_authorization_is_due() -> None:
    assert parse(b"PUB foo 2\r\nok\r\n", auth=True)[0] == [("auth_violation", b"")]
    assert parse(b"CONNECT {}\r\nPING\r\n", auth=True)[0] == [("connect", b"{}"), ("ping", b"")]


def test_headers_must_have_been_negotiated() -> None:
    assert parse(b"HPUB foo 12 12\r\n", headers=False)[0] == [("violation", Violation.HEADERS_NOT_SUPPORTED)]


@pytest.mark.parametrize("length", [16, 17])
@pytest.mark.parametrize("cut", [None, 8, 20, 21])
def test_the_control_line_limit_is_exact(length: int, cut: int | None) -> None:
    line = b"SUB " + b"x" * (length - 2) + b" 1\r\n"
    reads = [line] if cut is None else [line[:cut], line[cut:]]
    calls, alive = parse(*reads, max_control_line=16)
    assert alive == (length == 16)
    assert calls == ([("sub", line[4:-2])] if alive else [("violation", Violation.OVER_MAX_CONTROL_LINE)])


def test_a_line_without_end_is_refused_before_it_fills_memory() -> None:
    probe = ParserProbe(max_control_line=4096)
    reads = 0
    while probe.feed(b"SUB " + b"x" * 1020 if reads == 0 else b"x" * 1024):
        reads += 1
    assert reads <= 5
    assert probe.calls == [("violation", Violation.OVER_MAX_CONTROL_LINE)]


@pytest.mark.parametrize("kind, times, verb", [(LEAF, 15, b"LS+ "), (ROUTER, 256, b"RS+ ")])
def test_other_kinds_may_have_longer_lines(kind: int, times: int, verb: bytes) -> None:
    """What a leaf node says fits into a route's line with the names of account and cluster."""
    line = verb + b"$G " + b"x" * (4096 * times - 3)
    assert parse(line + b"\r\n", kind=kind)[0] == [("sub", line[4:])]
    assert parse(line + b"x\r\n", kind=kind)[0] == [("violation", Violation.OVER_MAX_CONTROL_LINE)]


def test_pedantic_mode_reports_a_subject_that_is_none_and_goes_on() -> None:
    assert parse(b"PUB foo.* 2\r\nok\r\n", pedantic=True)[0] == [
        ("invalid_publish_subject", b""),
        msg(b"foo.*", b"ok"),
    ]


VERBS = [
    b"PUB ",
    b"HPUB ",
    b"SUB ",
    b"UNSUB ",
    b"PING\r\n",
    b"PONG\r\n",
    b"CONNECT {}",
    b"INFO {}",
    b"+OK",
    b"-ERR x",
]
REMOTE_VERBS = [b"RMSG ", b"LMSG ", b"HMSG ", b"RS+ ", b"A+ "]
REST = b"foo|bar.baz| |\t|\r\n|\n|\r|0|1|5|12|hello|$G |+ |\x00|\xff|NATS/1.0\r\n\r\n".split(b"|")
WORDS = st.sampled_from([*VERBS, *REMOTE_VERBS, *REST, b"| "])


@settings(max_examples=600)
@given(
    data=st.lists(WORDS, max_size=30).map(b"".join),
    cuts=st.lists(st.integers(0, 200), max_size=6),
    kind=st.sampled_from([CLIENT, ROUTER, GATEWAY, LEAF]),
)
def test_anything_means_the_same_however_it_is_cut(data: bytes, cuts: list[int], kind: int) -> None:
    points = sorted({min(c, len(data)) for c in cuts})
    reads = [data[a:b] for a, b in zip([0, *points], [*points, len(data)], strict=True)]
    assert parse(*reads, kind=kind) == parse(data, kind=kind)


@pytest.mark.parametrize("length", range(55, 75))
@pytest.mark.parametrize("verb", [b"PUB ", b"HPUB "])
def test_a_read_may_end_anywhere_behind_a_line(verb: bytes, length: int) -> None:
    """The parser reads no byte behind the input; the address sanitizer would see it."""
    sizes = b" 0 1" if verb == b"HPUB " else b" 1"
    subject = b"s" * (length - len(sizes))
    for end in (b"\r", b"\r\n", b"\n", b"\r\nx", b"\r\nx\r"):
        calls, alive = parse(verb + subject + sizes + end, headers=True)
        assert (calls, alive) == ([], True)


STREAM = (
    b"PUB a 1\r\n1\r\nPUB b 12\r\n123456789012\r\nSUB c 1\r\n"
    b"HPUB d 12 13\r\nNATS/1.0\r\n\r\n4\r\nPING\r\nPUB e 0\r\n\r\n"
)


@pytest.mark.parametrize("cut", range(len(STREAM)))
def test_turns_change_no_call(cut: int) -> None:
    reads = STREAM[:cut], STREAM[cut:]
    probe = ParserProbe(short_turns=True)
    assert all(probe.feed(read) for read in reads)
    assert probe.calls == parse(*reads)[0]


def test_a_turn_ends_between_two_messages() -> None:
    one = b"PUB a 100\r\n" + b"x" * 100 + b"\r\n"
    probe = ParserProbe(short_turns=True)
    assert probe.feed(one * 10)
    assert probe.turns == [len(one)] * 9


def test_a_turn_ends_behind_many_cheap_verbs() -> None:
    probe = ParserProbe(short_turns=True)
    assert probe.feed(b"PING\r\n" * 10_000)
    assert len(probe.calls) == 10_000
    assert len(probe.turns) == 60_000 // 8_196  # a whole number of PINGs from 8 KiB on
    assert set(probe.turns) == {8_196}
