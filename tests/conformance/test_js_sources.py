"""Mirrors and sources store the same messages as nats-server's."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller, Message
from support.jetstream import API, comparable, config
from support.launch import Launch, Move, launcher
from support.servers import KINDS, REFERENCE, Kind, Server, selected, until

pytestmark = [pytest.mark.timeout(120), pytest.mark.waits]

Scenario = Callable[[Caller], Any]
PATIENCE = 60.0
"""Seconds that a server may take to notice a silent source: it looks every ten seconds."""


def create(caller: Caller, name: str, **members: Any) -> Any:
    answer = caller.request(f"{API}STREAM.CREATE.{name}", {"name": name, **members}).json
    assert "error" not in answer, answer
    return answer


def update(caller: Caller, name: str, **members: Any) -> Any:
    return caller.request(f"{API}STREAM.UPDATE.{name}", {"name": name, **members}).json


def publish(caller: Caller, subject: str, payload: bytes, **headers: str) -> None:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    answer = caller.request(subject, payload, f"NATS/1.0\r\n{lines}\r\n".encode() if lines else b"")
    assert "error" not in answer.json, answer


class Watch:
    """A consumer that shows each message when a stream stores it."""

    def __init__(self, caller: Caller, stream: str) -> None:
        self.caller = caller
        self.subject = f"watch.{stream}.{time.monotonic_ns()}"
        caller.subscribe(self.subject)
        consumer = {"deliver_subject": self.subject, "ack_policy": "none"}
        # Messages come with their own subjects: the sid separates this consumer's messages from others.
        self.sid = str(caller._sids)
        answer = caller.request(f"{API}CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": consumer})
        assert "error" not in answer.json, answer

    def wait(self, count: int) -> list[Message]:
        """Wait for the next `count` messages; return them."""
        found: list[Message] = []
        others: list[Message] = []
        while len(found) < count:
            message = self.caller.next()
            (found if message.sid == self.sid else others).append(message)
        self.caller._waiting[:0] = others
        return found


def info(caller: Caller, name: str) -> Any:
    return caller.request(f"{API}STREAM.INFO.{name}", {"deleted_details": True}).json


def messages(caller: Caller, name: str) -> dict[int, Any]:
    """Return the API's answers to STREAM.MSG.GET by sequence: messages, or errors."""
    state = info(caller, name)["state"]
    found = {}
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        answer = caller.request(f"{API}STREAM.MSG.GET.{name}", {"seq": seq}).json
        found[seq] = answer.get("message") or answer["error"]
    return found


def header(message: Any) -> bytes:
    from base64 import b64decode

    # The last field of Nats-Stream-Source is a random identity of the origin.
    return re.sub(
        rb"(Nats-Stream-Source: (?:[^ ]+ ){5})\w{8}\r", rb"\1identity\r", b64decode(message.get("hdrs", ""))
    )


def shown(caller: Caller, name: str) -> Any:
    """Return (subject, header, data) or the error by sequence, without times."""
    return {
        seq: (message["subject"], header(message), message.get("data")) if "subject" in message else message
        for seq, message in messages(caller, name).items()
    }


def origins(caller: Caller, name: str) -> Any:
    """Return the info of a stream's mirror and sources, without the time since the last message."""
    found = info(caller, name)
    said = [found[which] for which in ("mirror",) if which in found] + found.get("sources", [])
    for each in said:
        assert isinstance(each.pop("active"), int)
    return sorted(said, key=repr)


def state(caller: Caller, name: str) -> Any:
    return comparable(info(caller, name)["state"])


@pytest.fixture
def compare(kind: Kind, launch: Launch, tmp_path: Path) -> Callable[..., Any]:
    """Run a scenario on the server under test and on the reference; both results must be equal."""

    def compare(scenario: Scenario, more: str = "", user: str = "") -> Any:
        found = []
        for number, each in enumerate({kind, REFERENCE}):
            server = launch(config=config(tmp_path / f"js{number}", more=more), kind=each)
            with Caller(server, user) as caller:
                found.append(scenario(caller))
        assert found[0] == found[-1]
        return found[0]

    return compare


def fill(caller: Caller, count: int, prefix: str = "o", **headers: str) -> None:
    for number in range(1, count + 1):
        publish(caller, f"{prefix}.{number % 3}", b"%d" % number, **headers)


def test_a_mirror_has_the_sequences_times_and_gaps_of_its_origin(compare: Callable[..., Any]) -> None:
    def scenario(caller: Caller) -> Any:
        create(caller, "O", subjects=["o.>"])
        fill(caller, 10, Nats_Expected_Stream="O", A="b")
        for seq in (1, 4, 5, 10):
            assert caller.request(f"{API}STREAM.MSG.DELETE.O", {"seq": seq}).json["success"]
        create(caller, "M", mirror={"name": "O"})
        watch = Watch(caller, "M")
        watch.wait(6)
        publish(caller, "o.last", b"last", Nats_Msg_Id="id")
        watch.wait(1)
        caller.request(f"{API}STREAM.MSG.DELETE.O", {"seq": 11})
        publish(caller, "o.last", b"last", Nats_Msg_Id="another")
        watch.wait(1)
        origin, mirror = messages(caller, "O"), messages(caller, "M")
        for seq, message in mirror.items():
            if "subject" in message and seq in origin and "subject" in origin[seq]:
                assert message["time"] == origin[seq]["time"]
        return shown(caller, "M"), state(caller, "M"), origins(caller, "M")

    found, _, said = compare(scenario)
    assert said == [{"name": "O", "lag": 0}]
    assert [seq for seq, each in found.items() if isinstance(each, tuple)] == [2, 3, 6, 7, 8, 9, 11, 12]
    assert found[2][1] == b"NATS/1.0\r\nA: b\r\n\r\n"


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize(
    "mirror",
    [
        {"filter_subject": "o.1"},
        {"opt_start_seq": 5},
        {"opt_start_seq": 5, "filter_subject": "o.0"},
        {"subject_transforms": [{"src": "o.*", "dest": "t.{{wildcard(1)}}.x"}]},
        {"subject_transforms": [{"src": "o.1", "dest": "one"}, {"src": "o.2", "dest": "two"}]},
        {"subject_transforms": [{"src": "o.1", "dest": ""}]},
    ],
    ids=repr,
)
def test_a_mirror_takes_what_it_asks_for(compare: Callable[..., Any], mirror: Any, storage: str) -> None:
    def scenario(caller: Caller) -> Any:
        create(caller, "O", subjects=["o.>"], storage=storage)
        fill(caller, 9)
        create(caller, "M", mirror={"name": "O", **mirror}, storage=storage)
        watch = Watch(caller, "M")
        wanted = [seq for seq in range(mirror.get("opt_start_seq", 1), 10) if takes(mirror, f"o.{seq % 3}")]
        watch.wait(len(wanted))
        fill(caller, 3)
        watch.wait(sum(takes(mirror, f"o.{number}") for number in range(3)))
        return shown(caller, "M"), state(caller, "M"), origins(caller, "M")

    compare(scenario)


def takes(source: Any, subject: str) -> bool:
    filters = [source.get("filter_subject"), *(each["src"] for each in source.get("subject_transforms", ()))]
    filters = [each for each in filters if each]
    return not filters or any(re.fullmatch(each.replace("*", "[^.]*"), subject) for each in filters)


def test_a_mirror_can_begin_at_a_time(compare: Callable[..., Any]) -> None:
    def scenario(caller: Caller) -> Any:
        create(caller, "O", subjects=["o.>"])
        fill(caller, 9)
        start = messages(caller, "O")[6]["time"]
        create(caller, "M", mirror={"name": "O", "opt_start_time": start})
        Watch(caller, "M").wait(4)
        return shown(caller, "M"), state(caller, "M")

    assert list(compare(scenario)[0]) == [6, 7, 8, 9]


def test_a_stream_has_messages_of_several_sources(compare: Callable[..., Any]) -> None:
    def scenario(caller: Caller) -> Any:
        for name in "abc":
            create(caller, name.upper(), subjects=[f"{name}.>"])
            fill(caller, 6, name)
        create(
            caller,
            "S",
            subjects=["own"],
            sources=[
                {"name": "A", "filter_subject": "a.1"},
                {
                    "name": "A",
                    "subject_transforms": [{"src": "a.2", "dest": "changed.2"}, {"src": "a.0", "dest": ""}],
                },
                {"name": "B", "opt_start_seq": 4},
                {"name": "C"},
            ],
        )
        watch = Watch(caller, "S")
        watch.wait(2 + 4 + 3 + 6)
        publish(caller, "own", b"own", X="y")
        publish(caller, "c.new", b"new", Nats_Expected_Stream="C", Nats_Msg_Id="id", K="v")
        watch.wait(2)
        found = shown(caller, "S")
        # Only the messages of one source have an order.
        by_source: dict[Any, list[Any]] = {}
        for subject, head, data in found.values():
            source = re.search(rb"Nats-Stream-Source: ([^ ]+) \d+ ([^ ]+) ([^ ]+)", head)
            by_source.setdefault(source and source.groups(), []).append((subject, head, data))
        return by_source, list(found), comparable(origins(caller, "S"))

    by_source, seqs, _ = compare(scenario)
    assert seqs == list(range(1, 18))
    assert len(by_source) == 5
    assert by_source[b"C", b">", b">"][-1][1] == (
        b"NATS/1.0\r\nNats-Msg-Id: id\r\nK: v\r\nNats-Stream-Source: C 7 > > c.new identity\r\n\r\n"
    )


def test_a_source_of_a_source_and_a_mirror_of_a_mirror(compare: Callable[..., Any]) -> None:
    def scenario(caller: Caller) -> Any:
        create(caller, "O", subjects=["o.>"])
        fill(caller, 4)
        create(caller, "S1", sources=[{"name": "O"}])
        create(caller, "S2", sources=[{"name": "S1"}])
        create(caller, "M1", mirror={"name": "S2"})
        create(caller, "M2", mirror={"name": "M1"}, storage="memory")
        watch = Watch(caller, "M2")
        watch.wait(4)
        fill(caller, 2)
        watch.wait(2)
        return [(shown(caller, name), state(caller, name)) for name in ("S1", "S2", "M1")], shown(
            caller, "M2"
        )

    found, _ = compare(scenario)
    assert found[1][0][1][1].count(b"Nats-Stream-Source") == 1


def test_a_mirror_becomes_a_stream_of_its_own(compare: Callable[..., Any]) -> None:
    def scenario(caller: Caller) -> Any:
        create(caller, "O", subjects=["o.>"])
        fill(caller, 3)
        create(caller, "M", mirror={"name": "O"})
        watch = Watch(caller, "M")
        watch.wait(3)
        changed = update(caller, "M", mirror={"name": "other"})["error"]
        promoted = update(caller, "M", subjects=["m"])
        fill(caller, 2)
        publish(caller, "m", b"own")
        watch.wait(1)
        return changed, comparable(promoted["config"]), shown(caller, "M"), "mirror" in info(caller, "M")

    assert list(compare(scenario)[2]) == [1, 2, 3, 4]


def test_sources_come_and_go_with_updates(compare: Callable[..., Any]) -> None:
    def scenario(caller: Caller) -> Any:
        for name in "ab":
            create(caller, name.upper(), subjects=[f"{name}.>"])
            fill(caller, 3, name)
        create(caller, "S", sources=[{"name": "A"}])
        watch = Watch(caller, "S")
        watch.wait(3)
        answers = [update(caller, "S", sources=[{"name": "A"}, {"name": "B"}])]
        watch.wait(3)
        answers.append(update(caller, "S", sources=[{"name": "B"}]))
        fill(caller, 2, "a")
        fill(caller, 2, "b")
        watch.wait(2)
        answers.append(update(caller, "S", sources=[{"name": "B"}, {"name": "A"}]))
        watch.wait(2)
        return [comparable(each["config"]) for each in answers], shown(caller, "S"), origins(caller, "S")

    assert len(compare(scenario)[1]) == 10


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
@pytest.mark.parametrize("what", ["mirror", "source"])
def test_what_is_taken_from_a_queue_is_gone_there(
    compare: Callable[..., Any], retention: str, what: str
) -> None:
    def scenario(caller: Caller) -> Any:
        create(caller, "Q", subjects=["q.>"], retention=retention)
        if retention == "workqueue":
            fill(caller, 5, "q")
        create(
            caller, "T", **({"mirror": {"name": "Q"}} if what == "mirror" else {"sources": [{"name": "Q"}]})
        )
        watch = Watch(caller, "T")
        consumers = until(lambda: caller.request(f"{API}CONSUMER.LIST.Q").json["consumers"], PATIENCE)
        fill(caller, 5, "q")
        watch.wait(10 if retention == "workqueue" else 5)
        until(lambda: info(caller, "Q")["state"]["messages"] == 0, PATIENCE)
        consumer = consumers[0]["config"]
        consumer.pop("deliver_subject")
        return shown(caller, "T"), comparable(consumer), state(caller, "Q")

    _, consumer, _ = compare(scenario)
    assert ("ack_policy", "flow_control") in consumer


def a_queue_is_full(caller: Caller) -> Any:
    create(caller, "O", subjects=["o.>"])
    fill(caller, 6)
    create(
        caller,
        "Q",
        retention="workqueue",
        discard="new",
        max_msgs=2,
        sources=[{"name": "O"}],
        subjects=["q"],
    )
    durable = {"durable_name": "D", "ack_policy": "explicit"}
    caller.request(f"{API}CONSUMER.CREATE.Q.D", {"stream_name": "Q", "config": durable})
    found = []
    for _ in range(6):
        caller.ask(f"{API}CONSUMER.MSG.NEXT.Q.D", b'{"batch": 1, "expires": 50000000000}')
        message = caller.next()
        found.append((message.payload, re.sub(rb"\S+\r\n\r\n$", b"", message.header)))
        caller.request(message.reply, b"+ACK")
    return found, state(caller, "Q")


def an_origin_is_not_there(caller: Caller) -> Any:
    create(caller, "M", mirror={"name": "none"})
    create(caller, "S", sources=[{"name": "none"}])
    said = [
        until(lambda name=name: "error" in (found := origins(caller, name))[0] and found, PATIENCE)  # type: ignore[misc]
        for name in "MS"
    ]
    # Both find the origin once it exists.
    create(caller, "none", subjects=["n"])
    publish(caller, "n", b"x")
    watches = Watch(caller, "M"), Watch(caller, "S")
    for watch in watches:
        watch.wait(1)
    return said, origins(caller, "M"), origins(caller, "S"), shown(caller, "M"), shown(caller, "S")


def an_origin_is_made_again(caller: Caller) -> Any:
    create(caller, "O", subjects=["o.>"])
    fill(caller, 3)
    create(caller, "S", sources=[{"name": "O"}])
    watch = Watch(caller, "S")
    first = watch.wait(3)
    caller.request(f"{API}STREAM.DELETE.O")
    create(caller, "O", subjects=["o.>"])
    fill(caller, 2)
    again = watch.wait(2)
    identities = {message.header.split()[-1] for message in first}, {m.header.split()[-1] for m in again}
    assert len(identities[0]) == len(identities[1]) == 1
    assert identities[0] != identities[1]
    return shown(caller, "S"), origins(caller, "S")


WAITING: dict[str, Scenario] = {
    "full": a_queue_is_full,
    "missing": an_origin_is_not_there,
    "again": an_origin_is_made_again,
}
WAITERS = ", ".join(
    f"{name} {{ jetstream: on, users: [{{user: {name}, password: pw}}] }}" for name in WAITING
)


def carried_out(server: Server, name: str) -> Any:
    with Caller(server, name) as caller:
        return WAITING[name](caller)


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Kind], Any]]:
    """Run the scenarios that wait for timeouts on all servers at once; waiting(name, kind) is a result."""
    directory = tmp_path_factory.mktemp("waiting")
    with ExitStack() as stack, ThreadPoolExecutor(len(WAITING) * len(KINDS)) as threads:
        found = {}
        for kind in {REFERENCE, *selected()}:
            launch = stack.enter_context(launcher(kind, directory))
            server = launch(config=config(directory / kind.name, more=f"accounts {{ {WAITERS} }}"))
            for name in WAITING:
                found[name, kind] = threads.submit(carried_out, server, name)
        yield lambda name, kind: found[name, kind].result()


def test_a_queue_that_is_full_takes_the_rest_later(waiting: Callable[..., Any], kind: Kind) -> None:
    found, _ = waiting("full", kind)
    assert [payload for payload, _ in found] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert waiting("full", kind) == waiting("full", REFERENCE)


def test_an_origin_that_is_not_there_is_an_error(waiting: Callable[..., Any], kind: Kind) -> None:
    found = waiting("missing", kind)
    assert found[0][0][0]["error"]["err_code"] == 10059
    assert found == waiting("missing", REFERENCE)


def test_an_origin_that_is_made_again_is_taken_from_its_beginning(
    waiting: Callable[..., Any], kind: Kind
) -> None:
    found = waiting("again", kind)
    assert len(found[0]) == 5
    assert found == waiting("again", REFERENCE)


def test_a_mirror_answers_direct_gets_for_its_origin(compare: Callable[..., Any]) -> None:
    def scenario(caller: Caller) -> Any:
        create(caller, "O", subjects=["o.>"], allow_direct=True)
        fill(caller, 3)
        answer = create(caller, "M", mirror={"name": "O"}, mirror_direct=True)
        watch = Watch(caller, "M")
        watch.wait(3)
        caller.request(f"{API}STREAM.DELETE.O")
        got = [
            re.sub(rb"Nats-Time-Stamp: \S+", b"", caller.request(f"{API}DIRECT.GET.O{subject}", body).header)
            for subject, body in (("", {"seq": 2}), (".o.0", None))
        ]
        return got, answer["config"]["mirror_direct"]

    assert b"Nats-Stream: M" in compare(scenario)[0][0]


ACCOUNTS = """
    accounts {
        A {
            jetstream: enabled, users: [{user: a, password: pw}]
            exports: [
                {service: "$JS.API.CONSUMER.>"}, {service: "$JS.FC.>"}, {stream: "deliver.b.>"}
            ]
        }
        B {
            jetstream: enabled, users: [{user: b, password: pw}]
            imports: [
                {service: {account: A, subject: "$JS.API.CONSUMER.>"}, to: "a.api.CONSUMER.>"}
                {service: {account: A, subject: "$JS.FC.>"}}
                {stream: {account: A, subject: "deliver.b.>"}}
            ]
        }
    }
"""


def test_origins_in_another_account(kind: Kind, launch: Launch, tmp_path: Path) -> None:
    external = {"api": "a.api", "deliver": "deliver.b"}
    found = []
    for number, each in enumerate({kind, REFERENCE}):
        server = launch(config=config(tmp_path / f"js{number}", more=ACCOUNTS), kind=each)
        with Caller(server, "a") as a, Caller(server, "b") as b:
            create(a, "O", subjects=["o.>"])
            fill(a, 5, A="b")
            create(b, "M", mirror={"name": "O", "external": external})
            create(b, "S", sources=[{"name": "O", "external": external, "filter_subject": "o.1"}])
            watches = Watch(b, "M"), Watch(b, "S")
            for watch, count in zip(watches, (5, 2), strict=True):
                watch.wait(count)
            fill(a, 1, A="b")
            for watch in watches:
                watch.wait(1)
            found.append([(shown(b, name), state(b, name), origins(b, name)) for name in "MS"])
    assert found[0] == found[-1]
    assert found[0][0][0][1][0] == "o.1"


def test_a_durable_consumer_of_the_users(compare: Callable[..., Any]) -> None:
    def scenario(caller: Caller) -> Any:
        create(caller, "O", subjects=["o.>"])
        fill(caller, 6)
        durable = {
            "durable_name": "D",
            "deliver_subject": "to.s",
            "ack_policy": "flow_control",
            "filter_subject": "o.1",
            "flow_control": True,
            "idle_heartbeat": 1_000_000_000,
        }
        made = caller.request(f"{API}CONSUMER.CREATE.O.D", {"stream_name": "O", "config": durable}).json
        assert "error" not in made, made
        create(caller, "S", sources=[{"name": "O", "consumer": {"name": "D", "deliver_subject": "to.s"}}])
        watch = Watch(caller, "S")
        watch.wait(2)
        fill(caller, 1)
        watch.wait(1)
        return shown(caller, "S"), origins(caller, "S")

    assert len(compare(scenario)[0]) == 3


def test_a_restart_neither_loses_nor_repeats(launch: Launch, kind: Kind, tmp_path: Path) -> None:
    server = launch(config=config(tmp_path / "js"))
    with Caller(server) as caller:
        create(caller, "Z", subjects=["z.>"])
        fill(caller, 4, "z")
        create(caller, "M", mirror={"name": "Z"})
        create(caller, "S", sources=[{"name": "Z"}, {"name": "Z", "filter_subject": "z.1"}])
        Watch(caller, "M").wait(4)
        Watch(caller, "S").wait(6)
        before = shown(caller, "M"), shown(caller, "S")
    server.stop()
    server.start_again()
    with Caller(server) as caller:
        assert (shown(caller, "M"), shown(caller, "S")) == before
        publish(caller, "z.1", b"new")
        watches = Watch(caller, "M"), Watch(caller, "S")
        for watch, count in zip(watches, (5, 8), strict=True):
            watch.wait(count)
        mirror, sourced = shown(caller, "M"), shown(caller, "S")
        assert [list(each) for each in (mirror, sourced)] == [list(range(1, 6)), list(range(1, 9))]
        assert mirror == shown(caller, "Z")
        assert origins(caller, "M") == [{"name": "Z", "lag": 0}]
        assert {each[2] for each in list(sourced.values())[6:]} == {"bmV3"}


@pytest.mark.parametrize("sync", ["2m", "always"])
def test_a_kill_neither_loses_nor_repeats(launch: Launch, tmp_path: Path, sync: str) -> None:
    count = 400
    server = launch(config=config(tmp_path / "js", f"sync_interval: {sync}"))
    with Caller(server) as caller:
        create(caller, "O", subjects=["o.>"])
        create(caller, "M", mirror={"name": "O"})
        create(caller, "S", sources=[{"name": "O"}])
        watch = Watch(caller, "S")
        for number in range(count):
            caller.ask(f"o.{number}", b"%d" % number)
        watch.wait(count // 4)
        server.kill()
    server.start_again()
    with Caller(server) as caller:
        publish(caller, "o.end", b"end")
        last = info(caller, "O")["state"]["last_seq"]
        for name in ("M", "S"):
            Watch(caller, name).wait(last)
        assert shown(caller, "M") == shown(caller, "O")
        sourced = [re.findall(rb"Source: O (\d+) ", head)[0] for _, head, _ in shown(caller, "S").values()]
        assert [int(seq) for seq in sourced] == list(range(1, last + 1))


def test_what_was_purged_does_not_come_again(move: Move) -> None:
    def purge(caller: Caller) -> None:
        create(caller, "O", subjects=["o.>"])
        fill(caller, 5)
        create(caller, "S", sources=[{"name": "O"}])
        Watch(caller, "S").wait(5)
        assert caller.request(f"{API}STREAM.PURGE.S").json["purged"] == 5

    _, second = move(purge)
    with Caller(second) as caller:
        watch = Watch(caller, "S")
        publish(caller, "o.new", b"new")
        (message,) = watch.wait(1)
        assert message.payload == b"new"
        assert b"Nats-Stream-Source: O 6 > > o.new " in message.header
        assert list(shown(caller, "S")) == [6]


def test_who_guesses_where_messages_go_harms_nothing(launch: Launch, kind: Kind, tmp_path: Path) -> None:
    server = launch(config=config(tmp_path / "js"))
    with Caller(server) as caller:
        create(caller, "O", subjects=["o.>"])
        caller.subscribe("$JS.M.>")
        caller.subscribe("$JS.S.>")
        create(caller, "M", mirror={"name": "O"})
        create(caller, "S", sources=[{"name": "O"}])
        # Heartbeats reveal the delivery subjects.
        subjects: set[str] = set()
        while len(subjects) < 2:
            subjects.add(caller.next().subject)
        replies = [
            "",
            "x",
            "$JS.ACK.",
            "$JS.ACK.O.x.1.1.1.1.1",
            "$JS.ACK.O.1.1.1",
            "$JS.ACK." + "x." * 40 + "x",
        ]
        headers = [
            b"",
            b"NATS/1.0\r\n\r\n",
            b"NATS/1.0 100 \r\n\r\n",
            b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: x\r\n\r\n",
            b"NATS/1.0 100 Idle Heartbeat\r\nNats-Consumer-Stalled: nobody\r\n\r\n",
        ]
        for subject in sorted(subjects):
            for reply in replies:
                for head in headers:
                    for payload in (b"", b"x"):
                        caller.publish(subject, payload, reply, head)
        caller.fence()
        watches = Watch(caller, "M"), Watch(caller, "S")
        fill(caller, 3)
        for watch in watches:
            assert [message.payload for message in watch.wait(3)] == [b"1", b"2", b"3"]
        assert list(shown(caller, "M")) == list(shown(caller, "S")) == [1, 2, 3]
