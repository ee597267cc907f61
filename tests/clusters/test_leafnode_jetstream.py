"""Streams on either side of a leaf node, and their clients on the other: pairs of all kinds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from support.caller import Message
from support.natspy import joined
from support.servers import TIMEOUT, until
from support.wire import header

from .domains import Domains, answers, api, domains
from .members import Client, few_pairs, named

pytestmark = pytest.mark.timeout(120)

NAMES = ("hub", "leaf")
MARKED = header("A: b")
MANY = 200
_streams = itertools.count(1)


@pytest.fixture(scope="module", params=few_pairs(), ids=named)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Domains]:
    """A hub and a leaf with JetStream and a domain each, which the tests of this module share."""
    with domains(tmp_path_factory.mktemp("js"), request.param) as pair:
        yield pair


class Across:
    """A stream `name` at one server, for subjects below it; `there` a client there, `near` one at the other.

    `api` is the prefix of the stream's server's API, for both.
    """

    def __init__(self, pair: Domains, ends: tuple[int, int], stack: ExitStack, **config: Any) -> None:
        self.pair = pair
        self.domain, self.own = NAMES[ends[1]], NAMES[ends[0]]
        self.api = f"$JS.{self.domain}.API"
        self.near = stack.enter_context(Client(pair[ends[0]]))
        self.there = stack.enter_context(Client(pair[ends[1]]))
        self.name = f"S{next(_streams)}"
        until(lambda: answers(self.near, f"{self.api}.INFO"))
        api(
            self.near,
            f"{self.api}.STREAM.CREATE.{self.name}",
            {"name": self.name, "subjects": [f"{self.name}.>"], "allow_direct": True} | config,
        )

    def ask(self, what: str, body: object = None) -> Any:
        """Send a request about the stream from the other server; return the answer to it."""
        return api(self.near, f"{self.api}.{what.replace('*', self.name)}", body)

    def publish(self, count: int, *, size: int = 1) -> None:
        """Publish messages 1 to `count` from the stream's own server: their subjects are their sequences."""
        for n in range(1, count + 1):
            answer = self.there.request(f"{self.name}.{n}", b"%d" % n * size, MARKED).json
            assert answer["seq"] == n

    def reachable(self) -> None:
        """Wait until publishers at the other server reach the stream."""
        until(lambda: answers(self.near, f"{self.name}.hello"))
        self.ask("STREAM.PURGE.*")

    def consumer(self, name: str, **config: Any) -> None:
        body = {"stream_name": self.name, "config": {"name": name, "durable_name": name} | config}
        self.ask(f"CONSUMER.CREATE.*.{name}", body)

    def consumer_info(self, name: str) -> Any:
        return self.ask(f"CONSUMER.INFO.*.{name}")

    def next(self, name: str, **request: Any) -> str:
        """Request messages of a pull consumer; return the inbox."""
        body = json.dumps(request).encode()
        return self.near.ask(f"{self.api}.CONSUMER.MSG.NEXT.{self.name}.{name}", body)


@pytest.fixture
def across(both: Domains, ends: tuple[int, int]) -> Iterator[Across]:
    """A stream at one server, in memory, and a client at each."""
    with ExitStack() as stack:
        yield Across(both, ends, stack, storage="memory")


# -- the API ------------------------------------------------------------------------------------------


def test_a_stream_is_made_where_the_domain_is(across: Across) -> None:
    info = across.ask("STREAM.INFO.*")
    assert info["domain"] == across.domain
    assert across.name in across.ask("STREAM.NAMES")["streams"]
    for client, has in (across.there, True), (across.near, False):
        streams: Any = api(client, "$JS.API.STREAM.NAMES")["streams"]
        assert (across.name in (streams or ())) == has


@pytest.mark.parametrize("prefix", ["$JS.API", "$JS.OWN.API"])
def test_a_stream_of_the_same_name_is_another(across: Across, prefix: str) -> None:
    """Requests without a domain, and with one's own, stay."""
    own = prefix.replace("OWN", across.own)
    near, name = across.near, across.name
    subject = f"x.{name}"
    config = {"name": name, "storage": "memory", "subjects": [subject]}
    api(near, f"{own}.STREAM.CREATE.{name}", config)
    info: Any = api(near, f"{own}.STREAM.INFO.{name}")
    assert (info["domain"], info["config"]["subjects"]) == (across.own, [subject])
    assert across.ask("STREAM.INFO.*")["config"]["subjects"] == [f"{name}.>"]
    assert api(near, f"{own}.STREAM.DELETE.{name}")["success"]
    assert across.ask("STREAM.INFO.*")["domain"] == across.domain


def test_the_account_of_each_domain(across: Across) -> None:
    assert api(across.near, "$JS.API.INFO")["domain"] == across.own
    assert across.ask("INFO")["domain"] == across.domain


def test_an_account_without_streams(both: Domains, ends: tuple[int, int]) -> None:
    with Client(both[ends[0]], "b") as client:
        assert client.request(f"$JS.{NAMES[ends[1]]}.API.INFO").status == "503"
        for subject in "INFO", "STREAM.NAMES":
            assert client.request(f"$JS.API.{subject}").json["error"]["err_code"] == 10039


def test_errors_come_back(across: Across) -> None:
    answer = across.near.request(f"{across.api}.STREAM.INFO.NONE").json
    assert answer["error"]["err_code"] == 10059


def test_messages_are_read_through_the_api(across: Across) -> None:
    across.publish(3)
    found = across.ask("STREAM.MSG.GET.*", {"seq": 2})["message"]
    assert (found["subject"], found["seq"]) == (f"{across.name}.2", 2)
    for subject, body in (
        ("DIRECT.GET.*", {"seq": 2}),
        ("DIRECT.GET.*", {"last_by_subj": f"{across.name}.2"}),
        (f"DIRECT.GET.*.{across.name}.2", None),
    ):
        answer = across.near.request(f"{across.api}.{subject.replace('*', across.name)}", body)
        assert answer.payload == b"2"
        assert answer.headers["A"] == "b"
        assert answer.headers["Nats-Subject"] == f"{across.name}.2"
    inbox = across.near.ask(f"{across.api}.DIRECT.GET.{across.name}", b'{"seq": 1, "batch": 3}')
    assert [across.near.next_on(inbox).payload for _ in range(3)] == [b"1", b"2", b"3"]
    assert across.near.next_on(inbox).status == "204 EOB"


def test_advisories_tell_the_domain(across: Across) -> None:
    near = across.near
    near.subscribe(f"$JS.EVENT.ADVISORY.STREAM.UPDATED.{across.name}")
    near.reachable_from(across.there)
    config = across.ask("STREAM.INFO.*")["config"] | {"description": "other"}
    across.ask("STREAM.UPDATE.*", config)
    advisory = near.next_on(f"$JS.EVENT.ADVISORY.STREAM.UPDATED.{across.name}").json
    assert (advisory["stream"], advisory["domain"]) == (across.name, across.domain)


# -- publishers ---------------------------------------------------------------------------------------


def test_publishers_are_acknowledged(across: Across) -> None:
    across.reachable()
    first = across.ask("STREAM.INFO.*")["state"]["first_seq"]
    inboxes = [across.near.ask(f"{across.name}.{n}", b"%d" % n, MARKED) for n in range(MANY)]
    acks = [across.near.next_on(inbox).json for inbox in inboxes]
    assert acks == [
        {"stream": across.name, "domain": across.domain, "seq": n} for n in range(first, first + MANY)
    ]
    assert across.ask("STREAM.INFO.*")["state"]["messages"] == MANY
    found = across.near.request(f"{across.api}.DIRECT.GET.{across.name}", {"seq": first + 7})
    assert (found.payload, found.headers["A"]) == (b"7", "b")


def test_checks_of_publishers_are_made_there(across: Across) -> None:
    across.reachable()
    subject, near = f"{across.name}.x", across.near
    once = header("Nats-Msg-Id: one")
    assert "duplicate" not in near.request(subject, b"x", once).json
    assert near.request(subject, b"x", once).json["duplicate"]
    answer = near.request(subject, b"x", header("Nats-Expected-Stream: OTHER")).json
    assert answer["error"]["err_code"] == 10060


def test_streams_on_both_sides_store_a_message(across: Across) -> None:
    """Both have its subject: the requester hears from both."""
    across.reachable()
    name, near = across.name, across.near
    api(near, f"$JS.API.STREAM.CREATE.{name}", {"name": name, "storage": "memory", "subjects": [f"{name}.y"]})
    inbox = near.ask(f"{name}.y")
    assert {near.next_on(inbox).json["domain"] for _ in range(2)} == set(NAMES)
    api(near, f"$JS.API.STREAM.DELETE.{name}")


# -- consumers ----------------------------------------------------------------------------------------


def pulled(across: Across, count: int) -> list[Message]:
    """Return the next messages of the stream that come."""
    found: list[Message] = []
    skipped = across.near
    while len(found) < count:
        message = skipped.next()
        if message.subject.startswith(f"{across.name}."):
            found.append(message)
    return found


def test_a_pull_consumer(across: Across) -> None:
    across.publish(10)
    across.consumer("C", ack_policy="explicit")
    across.next("C", batch=6)
    messages = pulled(across, 6)
    assert [(m.subject, m.payload, m.header) for m in messages] == [
        (f"{across.name}.{n}", b"%d" % n, MARKED) for n in range(1, 7)
    ]
    assert [m.ack[:3] for m in messages] == [(1, n, n) for n in range(1, 7)]
    for message in messages[:5]:
        assert across.near.request(message.reply, b"+ACK").payload == b""
    info = across.consumer_info("C")
    assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"], info["num_pending"]) == (5, 1, 4)
    across.near.publish(messages[5].reply, b"-NAK")
    across.next("C", batch=5)
    messages = pulled(across, 5)
    assert sorted(m.ack[:2] for m in messages) == [(1, 7), (1, 8), (1, 9), (1, 10), (2, 6)]
    for message in messages:
        across.near.request(message.reply, b"+ACK")
    assert across.consumer_info("C")["ack_floor"]["stream_seq"] == 10


def test_an_acknowledgement_that_asks_for_the_next(across: Across) -> None:
    across.publish(5)
    across.consumer("C", ack_policy="explicit")
    across.next("C", batch=1)
    (message,) = pulled(across, 1)
    for n in range(2, 6):
        across.near.ask(message.reply, b"+NXT")
        (message,) = pulled(across, 1)
        assert message.payload == b"%d" % n
    assert across.consumer_info("C")["ack_floor"]["stream_seq"] == 4


def test_what_a_pull_consumer_says(across: Across) -> None:
    across.consumer("C", ack_policy="none")
    inbox = across.next("C", batch=1, no_wait=True)
    assert across.near.next_on(inbox).status == "404 No Messages"
    inbox = across.next("C", batch=1, expires=300_000_000, idle_heartbeat=100_000_000)
    assert across.near.next_on(inbox).status == "100 Idle Heartbeat"
    while (message := across.near.next_on(inbox)).status == "100 Idle Heartbeat":
        pass
    assert message.status == "408 Request Timeout"
    waiting = across.next("C", batch=1, expires=60_000_000_000)
    until(lambda: across.consumer_info("C")["num_waiting"] == 1)
    across.ask("CONSUMER.DELETE.*.C")
    assert across.near.next_on(waiting).status == "409 Consumer Deleted"


def test_a_pull_request_ends_with_its_client(both: Domains, ends: tuple[int, int], across: Across) -> None:
    across.consumer("C", ack_policy="none")
    with Client(both[ends[0]]) as gone:
        gone.ask(f"{across.api}.CONSUMER.MSG.NEXT.{across.name}.C", b'{"batch": 1, "expires": 60000000000}')
        until(lambda: across.consumer_info("C")["num_waiting"] == 1)
    until(lambda: across.consumer_info("C")["num_waiting"] == 0)
    across.next("C", batch=1, expires=60_000_000_000)
    across.publish(1)
    assert [m.payload for m in pulled(across, 1)] == [b"1"]


@pytest.mark.parametrize("group", ["", "workers"])
def test_a_push_consumer(across: Across, group: str) -> None:
    near, inbox = across.near, f"to.{across.name}"
    across.publish(5)
    grouped = {"deliver_group": group} if group else {}
    across.consumer("C", ack_policy="explicit", deliver_subject=inbox, **grouped)
    assert not across.consumer_info("C").get("push_bound")
    sid = near.subscribe(inbox, group)
    messages = pulled(across, 5)
    assert [(m.subject, m.payload, m.header, m.sid) for m in messages] == [
        (f"{across.name}.{n}", b"%d" % n, MARKED, sid) for n in range(1, 6)
    ]
    assert across.consumer_info("C")["push_bound"]
    for message in messages:
        near.request(message.reply, b"+ACK")
    assert across.consumer_info("C")["ack_floor"]["stream_seq"] == 5
    near.send(f"UNSUB {sid}\r\n".encode())
    until(lambda: not across.consumer_info("C").get("push_bound"))


def test_flow_control_and_heartbeats(across: Across) -> None:
    near, inbox, count = across.near, f"to.{across.name}", 300
    across.publish(count, size=4000)
    near.subscribe(inbox)
    near.reachable_from(across.there)
    across.consumer(
        "C", ack_policy="none", deliver_subject=inbox, flow_control=True, idle_heartbeat=500_000_000
    )
    seen, asked, beats = 0, 0, 0
    while seen < count or not beats:
        message = near.next()
        if message.subject.startswith(f"{across.name}."):
            seen += 1
            assert message.ack[1] == seen
        elif message.status == "100 FlowControl Request":
            asked += 1
            near.publish(message.reply)
        elif message.status == "100 Idle Heartbeat":
            beats += 1
            if stalled := message.headers.get("Nats-Consumer-Stalled"):
                near.publish(stalled)
    assert asked


async def test_the_client_of_python(both: Domains, ends: tuple[int, int], across: Across) -> None:
    across.reachable()
    async with joined(both[ends[0]].url, user="a", password="p") as client:
        js = client.jetstream(domain=across.domain, timeout=TIMEOUT)
        first = await js.publish(f"{across.name}.x", b"0", headers={"A": "b"})
        acks = [
            await js.publish_async(f"{across.name}.x", b"%d" % n, headers={"A": "b"}) for n in range(1, 50)
        ]
        assert [(await ack).seq for ack in acks] == [first.seq + n for n in range(1, 50)]
        pull = await js.pull_subscribe(f"{across.name}.*", durable="D", stream=across.name)
        messages = await pull.fetch(50, timeout=TIMEOUT)
        for message in messages:
            await message.ack_sync(timeout=TIMEOUT)
        assert [m.data for m in messages] == [b"%d" % n for n in range(50)]
        assert {(m.subject, m.metadata.domain or "", *m.headers.items()) for m in messages} == {
            (f"{across.name}.x", _domain_of(messages[0].reply), ("A", "b"))
        }
        info = await pull.consumer_info()
        assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, first.seq + 49)
        pushed = await js.subscribe(f"{across.name}.*", stream=across.name, ordered_consumer=True)
        assert [(await pushed.next_msg(TIMEOUT)).data for _ in range(50)] == [b"%d" % n for n in range(50)]
        found = await js.get_msg(across.name, first.seq + 7, direct=True)
        assert (found.subject, found.data) == (f"{across.name}.x", b"7")


def _domain_of(reply: str) -> str:
    """Return the domain in the subject of an acknowledgement; older ones have none."""
    words = reply.split(".")
    return words[2] if len(words) > 9 and words[2] != "_" else ""


# -- keys ---------------------------------------------------------------------------------------------


def test_keys(across: Across) -> None:
    """Keys of the other side have its prefix; those without stay."""
    near, bucket = across.near, f"B{across.name}"
    config = {
        "name": f"KV_{bucket}",
        "subjects": [f"$KV.{bucket}.>"],
        "storage": "memory",
        "max_msgs_per_subject": 3,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
    }
    across.ask(f"STREAM.CREATE.KV_{bucket}", config)
    for n in range(4):
        ack = near.request(f"{across.api}.$KV.{bucket}.k", b"%d" % n).json
        assert (ack["stream"], ack["seq"], ack["domain"]) == (f"KV_{bucket}", n + 1, across.domain)
    assert near.request(f"$KV.{bucket}.k", b"no").status == "503"
    found = near.request(f"{across.api}.DIRECT.GET.KV_{bucket}.$KV.{bucket}.k")
    assert (found.payload, found.headers["Nats-Subject"]) == (b"3", f"$KV.{bucket}.k")
    stale = header("Nats-Expected-Last-Subject-Sequence: 2")
    assert near.request(f"{across.api}.$KV.{bucket}.k", b"x", stale).json["error"]["err_code"] == 10071
    near.request(f"{across.api}.$KV.{bucket}.k", b"", header("KV-Operation: PURGE", "Nats-Rollup: sub"))
    assert across.ask(f"STREAM.INFO.KV_{bucket}")["state"]["messages"] == 1
