"""The load generator counts exactly, and reports a server that loses messages or does not answer."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.launch import launcher
from support.servers import REFERENCE

from gnats.bench.cli import bench_main
from gnats.bench.fleet import Fleet
from gnats.bench.frames import FrameCounter
from gnats.bench.histogram import Histogram
from gnats.bench.loadgen import PubSub
from gnats.bench.probes import Latency, Requests
from gnats.bench.results import LoadError
from gnats.bench.target import Target

pytestmark = pytest.mark.timeout(60)

STATS = re.compile(r"stats: ([\d,]+) msgs/sec ~ ([\d.]+) [KMG]?B/sec")


# A real server: the reference


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with launcher(REFERENCE, tmp_path_factory.mktemp("server")) as launch:
        yield Target.parse(launch().url)


# A scripted server: it calls `answer` with the connection and each line received or, for a PUB, the line and
# the payload, without the end of line

Answer = Callable[[socket.socket, bytes], None]


def polite(connection: socket.socket, line: bytes) -> None:
    if line == b"PING":
        connection.sendall(b"PONG\r\n")


@contextmanager
def scripted(answer: Answer) -> Iterator[Target]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(connection: socket.socket) -> None:
            with connection, connection.makefile("rb") as stream:
                try:
                    connection.sendall(b'INFO {"max_payload":1048576}\r\n')
                    for line in stream:
                        size = int(line.split()[-1]) if line.startswith(b"PUB ") else -2
                        answer(connection, (line + stream.read(size + 2) if size >= 0 else line)[:-2])
                except OSError:
                    pass  # the generator has closed the connection

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield Target("127.0.0.1", listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


class Subscriber:
    """An `answer` that delivers every message to the one subscriber."""

    def __init__(self) -> None:
        self.connection: socket.socket | None = None
        self.pings = 0

    def __call__(self, connection: socket.socket, line: bytes) -> None:
        if line.startswith(b"SUB "):
            self.connection = connection
        elif line.startswith(b"PUB ") and self.connection:
            self.connection.sendall(message(line.partition(b"\r\n")[2]))
        elif line == b"PING":
            if connection is self.connection:
                self.pings += 1
                self.pinged(connection)
            connection.sendall(b"PONG\r\n")

    def pinged(self, connection: socket.socket) -> None:
        """Called before the answer to a PING of the subscriber."""


# Counting


def message(payload: bytes, *, reply: bytes = b"", header: bytes = b"") -> bytes:
    words = b"a.b 17 " + reply + b" " * bool(reply)
    if header:
        return b"HMSG %b%d %d\r\n%b%b\r\n" % (words, len(header), len(header + payload), header, payload)
    return b"MSG %b%d\r\n%b\r\n" % (words, len(payload), payload)


STREAM = b"".join(
    [
        b'INFO {"server_id":"MSG x 1 3"}\r\n',
        b"PONG\r\n",
        message(b""),
        message(b"MSG a 1 9\r\n"),
        b"PING\r\n",
        message(b"x" * 16),
        message(b"x" * 16),
        message(b"y" * 12, reply=b"_INBOX.1"),
        message(b"body", header=b"NATS/1.0\r\nA: 1\r\n\r\n"),
        b"+OK\r\n",
        b"MSG a 1 2\nhi\r\n",
    ]
)


def counts(counter: FrameCounter) -> tuple[int, int, int, int, int]:
    return counter.messages, counter.bytes, counter.infos, counter.pings, counter.pongs


def test_frames_are_counted_wherever_the_stream_is_cut() -> None:
    for first in range(len(STREAM) + 1):
        for second in range(first, len(STREAM) + 1, 3):
            counter = FrameCounter()
            for piece in (STREAM[:first], STREAM[first:second], STREAM[second:]):
                counter.feed(piece)
            assert counts(counter) == (7, 11 + 16 + 16 + 12 + 22 + 2, 1, 1, 1), (first, second)
            assert counter.between


@settings(max_examples=200)
@given(
    frames=st.lists(
        st.tuples(st.binary(max_size=40), st.sampled_from([b"", b"_INBOX.x"]), st.integers(1, 4)), max_size=30
    ),
    cut=st.integers(1, 50),
)
def test_any_payload_is_counted_at_any_piece_size(frames: list[tuple[bytes, bytes, int]], cut: int) -> None:
    stream = b"".join(message(payload, reply=reply) * times for payload, reply, times in frames)
    counter = FrameCounter()
    for start in range(0, len(stream), cut):
        counter.feed(stream[start : start + cut])
    assert counter.messages == sum(times for _, _, times in frames)
    assert counter.bytes == sum(len(payload) * times for payload, _, times in frames)
    assert counter.between


@pytest.mark.parametrize(
    "stream", [b"HTTP/1.1 400\r\n", b"MSG a 1\r\n\r\n" + b"x\r\n", b"MSG a 1 x\r\n", b"\r\n"]
)
def test_what_is_not_the_protocol_is_refused(stream: bytes) -> None:
    for cut in range(len(stream)):
        counter = FrameCounter()
        with pytest.raises(ValueError, match="not the NATS protocol"):
            counter.feed(stream[:cut])
            counter.feed(stream[cut:])


def test_an_error_line_is_reported_with_its_text() -> None:
    with pytest.raises(ValueError, match=r"-ERR 'Slow Consumer'$"):
        FrameCounter().feed(b"-ERR 'Slow Consumer'\r\n")


# Histogram


@given(
    st.lists(st.integers(0, 10**11), min_size=1, max_size=300), st.sampled_from([0, 1, 50, 90, 99, 99.9, 100])
)
def test_percentiles_are_within_a_bucket_of_the_sorted_samples(samples: list[int], percent: float) -> None:
    histogram = Histogram()
    for sample in samples:
        histogram.add(sample)
    rank = max(1, -int(-(len(samples) * percent) // 100))
    exact = sorted(samples)[rank - 1]
    assert abs(histogram.percentile(percent) - exact) <= exact / 64
    assert (histogram.count, histogram.min, histogram.max) == (len(samples), min(samples), max(samples))


def test_a_merged_histogram_holds_both() -> None:
    one, other = Histogram(), Histogram()
    one.add(10)
    other.add(1000)
    other.add(5)
    one.merge(other)
    one.merge(Histogram())
    assert (one.count, one.min, one.max) == (3, 5, 1000)
    assert one.percentile(50) == 10


def test_a_duration_beyond_the_range_still_counts() -> None:
    histogram = Histogram()
    histogram.add(1 << 60)
    assert (histogram.count, histogram.max) == (1, 1 << 60)
    with pytest.raises(ValueError, match="empty"):
        Histogram().percentile(50)


# Publishing and subscribing


@pytest.mark.parametrize(
    ("load", "fanout"),
    [
        ({}, 0),
        ({"publishers": 3}, 0),
        ({"subscriptions": [["bench"]]}, 1),
        ({"publishers": 4, "subscriptions": [["bench"]] * 4}, 4),
        ({"subscriptions": [["bench"]] * 30}, 30),
        ({"publishers": 2, "subscriptions": [["bench"]] * 4, "queue": "q"}, 1),
        ({"subjects": [f"s.{i:03}" for i in range(700)], "subscriptions": [["s.*"], ["s.>", "*.00?"]]}, 2),
        (
            {
                "subjects": [f"s.{i:03}" for i in range(300)],
                "subscriptions": [[f"s.{i:03}"] for i in range(300)],
                "fanout": 1,
            },
            1,
        ),
        ({"subscriptions": [["bench"]], "size": 0}, 1),
        ({"subscriptions": [["bench"]] * 2, "size": 100_000, "window": 1}, 2),
    ],
)
def test_every_message_is_counted(target: Target, load: dict[str, object], fanout: int) -> None:
    count = 1003 if load.get("size") == 100_000 else 20_003
    size = load.get("size", 16)
    assert isinstance(size, int)
    with PubSub(target, **{"size": size, **load}) as pubsub:  # type: ignore[arg-type]
        for messages in (count, 1):
            result = pubsub.run(messages, timeout=30)
            assert (result.published, result.delivered) == (messages, messages * fanout)
            assert sum(sample.messages for sample in result.publishers) == messages
            assert sum(sample.messages for sample in result.subscribers) == messages * fanout
            assert result.bytes == (messages + messages * fanout) * size


def test_a_subscriber_of_someone_else_sees_the_same_bytes(target: Target) -> None:
    with socket.create_connection((target.host, target.port)) as other, other.makefile("rb") as lines:
        other.sendall(b'CONNECT {"verbose":false}\r\nSUB seen 1\r\nPING\r\n')
        while lines.readline() != b"PONG\r\n":
            pass
        with PubSub(target, publishers=2, subjects=["seen"], size=5) as load:
            load.run(5001)
        expected = b"MSG seen 1 5\r\nxxxxx\r\n" * 5001
        assert lines.read(len(expected)) == expected
        other.sendall(b"PING\r\n")
        assert lines.readline() == b"PONG\r\n"


def test_what_others_publish_is_counted(target: Target) -> None:
    with (
        PubSub(target, publishers=0, subscriptions=[["others.>"], ["others.x"]]) as subscribers,
        PubSub(target, subjects=["others.x"], size=7) as publisher,
    ):
        publisher.run(4000)
        result = subscribers.run(4000)
        assert (result.published, result.delivered, result.bytes) == (0, 8000, 56_000)


def test_a_missing_delivery_is_an_error(target: Target) -> None:
    with (
        PubSub(target, subscriptions=[["elsewhere"]], fanout=1) as load,
        pytest.raises(LoadError, match="timed out while waiting for deliveries: 0 of 50"),
    ):
        load.run(50, timeout=0.3)


def test_a_delivery_too_many_is_an_error(target: Target) -> None:
    with (
        PubSub(target, subscriptions=[["bench", "bench"]], fanout=1) as load,
        pytest.raises(LoadError, match="expected 1,000 deliveries, counted"),
    ):
        load.run(1000)


def test_one_message_too_many_behind_the_last_is_an_error() -> None:
    class Generous(Subscriber):
        def pinged(self, connection: socket.socket) -> None:
            if self.pings == 2:  # the first PING is that of the subscription
                connection.sendall(message(b"x"))

    with (
        scripted(Generous()) as target,
        PubSub(target, subscriptions=[["bench"]], size=1) as load,
        pytest.raises(LoadError, match="expected 20 deliveries, counted 21"),
    ):
        load.run(20)


def test_pings_are_answered_between_messages() -> None:
    lines: list[bytes] = []

    def answer(connection: socket.socket, line: bytes) -> None:
        lines.append(line)
        polite(connection, line)
        if line.startswith(b"PUB"):
            connection.sendall(b"PING\r\n")

    with scripted(answer) as target, PubSub(target, size=3) as load:
        load.run(5000)
        load.run(1)
    assert lines.count(b"PUB bench 3\r\nxxx") == 5001
    assert lines.count(b"PONG") >= 5000
    assert all(line in (b"PUB bench 3\r\nxxx", b"PING", b"PONG") for line in lines[1:])


def test_a_server_that_closes_is_an_error() -> None:
    def answer(connection: socket.socket, line: bytes) -> None:
        polite(connection, line)
        if line.startswith(b"PUB "):
            connection.sendall(b"-ERR 'Authorization Violation'\r\n")
            connection.shutdown(socket.SHUT_WR)

    with (
        scripted(answer) as target,
        PubSub(target) as load,
        pytest.raises(LoadError, match="connection 1 of 1: the server says -ERR 'Authorization Violation'"),
    ):
        load.run(10, timeout=10)


def test_a_run_can_be_stopped_from_another_thread(target: Target) -> None:
    with PubSub(target, subscriptions=[["bench"]], size=16) as load:

        def stop(published: int, delivered: int) -> None:
            load.stop()

        result = load.run(10**9, rate=50_000, timeout=30, progress=stop)
        assert result.published == result.delivered < 10**9
        assert load.run(100).delivered == 100


def test_payloads_are_published_in_turn(target: Target) -> None:
    with (
        socket.create_connection((target.host, target.port)) as other,
        other.makefile("rb") as lines,
        PubSub(target, subjects=["turn"], payloads=[b"aa", b"bb", b"cc"], size=2) as load,
    ):
        other.sendall(b'CONNECT {"verbose":false}\r\nSUB turn 1\r\nPING\r\n')
        while lines.readline() != b"PONG\r\n":
            pass
        load.run(4)
        got = [lines.readline() for _ in range(8)]
        assert got[1::2] == [b"aa\r\n", b"bb\r\n", b"cc\r\n", b"aa\r\n"]
    with pytest.raises(ValueError, match="payloads of another size"):
        PubSub(target, payloads=[b"aa"], size=3)


@pytest.mark.parametrize(
    "load",
    [
        {"publishers": 0},
        {"publishers": -1, "subscriptions": [["a"], ["b"]]},
        {"size": -1},
        {"subjects": ["a", "bb"]},
        {"subjects": []},
    ],
)
def test_a_load_that_makes_no_sense_is_refused(target: Target, load: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"a load of|of one length"):
        PubSub(target, **load)  # type: ignore[arg-type]


# Connections


def test_a_fleet_connects_and_exchanges(target: Target) -> None:
    with Fleet(target, 300, parallel=20) as fleet:
        assert fleet.count == 300
        assert fleet.exchange(100, [b"SUB a %d\r\nPING\r\n" % i for i in range(200)]) >= 0
    with pytest.raises(ValueError, match="at least 1"):
        Fleet(target, 0)


def test_no_server_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(LoadError, match=rf"127\.0\.0\.1:{port}, connection 1 of 3: Connection refused"):
        Fleet(Target("127.0.0.1", port), 3)


def test_a_server_that_says_nothing_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        silent = Target("127.0.0.1", listener.getsockname()[1])
        with pytest.raises(LoadError, match="timed out while connecting: 0 of 2"):
            Fleet(silent, 2, timeout=0.2)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("127.0.0.1", Target("127.0.0.1", 4222)),
        ("nats://h:1", Target("h", 1)),
        ("nats://u:p%40@h", Target("h", 4222, user="u", password="p@")),
        ("nats://secret@h", Target("h", 4222, token="secret")),
        ("tls://h", Target("h", 4222, tls=True)),
    ],
)
def test_urls(url: str, expected: Target) -> None:
    assert Target.parse(url) == expected


def test_another_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="speaks nats:// and tls://, not ws://"):
        Target.parse("ws://127.0.0.1:4222")


def test_credentials_are_sent() -> None:
    seen = []

    def answer(connection: socket.socket, line: bytes) -> None:
        polite(connection, line)
        if line.startswith(b"CONNECT "):
            seen.append(json.loads(line[8:]))

    with scripted(answer) as target, Fleet(Target(target.host, target.port, "u", "p"), 1):
        assert (seen[0]["user"], seen[0]["pass"], seen[0]["verbose"]) == ("u", "p", False)


# Times


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(("requesters", "responders", "window"), [(1, 1, 1), (3, 2, 16), (1, 4, 100)])
def test_every_request_is_answered(
    target: Target, requesters: int, responders: int, window: int, fresh: bool
) -> None:
    with Requests(
        target, requesters=requesters, responders=responders, window=window, size=100, fresh=fresh
    ) as load:
        for count in (3001, 1):
            result = load.run(count, timeout=30)
            assert result.requests == result.latency.count == count
            assert sum(sample.messages for sample in result.requesters) == count
            assert result.bytes == 100 * count


def test_no_responders_is_an_error(target: Target) -> None:
    with (
        Requests(target, responders=0, subject="nobody") as load,
        pytest.raises(LoadError, match="no responders"),
    ):
        load.run(10)


@pytest.mark.parametrize("interval", [0.0, 0.0001])
def test_every_probe_arrives(target: Target, interval: float) -> None:
    with Latency(target, size=64) as probe:
        for count in (500, 1):
            result = probe.run(count, interval=interval, timeout=30)
            assert result.messages == result.latency.count == count
            assert 0 < result.latency.min <= result.latency.percentile(50) <= result.latency.max


def test_a_delay_is_seen() -> None:
    delay = 0.005

    class Slow(Subscriber):
        def __call__(self, connection: socket.socket, line: bytes) -> None:
            if line.startswith(b"PUB "):
                time.sleep(delay)
            super().__call__(connection, line)

    with scripted(Slow()) as target, Latency(target) as probe:
        assert probe.run(5, interval=0.0, timeout=10).latency.min >= delay * 1e9


# The command


def test_the_command_prints_as_nats_bench_does(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    server = ["--server", f"nats://{target}", "--no-progress"]
    assert (
        bench_main(["pubsub", "cli.a", "--msgs", "2k", "--size", "16", "--pub", "2", "--sub", "2", *server])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" stats:")[0] for line in lines if "stats:" in line] == [
        "NATS Pub/Sub",
        " Pub",
        " Sub",
    ]
    assert all(STATS.search(line) for line in lines if "stats:" in line)
    assert [line for line in lines if "(2000 msgs)" in line and line.startswith("  [")]
    assert bench_main(["pub", "cli.b", "--msgs", "1000", *server]) == 0
    assert STATS.match(capsys.readouterr().out.removeprefix("Pub "))
    assert bench_main(["request", "cli.c", "--msgs", "100", "--window", "4", *server]) == 0
    assert re.search(
        r"^ P50 [\d.,]+ us \| P99 [\d.,]+ us \| P99.9 [\d.,]+ us$", capsys.readouterr().out, re.MULTILINE
    )


def test_the_command_says_in_a_line_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert bench_main(["pub", "s", "--server", f"127.0.0.1:{port}"]) == 1
    found = capsys.readouterr()
    assert found.out == ""
    assert re.fullmatch(
        r"gnats bench: server 127.0.0.1:\d+, connection 1 of 1: Connection refused\n", found.err
    )
