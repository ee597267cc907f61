"""Every field of every request to JetStream at the ends of its range: the same answers as the reference.

An accepted stream or consumer works, also after a restart; a refused one leaves nothing on the disk; no
answer contains the path of the store directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from support.caller import Caller, Message
from support.ends import TOKENS, leaves, put, values
from support.jetstream import API, comparable, comparable_message
from support.launch import Launch
from support.servers import REFERENCE, Kind, Server, until

from gnats.go.json import Struct
from gnats.jetstream.api import consumer_requests, stream_requests
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig

from .differences import JETSTREAM_OTHERWISE, JETSTREAM_WORDS

pytestmark = pytest.mark.timeout(300)

Path_ = tuple[str, ...]

CONFIG = "server_name: srv, jetstream { store_dir: js, max_mem: 100M, max_file: 1G }"
PARTS = 6
"""Number of tests among which the fields of a schema are divided."""
_SETTLING = ("mirror", "sources")
"""Members of a stream's state that depend on the progress of its mirror or sources."""
_STATES = (f"{API}CONSUMER.LIST.", f"{API}CONSUMER.INFO.")
NAMES_OF_ITS_OWN = re.compile(rb"(Nats-Pin-Id|Nats-Stream-Identity): [^\r]*")
SHORT = 60 * 10**9
"""An inactive threshold below it may be over before the end of the test."""


class Two:
    """The reference and the server under test, which get the same requests; `different` notes differences."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers = servers
        self.callers: list[Caller] = []
        self.different: list[str] = []
        self.connect()

    def connect(self) -> None:
        self.close()
        with ExitStack() as stack:
            self.callers = [stack.enter_context(Caller(server)) for server in self.servers]
            stack.pop_all()  # all are connected: close() closes them

    def close(self) -> None:
        for caller in self.callers:
            caller.connection.close()

    def restart(self) -> None:
        self.close()
        for server in self.servers:
            server.stop()
            server.start_again()
        self.connect()

    def ask(self, subject: str, body: object = None, header: bytes = b"", differs: bool = False) -> Message:
        """Return the answer of the server under test; with `differs`, compare only whether it is an error."""
        answers = [caller.request(subject, body, header) for caller in self.callers]
        if subject.startswith(_STATES) and shown(answers[0]) != shown(answers[1]):
            self.wait_for_consumers()
            answers = [caller.request(subject, body, header) for caller in self.callers]
        for server, answer in zip(self.servers, answers, strict=True):
            assert str(server.directory).encode() not in answer.payload, (subject, body)
        first, second = (shown(answer, outline=differs) for answer in answers)
        if second != first and not ended_meanwhile(answers[0]):
            self.note(first, second, subject, body, header)
        return answers[-1]

    def wait_for_consumers(self) -> None:
        """Wait until both servers count the same messages for their consumers: the reference does it late."""
        infos = f"{API}CONSUMER.LIST.S"
        with suppress(TimeoutError):
            until(
                lambda: len({str(shown(caller.request(infos))) for caller in self.callers}) == 1, patience=2
            )

    def tell(self, stream: str, subject: str, payload: bytes) -> None:
        """Publish the first message of a stream without acknowledgements, and wait until it is stored."""
        for caller in self.callers:
            caller.publish(subject, payload)
            until(lambda caller=caller: holds_one(caller, stream))  # type: ignore[misc]

    def note(self, first: Any, second: Any, *request: Any) -> None:
        """Note a difference; the fixture fails with all of them at the end of the test."""
        if isinstance(first, tuple) and isinstance(first[1], list) and isinstance(second[1], list):
            only = [
                [each for each in a if each not in b]
                for a, b in ((first[1], second[1]), (second[1], first[1]))
            ]
            first, second = (*first[:1], *only[:1]), (*second[:1], *only[1:])
        self.different.append(f"{request!s:.200}\n  reference {first!s:.400}\n  gnats     {second!s:.400}")

    def is_accepted(self, subject: str, body: bytes, differs: bool = False) -> bool:
        return "error" not in self.ask(subject, body, differs=differs).json

    def pull(self, consumer: str, body: bytes) -> None:
        """Send a pull request to both; compare the messages or statuses, and acknowledge messages."""
        found = []
        for caller in self.callers:
            inbox = caller.ask(f"{API}CONSUMER.MSG.NEXT.{consumer}", body)
            message = next_of(caller, inbox)
            header = NAMES_OF_ITS_OWN.sub(rb"\1", message.header)
            found.append((header, message.payload, ".".join(message.reply.split(".")[:7])))
            if message.reply.startswith("$JS.ACK."):
                caller.request(message.reply, b"+ACK")
        if found[1] != found[0]:
            self.note(found[0], found[1], consumer, body)


def ended_meanwhile(answer: Message) -> bool:
    """Return True if an inactive threshold of nanoseconds was over while the reference made the consumer."""
    return b'"description":"consumer closed"' in answer.payload


def holds_one(caller: Caller, stream: str) -> bool:
    return bool(caller.request(f"{API}STREAM.INFO.{stream}").json["state"]["messages"] == 1)


def next_of(caller: Caller, inbox: str) -> Message:
    """Return the next answer to a pull request: a status on the inbox, or a message with its own subject."""
    while True:
        message = caller.next()
        if message.subject == inbox or not message.subject.startswith("_INBOX."):
            return message


def shown(answer: Message, *, outline: bool = False) -> Any:
    """Return an answer without members that settle later; with `outline`, only whether it is an error."""
    header, payload = comparable_message(answer)
    header = NAMES_OF_ITS_OWN.sub(rb"\1", header)
    if outline:
        return "error" in answer.json
    if isinstance(payload, list):
        payload = [(name, without_pins(value)) for name, value in payload if name not in _SETTLING]
    return header, payload


def without_pins(value: Any) -> Any:
    if isinstance(value, list):
        return [without_pins(each) for each in value]
    if isinstance(value, tuple) and value and value[0] == "pinned_client_id":
        return value[:1]
    return value


@pytest.fixture
def two(kind: Kind, launch: Launch) -> Iterator[Two]:
    if kind.is_reference:
        pytest.skip("compares another server with the reference")
    two = Two([launch(config=CONFIG, kind=REFERENCE), launch(config=CONFIG)])
    yield two
    two.close()
    assert not two.different, "\n".join(two.different)


def fields(schema: Struct, part: int) -> Iterator[tuple[Path_, bytes]]:
    """Yield (path, value) to try for every PARTS-th field of a schema, from number `part`."""
    for path, kind in list(leaves(schema))[part::PARTS]:
        for raw in values(kind):
            yield path, raw


def is_among(table: tuple[tuple[Path_, tuple[bytes, ...] | None], ...], path: Path_, raw: bytes) -> bool:
    return any(path[-len(each) :] == each and (raws is None or raw in raws) for each, raws in table)


def differs(path: Path_, raw: bytes) -> bool:
    """Return True where both servers must accept or both refuse, in different words."""
    return is_among(JETSTREAM_WORDS, path, raw)


def is_otherwise(path: Path_, raw: bytes) -> bool:
    """Return True where gnats answers otherwise on purpose."""
    return is_among(JETSTREAM_OTHERWISE, path, raw)


def stream_base(name: str, path: Path_) -> dict[str, Any]:
    subjects = [f"{name}.>"]
    match path[0]:
        case "mirror":
            return {"name": name, "mirror": {"name": "ORIGIN"}}
        case "sources":
            return {"name": name, "subjects": subjects, "sources": [{"name": "ORIGIN"}]}
        case "republish":
            return {
                "name": name,
                "subjects": subjects,
                "republish": {"src": subjects[0], "dest": f"r{name}.>"},
            }
        case "subject_transform":
            transform = {"src": subjects[0], "dest": f"t{name}.>"}
            return {"name": name, "subjects": subjects, "subject_transform": transform}
    return {"name": name, "subjects": subjects}


@pytest.mark.parametrize("part", range(PARTS))
def test_streams(two: Two, part: int) -> None:
    accepted: dict[str, bool] = {}
    for number, (path, raw) in enumerate(fields(StreamConfig.schema(), part)):
        name = f"E{number}"
        if is_otherwise(("STREAM", *path), raw):
            continue
        body = put(stream_base(name, path), path, raw)
        if not two.is_accepted(f"{API}STREAM.CREATE.{name}", body, differs(path, raw)):
            continue
        if path[0] in ("mirror", "sources", "subjects", "subject_transform"):
            accepted[name] = False
            continue
        accepted[name] = (path, raw) != (("no_ack",), b"true")
        if accepted[name]:
            two.ask(f"{name}.a", b"hello")
        else:
            two.tell(name, f"{name}.a", b"hello")
        consumer = {"stream_name": name, "config": {"durable_name": "C", "ack_policy": "explicit"}}
        two.ask(f"{API}CONSUMER.CREATE.{name}.C", consumer)
        two.pull(f"{name}.C", b'{"batch":1,"no_wait":true}')
        two.ask(f"{API}STREAM.INFO.{name}", differs=differs(path, raw))
        if path[0] in ("subjects", "republish"):  # later streams would overlap with this one
            two.ask(f"{API}STREAM.DELETE.{name}")
            del accepted[name]
    assert accepted
    found = two.ask(f"{API}STREAM.NAMES").json["streams"]
    assert found == sorted(accepted)
    assert on_disk(two.servers[-1]) == {name for name in accepted if is_stored(two, name)}
    two.restart()
    kept = [name for name in found if is_stored(two, name)]
    assert two.ask(f"{API}STREAM.NAMES").json["streams"] == kept
    for name in kept:
        if accepted[name]:
            two.ask(f"{name}.b", b"again")


def is_stored(two: Two, name: str) -> bool:
    config = two.callers[-1].request(f"{API}STREAM.INFO.{name}").json.get("config")
    return bool(config and config["storage"] == "file")


def on_disk(server: Server) -> set[str]:
    return {path.name for path in (server.directory / "js" / "jetstream" / "$G" / "streams").iterdir()}


def consumer_base(name: str, path: Path_, push: bool) -> dict[str, Any]:
    base: dict[str, Any] = {"name": name, "durable_name": name, "ack_policy": "explicit"}
    if push:
        base["deliver_subject"] = f"d{name}"
    match path[0]:
        case "priority_groups":
            base |= {"priority_policy": "overflow"}
        case "priority_policy":
            base |= {"priority_groups": ["a"]}
        case "priority_timeout":
            base |= {"priority_groups": ["a"], "priority_policy": "pinned_client"}
        case "opt_start_seq":
            base |= {"deliver_policy": "by_start_sequence"}
        case "opt_start_time":
            base |= {"deliver_policy": "by_start_time"}
        case "backoff":
            base |= {"max_deliver": 10}
    return base


@pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])
@pytest.mark.parametrize("part", range(PARTS))
def test_consumers(two: Two, part: int, push: bool) -> None:
    two.ask(f"{API}STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    two.ask("s.a", b"hello")
    accepted = []
    for number, (path, raw) in enumerate(fields(ConsumerConfig.schema(), part)):
        name = f"E{number}"
        if is_otherwise(path, raw):
            continue
        body = put({"stream_name": "S", "config": consumer_base(name, path, push)}, ("config", *path), raw)
        refused = not two.is_accepted(f"{API}CONSUMER.CREATE.S.{name}", body, differs(path, raw))
        if refused:
            two.ask(f"{API}CONSUMER.DELETE.S.{name}")
            continue
        if path[0] == "inactive_threshold" and raw.isdigit() and 0 < int(raw) < SHORT:
            for caller in two.callers:  # on a quiet machine it has ended already, on one server or on both
                caller.request(f"{API}CONSUMER.DELETE.S.{name}")
            continue
        config = two.ask(f"{API}CONSUMER.INFO.S.{name}", differs=differs(path, raw)).json.get("config")
        if config is None:  # the value gave it another name
            continue
        accepted.append(name)
        if not config.get("deliver_subject") and "pause_until" not in config and path[0] != "priority_groups":
            two.pull(f"S.{name}", b'{"batch":1,"no_wait":true,"group":"a"}')
            two.ask(f"{API}CONSUMER.INFO.S.{name}", differs=differs(path, raw))
        passes = 0 < config.get("inactive_threshold", 0) < SHORT or not config.get("durable_name")
        if passes or config.get("direct"):
            two.ask(f"{API}CONSUMER.DELETE.S.{name}")
            accepted.remove(name)
    assert accepted or part
    names = two.ask(f"{API}CONSUMER.NAMES.S").json["consumers"]
    assert set(names) == set(accepted)
    obs = two.servers[-1].directory / "js" / "jetstream" / "$G" / "streams" / "S" / "obs"
    stored = {path.name for path in obs.iterdir()}
    assert stored <= set(names)
    two.restart()
    two.ask(f"{API}CONSUMER.NAMES.S")
    for name in two.callers[-1].request(f"{API}CONSUMER.NAMES.S").json["consumers"]:
        two.callers[-1].request(f"{API}CONSUMER.INFO.S.{name}")
    assert two.ask("s.b", b"again").json["seq"] == 2


REQUESTS: dict[str, tuple[Struct, dict[str, Any]]] = {
    "STREAM.NAMES": ({"offset": "int", "subject": "string"}, {}),
    "STREAM.LIST": ({"offset": "int", "subject": "string"}, {}),
    "STREAM.INFO.S": (
        {"offset": "int", "deleted_details": "bool", "subjects_filter": "string"},
        {"subjects_filter": ">"},
    ),
    "STREAM.MSG.GET.S": (stream_requests.GET_REQUEST, {}),
    "STREAM.MSG.DELETE.S": (stream_requests.DELETE_REQUEST, {}),
    "STREAM.PURGE.S": (stream_requests.PURGE_REQUEST, {}),
    "STREAM.SNAPSHOT.S": (stream_requests.SNAPSHOT_REQUEST, {"deliver_subject": "to.nobody"}),
    "DIRECT.GET.S": (stream_requests.GET_REQUEST, {}),
    "CONSUMER.NAMES.S": ({"offset": "int"}, {}),
    "CONSUMER.LIST.S": ({"offset": "int"}, {}),
    "CONSUMER.PAUSE.S.C": (consumer_requests.PAUSE_REQUEST, {}),
    "CONSUMER.UNPIN.S.C": ({"group": "string"}, {}),
    "CONSUMER.RESET.S.C": ({"seq": "uint64"}, {}),
}


def prepare(two: Two) -> None:
    config = {"name": "S", "subjects": ["s.>"], "allow_direct": True, "allow_msg_ttl": True}
    two.ask(f"{API}STREAM.CREATE.S", config)
    consumer = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    two.ask(f"{API}CONSUMER.CREATE.S.C", consumer)
    for number in range(20):
        two.ask(f"s.{number % 3}", b"x")


def several(verb: str, path: Path_, raw: bytes) -> bool:
    """Return True for direct gets that may have several answers, or none."""
    return verb.startswith("DIRECT") and path[0] in ("batch", "multi_last", "up_to_seq", "up_to_time")


@pytest.mark.parametrize("verb", REQUESTS)
def test_requests(two: Two, verb: str) -> None:
    prepare(two)
    schema, base = REQUESTS[verb]
    for path, kind in leaves(schema):
        for raw in values(kind):
            if several(verb, path, raw) or ("SNAPSHOT" in verb and takes_a_snapshot(path, raw)):
                continue
            if not is_otherwise((verb, *path), raw):
                two.ask(API + verb, put(base, path, raw), differs=differs(path, raw))
    for raw in (b"\0", b"\xff", b"{", b"[]", b"0", b"x" * 100_000, b"[" * 500, b"9" * 5000):
        two.ask(API + verb, raw)
    assert two.ask("s.0", b"still here").json["stream"] == "S"
    two.restart()
    two.ask(f"{API}STREAM.INFO.S")


def takes_a_snapshot(path: Path_, raw: bytes) -> bool:
    """Return True if the request begins a snapshot, which would overlap with the next one."""
    return path[0] != "deliver_subject" or raw in (b"null", b'"x"')


@pytest.mark.parametrize("field", [
    ("expires", "duration"), ("batch", "int"), ("max_bytes", "int"), ("no_wait", "bool"),
    ("idle_heartbeat", "duration"), ("group", "string"), ("min_pending", "int64"),
    ("min_ack_pending", "int64"), ("id", "string"), ("priority", "int"),
], ids=lambda field: field[0])  # fmt: skip
def test_pull_requests(two: Two, field: tuple[str, str]) -> None:
    two.ask(f"{API}STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    two.ask("s.a", b"x")
    name, kind = field
    for number, raw in enumerate(values(kind)):
        if is_otherwise(("NEXT", name), raw):
            continue
        config = {"durable_name": f"C{number}", "ack_policy": "explicit"}
        two.ask(f"{API}CONSUMER.CREATE.S.C{number}", {"stream_name": "S", "config": config})
        body = put({"batch": 1, "no_wait": True} if name != "no_wait" else {"batch": 1}, (name,), raw)
        two.pull(f"S.C{number}", body)
    assert two.ask("s.b", b"still here").json["seq"] == 2


HEADERS = (
    "Nats-Msg-Id", "Nats-Expected-Stream", "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Msg-Id",
    "Nats-Expected-Last-Subject-Sequence", "Nats-Rollup", "Nats-TTL", "Nats-Batch-Id", "Nats-Batch-Sequence",
    "Nats-Batch-Commit", "Nats-Required-Api-Level", "Nats-Incr", "Nats-Schedule", "Nats-Schedule-TTL",
    "Nats-Expected-Last-Subject-Sequence-Subject", "Nats-Marker-Reason",
)  # fmt: skip
HEADER_VALUES = (
    b"", b"0", b"-1", b"1", b"2147483648", b"4294967296", b"9223372036854775807", b"9223372036854775808",
    b"18446744073709551615", b"18446744073709551616", b"99999999999999999999999", b"1e400", b"\0", b"\xff",
    b" ", b"never", b"-1s", b"1s", b"9223372036s", b"9999999999999h", b"sub", b"all", b"x" * 255,
    b"y" * 70_000,
)  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize(
    "features", [{}, {"allow_msg_ttl": True, "allow_rollup_hdrs": True}], ids=["", "all"]
)
def test_headers(two: Two, name: str, features: dict[str, bool]) -> None:
    two.ask(f"{API}STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **features})
    for value in HEADER_VALUES:
        header = b"NATS/1.0\r\n%s: %s\r\n\r\n" % (name.encode(), value)
        two.ask("s.a", b"x", header, differs=differs((name,), value))
    two.ask("s.b", b"still here")
    two.restart()
    two.ask("s.b", b"and again")


def test_names(two: Two) -> None:
    """Unusual tokens as names of streams and consumers."""
    for number, name in enumerate(TOKENS):
        config = {"name": name, "subjects": [f"n{number}"]}
        two.ask(f"{API}STREAM.CREATE.{name}", config)
        two.ask(f"{API}STREAM.INFO.{name}")
        two.ask(f"{API}STREAM.RESTORE.{name}", {"config": config | {"storage": "x"}})
    two.ask(f"{API}STREAM.CREATE.S", {"name": "S"})
    for name in TOKENS:
        config = {"name": name, "durable_name": name, "ack_policy": "explicit"}
        two.ask(f"{API}CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
        two.ask(f"{API}CONSUMER.INFO.S.{name}")
    before = [comparable(caller.request(f"{API}STREAM.NAMES").json) for caller in two.callers]
    two.restart()
    assert before == [comparable(caller.request(f"{API}STREAM.NAMES").json) for caller in two.callers]
    two.ask(f"{API}CONSUMER.NAMES.S")
