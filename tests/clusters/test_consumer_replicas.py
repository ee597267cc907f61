"""Consumers with three replicas in clusters of gnats, nats-server and both: each goes on where one ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.caller import Caller, Message
from support.servers import until

from .conftest import require_all
from .members import named
from .test_jetstream import ANSWER_WITHIN, READY, Members, mixtures, running
from .test_replicas import delete, host, lead, replicated, settled

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=mixtures(), ids=named)
def members(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    require_all(request.param)
    with running(tmp_path_factory.mktemp("js"), request.param) as members:
        yield members


class Asset:
    """A consumer with three replicas of a stream with three replicas."""

    def __init__(
        self, members: Members, messages: int = 0, *, stream: dict[str, Any] | None = None, **config: Any
    ) -> None:
        self.members = members
        self.stream = replicated(members, **stream or {})
        for number in range(messages):
            members.ask(0, f"{self.stream}.{number}", b"%d" % number)
        self.name = "C"
        self.config = {"durable_name": "C", "ack_policy": "explicit"} | config
        self.inboxes = 0
        body = {"stream_name": self.stream, "config": self.config}
        members.api(0, f"CONSUMER.DURABLE.CREATE.{self.stream}.C", body)

    def info(self) -> dict[str, Any]:
        """Return the description, when the other replicas are current."""
        return settled(self.members, f"{self.stream}.C", "CONSUMER")

    def state(self) -> dict[str, Any]:
        """Return the numbers that all replicas have."""
        info = self.info()
        names = "num_ack_pending", "num_redelivered", "num_pending"
        numbers = {name: info[name] for name in names}
        for name in "delivered", "ack_floor":
            numbers[name] = info[name]["consumer_seq"], info[name]["stream_seq"]
        return numbers

    def host(self) -> int:
        """Return the member that leads; -1 where nobody does."""
        return host(self.members, f"{self.stream}.C", "CONSUMER")

    def lead(self, member: int) -> None:
        """Have a member lead."""
        lead(self.members, f"{self.stream}.C", member, "CONSUMER")

    def pull(self, member: int, number: int = 1) -> list[Message]:
        """Have messages delivered; ask again while nobody leads, or interest is not known yet."""
        got: list[Message] = []

        def pulled() -> bool:
            self.inboxes += 1
            inbox = f"_INBOX.{self.stream}{self.inboxes}"
            with Caller(self.members.cluster[member], inbox=inbox) as caller:
                caller.connection.sock.settimeout(ANSWER_WITHIN)
                request = json.dumps({"batch": number - len(got), "expires": 3 * 10**9}).encode()
                caller.ask(f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.name}", request)
                try:
                    while len(got) < number and not (message := caller.next()).status:
                        got.append(message)
                except TimeoutError:
                    pass
            return len(got) == number

        until(pulled, 60)
        return got

    def publish(self, member: int, subject: str, body: bytes) -> None:
        with Caller(self.members.cluster[member], inbox=f"_INBOX.{self.stream}p") as caller:
            caller.publish(subject, body)
            caller.fence()

    def ack(self, member: int, message: Message, body: bytes = b"+ACK") -> None:
        """Acknowledge until it is answered."""
        until(lambda: self.members.answer(member, message.reply, body), 60)


def test_each_member_goes_on_where_another_ended(members: Members) -> None:
    consumer = Asset(members, 12)
    info = consumer.info()
    assert info["cluster"]["raft_group"].startswith("C-R3F-")
    assert info["num_pending"] == 12
    for member in range(3):
        consumer.lead(member)
        first, second, third = consumer.pull((member + 1) % 3, 3)
        at = READY + 3 * member + 1
        assert [each.ack[:3] for each in (first, second, third)] == [
            (1, at + more, 3 * member + more + 1) for more in range(3)
        ]
        for message in (first, third) if member == 2 else (first, second, third):
            consumer.ack((member + 2) % 3, message)
        waits = int(member == 2)
        assert consumer.state() == {
            "num_ack_pending": waits,
            "num_redelivered": 0,
            "num_pending": 9 - 3 * member,
            "delivered": (3 * member + 3, at + 2),
            "ack_floor": (3 * member + (1 if waits else 3), at + (0 if waits else 2)),
        }
    before = consumer.state()
    for member in range(3):
        consumer.lead(member)
        assert consumer.state() == before
    (listed,) = members.api(1, f"CONSUMER.LIST.{consumer.stream}")["consumers"]
    assert listed["num_ack_pending"] == 1
    assert members.api(2, f"CONSUMER.DELETE.{consumer.stream}.C")["success"]
    for member in range(3):
        assert members.error(member, f"CONSUMER.INFO.{consumer.stream}.C") == 10014
    delete(members, consumer.stream)


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_consumer_stays_where_its_stream_was_led(members: Members, replicas: int) -> None:
    """Another member leads the stream: the consumer goes on, at the member that led both."""
    consumer = Asset(members, 4, num_replicas=replicas)
    here = until(lambda: consumer.host() + 1) - 1
    for member in here, (here + 1) % 3:
        lead(members, consumer.stream, member)
        for message in consumer.pull(here, 2):
            consumer.ack(here, message)
    assert consumer.host() == here
    delete(members, consumer.stream)


def test_another_leader_delivers_again(members: Members) -> None:
    """What was delivered and not acknowledged comes again, with its count, from whoever leads then."""
    consumer = Asset(members, 4, ack_wait=10**9)
    one, two, three = consumer.pull(0, 3)
    consumer.ack(0, two)
    led = consumer.host()
    consumer.lead((led + 1) % 3)
    again = consumer.pull(1, 3)
    assert sorted(each.ack[1] for each in again) == sorted([one.ack[1], three.ack[1], READY + 4])
    assert {each.ack[1]: each.ack[0] for each in again}[one.ack[1]] >= 2
    for message in again:
        consumer.ack(2, message)
    until(lambda: consumer.state()["num_ack_pending"] == 0)
    assert consumer.state()["ack_floor"][1] == READY + 4
    delete(members, consumer.stream)


def test_naks_and_terms_are_known_to_all(members: Members) -> None:
    consumer = Asset(members, 3, max_deliver=3, ack_wait=60 * 10**9)
    first, second, third = consumer.pull(0, 3)
    for message, body in ((first, b"+TERM no use"), (second, b"-NAK"), (third, b"+ACK")):
        if body == b"-NAK":
            consumer.publish(1, message.reply, body)
        else:
            consumer.ack(1, message, body)
    (again,) = consumer.pull(2, 1)
    assert again.ack[:2] == (2, READY + 2)
    before = consumer.state()
    assert (before["num_ack_pending"], before["num_redelivered"]) == (1, 1)
    for member in range(3):
        consumer.lead(member)
        assert consumer.state() == before
    consumer.ack(1, again)
    assert consumer.state()["ack_floor"] == (4, READY + 3)
    delete(members, consumer.stream)


@pytest.mark.parametrize("policy", ["all", "none", "last_per_subject", "new"])
def test_policies(members: Members, policy: str) -> None:
    config: dict[str, Any] = {"ack_policy": policy}
    if policy not in ("all", "none"):
        config = {"deliver_policy": policy, "filter_subject": ">"}
    consumer = Asset(members, 6, **config)
    if policy == "new":
        for number in range(6):
            members.ask(0, f"{consumer.stream}.{number}", b"")
    consumer.pull(0, 2)
    third = consumer.pull(1, 1)[0]
    first = READY + (6 if policy == "new" else 0) + 1
    assert third.ack[1] == first + 2
    if policy == "all":
        consumer.ack(2, third)
    before = consumer.state()
    for member in range(3):
        consumer.lead(member)
        state = consumer.state()
        if policy == "none":  # nobody waits for the group: another leader may not know of the last one
            assert state["delivered"][0] <= 3
        else:
            assert {**state, "ack_floor": 0} == {**before, "ack_floor": 0}
            assert state["num_pending"] == 3
    got = [each.ack[1] for each in consumer.pull(2, 3)]
    assert got == [first + 3, first + 4, first + 5] or policy == "none"
    delete(members, consumer.stream)


def test_a_push_consumer_moves_with_its_leader(members: Members) -> None:
    consumer = Asset(members, 0, deliver_subject="to.me")
    with Caller(members.cluster[0], inbox="_INBOX.push") as caller:
        caller.subscribe("to.me")
        for number in range(3):
            consumer.lead(number)
            members.ask(number, f"{consumer.stream}.a", b"%d" % number)
            message = caller.next()
            while message.payload != b"%d" % number:  # not acknowledged, it may come again
                message = caller.next()
            consumer.ack(number, message)
    delete(members, consumer.stream)


@pytest.mark.parametrize("ends", ["killed", "stepped down"])
def test_a_request_that_waits_is_ended_by_the_next_leader(members: Members, ends: str) -> None:
    consumer = Asset(members)
    leader = until(lambda: consumer.host() + 1) - 1
    here = (leader + 1) % 3
    with Caller(members.cluster[here], inbox=f"_INBOX.{consumer.stream}w") as caller:
        request = json.dumps({"batch": 1, "expires": 300 * 10**9}).encode()
        until(lambda: consumer.info()["num_waiting"] or (caller.ask(ask_next(consumer), request) and None))
        consumer.info()  # the others have heard of it
        if ends == "killed":
            members.cluster[leader].kill()
        else:
            members.ask(here, f"$JS.API.CONSUMER.LEADER.STEPDOWN.{consumer.stream}.C")
        assert caller.next().status == "409 Leadership Change"
    if ends == "killed":
        members.cluster[leader].start_again()
        members.leader()
        settled(members, consumer.stream)
    delete(members, consumer.stream)


def ask_next(consumer: Asset) -> str:
    return f"$JS.API.CONSUMER.MSG.NEXT.{consumer.stream}.C"


@pytest.mark.parametrize("graceful", [False, True], ids=["killed", "stopped"])
def test_a_leader_ends(members: Members, graceful: bool) -> None:
    """What was acknowledged is not delivered again; what was not is, also by the server that was away."""
    consumer = Asset(members, 20, ack_wait=2 * 10**9)
    got = consumer.pull(0, 10)
    for message in got[:5]:
        consumer.ack(1, message)
    gone = until(lambda: consumer.host() + 1) - 1
    server = members.cluster[gone]
    members.cluster.stop(gone) if graceful else server.kill()
    left = sorted({0, 1, 2} - {gone})
    again = consumer.pull(left[0], 15)
    assert {each.ack[1] for each in again} == set(range(READY + 6, READY + 21))
    for message in again[:10]:
        consumer.ack(left[1], message)
    server.start_again()
    members.leader()
    settled(members, consumer.stream)
    consumer.info()
    consumer.lead(gone)
    rest = consumer.pull(gone, 5)
    assert {each.ack[1] for each in rest} == {each.ack[1] for each in again[10:]}
    for message in rest:
        consumer.ack(gone, message)
    assert consumer.state()["ack_floor"][1] == READY + 20
    delete(members, consumer.stream)


def test_all_members_are_killed(members: Members) -> None:
    consumer = Asset(members, 20, ack_wait=60 * 10**9)
    got = consumer.pull(0, 10)
    for message in got[::2]:
        consumer.ack(1, message)
    before = consumer.state()
    for server in members.cluster.servers:
        server.kill()
    for server in members.cluster.servers:
        server.start_again()
    members.leader()
    settled(members, consumer.stream)
    for member in range(3):
        consumer.info()
        consumer.lead(member)
        assert consumer.state() == before
    assert [each.ack[1] for each in consumer.pull(2, 2)] == [READY + 11, READY + 12]
    delete(members, consumer.stream)


def test_a_reset_reaches_all(members: Members) -> None:
    consumer = Asset(members, 6)
    for message in consumer.pull(0, 4):
        consumer.ack(0, message)
    answer = until(
        lambda: members.answer(1, f"$JS.API.CONSUMER.RESET.{consumer.stream}.C", {"seq": READY + 2})
    )
    assert answer.json["reset_seq"] == READY + 2
    for member in range(3):
        consumer.lead(member)
        state = consumer.state()
        assert (state["num_ack_pending"], state["num_pending"]) == (0, 5)
        assert state["delivered"] == (0, READY + 1)
    assert [each.ack[1:3] for each in consumer.pull(1, 2)] == [(READY + 2, 1), (READY + 3, 2)]
    delete(members, consumer.stream)


def kept(members: Members, name: str) -> list[tuple[int, int]]:
    """Return the messages and the first sequence of a stream, as each member has it that leads in turn."""
    found = []
    for member in range(3):
        lead(members, name, member)
        state = settled(members, name)["state"]
        found.append((state["messages"], state["first_seq"]))
    return found


def test_a_work_queue(members: Members) -> None:
    """What is acknowledged is removed at all members, whoever leads the stream and the consumer."""
    consumer = Asset(members, 12, stream={"retention": "workqueue"}, ack_wait=60 * 10**9)
    for member in range(3):
        lead(members, consumer.stream, (member + 1) % 3)
        consumer.lead(member)
        first, second, third = consumer.pull(member, 3)
        for message in first, third:
            consumer.ack((member + 2) % 3, message)
        consumer.ack(member, second, b"+TERM")
        left = 9 - 3 * member
        until(lambda left=left: settled(members, consumer.stream)["state"]["messages"] == left)  # type: ignore[misc]
    assert kept(members, consumer.stream) == [(3, READY + 10)] * 3
    assert {each.ack[1] for each in consumer.pull(0, 3)} == {READY + 10, READY + 11, READY + 12}
    delete(members, consumer.stream)


def test_an_interest_stream(members: Members) -> None:
    """A message stays until all consumers have it; without interest it is not stored, and gets a sequence."""
    consumer = Asset(members, 0, stream={"retention": "interest"}, filter_subject="*.a")
    name = consumer.stream
    body = {"stream_name": name, "config": {"durable_name": "D", "ack_policy": "explicit"}}
    members.api(1, f"CONSUMER.DURABLE.CREATE.{name}.D", body)
    last = READY
    for subject in "a", "b", "a":
        last += 1
        assert members.ask(0, f"{name}.{subject}", b"")["seq"] == last
    until(lambda: settled(members, name)["state"]["messages"] == 3)
    consumer.name = "D"
    for member in range(3):
        (message,) = consumer.pull(member)
        consumer.ack(member, message)
    until(lambda: settled(members, name)["state"]["messages"] == 2)
    consumer.name = "C"
    consumer.ack(1, consumer.pull(2)[0])
    until(lambda: settled(members, name)["state"]["messages"] == 1)
    assert kept(members, name) == [(1, READY + 3)] * 3
    members.api(2, f"CONSUMER.DELETE.{name}.D")
    assert members.ask(0, f"{name}.b", b"")["seq"] == READY + 4
    assert settled(members, name)["state"]["messages"] == 1
    members.api(0, f"CONSUMER.DELETE.{name}.C")
    until(lambda: settled(members, name)["state"]["messages"] == 0)
    delete(members, name)


def test_a_work_queue_whose_members_are_killed(members: Members) -> None:
    consumer = Asset(members, 20, stream={"retention": "workqueue"}, ack_wait=60 * 10**9)
    for message in consumer.pull(0, 10)[::2]:
        consumer.ack(1, message)
    until(lambda: settled(members, consumer.stream)["state"]["messages"] == 15)
    for server in members.cluster.servers:
        server.kill()
    for server in members.cluster.servers:
        server.start_again()
    members.leader()
    settled(members, consumer.stream)
    for message in consumer.pull(2, 10):
        assert message.ack[1] > READY + 10
        consumer.ack(2, message)
    until(lambda: settled(members, consumer.stream)["state"]["messages"] == 5)
    assert [each[0] for each in kept(members, consumer.stream)] == [5] * 3
    delete(members, consumer.stream)


def test_each_event_is_told_once(members: Members) -> None:
    """By the leader alone: the consumer comes, is led, is paused and goes."""
    with Caller(members.cluster[0], inbox="_INBOX.events") as caller:
        caller.subscribe("$JS.EVENT.ADVISORY.CONSUMER.>")
        until(lambda: len(members.cluster.running()) == 3)
        consumer = Asset(members)
        name = consumer.stream
        consumer.info()
        until_time = "2099-01-01T00:00:00Z"
        members.api(1, f"CONSUMER.PAUSE.{name}.C", {"pause_until": until_time})
        until(lambda: consumer.info().get("paused"))
        assert members.api(2, f"CONSUMER.DELETE.{name}.C")["success"]
        events = []
        while not events or "DELETED" not in events[-1]:
            message = caller.next()
            if name in message.subject:
                events.append(message.subject.removeprefix("$JS.EVENT.ADVISORY.CONSUMER.").split(".")[0])
        assert sorted(events) == ["CREATED", "DELETED", "LEADER_ELECTED", "PAUSE"]
    delete(members, name)
