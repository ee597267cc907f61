"""Subject mappings of accounts: destinations, weights, partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from support.accounts import Member
from support.launch import Launch
from support.servers import REFERENCE, Server
from support.wire import Connection

pytestmark = pytest.mark.timeout(120)

CONFIG = """
accounts {
  A { users: [{user: a, password: p}]
      mappings {
        "plain": "mapped"
        "swap.*.*": "swapped.$2.$1"
        "part.*.*": "part.{{wildcard(1)}}.{{partition(10,1,2)}}"
        "whole.*": "whole.{{partition(7)}}.$1"
        "tail.*.>": "head.>"
        "split.*": "s.{{split(1,-)}}"
        "left.*": "l.{{splitFromLeft(1,2)}}.{{sliceFromRight(1,3)}}"
        "same": "same"
        "lost": [ { destination: found, weight: 0 }, { destination: lost, weight: 0 } ]
        "half": { destination: "other.half", weight: 50 }
        "thirds": [ { dest: "t.1", weight: 30 }, { dest: "t.2", weight: "30%" } ]
        "scoped": [ { dest: "here", weight: 100, cluster: nowhere }, { dest: "there", weight: 100 } ]
      }
  }
  B { users: [{user: b, password: p,
        permissions: { publish: { allow: ["allowed"] } } }]
      mappings { "asked": "allowed", "allowed": "forbidden" }
  }
}
mappings { "global": "of.the.global.account" }
"""

MAPPED = {
    "plain": "mapped",
    "swap.a.b": "swapped.b.a",
    "swap.a": "swap.a",
    "tail.x.y.z": "head.y.z",
    "split.a-b-c": "s.a.b.c",
    "left.abcdefgh": "l.ab.cdefgh.ab.cde.fgh",
    "same": "same",
    "scoped": "there",
    "unmapped": "unmapped",
}


@pytest.fixture(scope="module")
def mapped(launch_shared: Launch) -> Server:
    return launch_shared(config=CONFIG)


@pytest.fixture
def member(mapped: Server) -> Iterator[Member]:
    member = Member(mapped, "a")
    yield member
    member.connection.close()


@pytest.mark.parametrize(("subject", "to"), MAPPED.items())
def test_a_message_goes_to(member: Member, subject: str, to: str) -> None:
    member.subscribe(b">")
    assert member.publish(subject.encode(), b"x", b"r") == f"MSG {to} 1 r 1\r\nx\r\n".encode()


def test_headers_and_large_payloads_go_along(member: Member) -> None:
    member.subscribe(b">")
    payload = b"NATS/1.0\r\nA: b\r\n\r\n" + b"x" * 100_000
    heard = member.say(b"HPUB plain 18 100018", payload)
    assert heard == b"HMSG mapped 1 18 100018\r\n" + payload + b"\r\n"


def test_a_mapping_counts_once(member: Member) -> None:
    """A destination that is a source itself is not mapped again."""
    member.subscribe(b"mapped", b"plain")
    assert member.publish(b"plain") == b"MSG mapped 1 0\r\n\r\n"
    assert member.publish(b"mapped") == b"MSG mapped 1 0\r\n\r\n"


def test_nobody_is_told_of_by_the_new_subject(member: Member) -> None:
    member.subscribe(b"inbox")
    expected = b"HMSG inbox 1 38 38\r\nNATS/1.0 503\r\nNats-Subject: mapped\r\n\r\n\r\n"
    assert member.publish(b"plain", b"", b"inbox") == expected
    expected = b"HMSG inbox 1 32 32\r\nNATS/1.0 503\r\nNats-Subject: \r\n\r\n\r\n"
    assert member.publish(b"lost", b"", b"inbox") == expected


def test_what_has_no_destination_is_lost(member: Member) -> None:
    member.subscribe(b">")
    assert member.publish(b"lost", b"x") == b""


def test_permissions_are_about_the_new_subject(mapped: Server) -> None:
    member = Member(mapped, "b")
    try:
        member.subscribe(b">")
        assert member.publish(b"asked") == b"MSG allowed 1 0\r\n\r\n"
        error = b"-ERR 'Permissions Violation for Publish to \"forbidden\"'\r\n"
        assert member.publish(b"allowed") == error
    finally:
        member.connection.close()


def subjects_of(member: Member, subject: bytes, times: int) -> Counter[bytes]:
    heard = member.say(*[b"PUB %b 0\r\n" % subject] * times)
    return Counter(line.split()[1] for line in heard.split(b"\r\n") if line.startswith(b"MSG"))


def test_weights_share_messages_out(member: Member) -> None:
    member.subscribe(b">")
    counts = subjects_of(member, b"half", 2000)
    assert set(counts) == {b"half", b"other.half"}
    assert 800 < counts[b"half"] < 1200  # nine standard deviations
    counts = subjects_of(member, b"thirds", 2000)
    assert set(counts) == {b"t.1", b"t.2", b"thirds"}
    assert all(400 < counts[to] < 800 for to in (b"t.1", b"t.2"))
    assert 600 < counts[b"thirds"] < 1000


def test_partitions_are_those_of_nats_server(member: Member, launch: Launch) -> None:
    """Both servers map 1500 subjects to the same partitions, by two tokens and by the whole subject."""
    subjects = [b"part.%d.x%d" % (n, n * n) for n in range(1000)] + [b"whole.w%d" % n for n in range(500)]
    answers = []
    other = Member(launch(config=CONFIG, kind=REFERENCE), "a")
    try:
        for each in (member, other):
            each.subscribe(b">")
            answers.append(each.say(*[b"PUB %b 0\r\n" % subject for subject in subjects]))
    finally:
        other.connection.close()
    assert answers[0] == answers[1]
    assert answers[0].count(b"MSG part.") == 1000


def test_the_global_account_has_mappings(launch: Launch) -> None:
    server = launch(config='mappings { "global.*": "of.$1" }')
    with Connection(server.address) as client:
        client.send(b'CONNECT {"verbose":false}\r\nSUB > 1\r\nPUB global.x 0\r\n\r\n')
        assert b"".join(client.fence()).endswith(b"MSG of.x 1 0\r\n\r\n")


def test_a_mapping_is_traced(launch: Launch) -> None:
    server = launch("-V", config='mappings { "from": "to" }')
    with Connection(server.address) as client:
        client.send(b'CONNECT {"verbose":false}\r\nPUB from 2\r\nhi\r\n')
        client.fence()
    lines = r"<<- \[PUB from 2\]", r"<<- \[MAPPING from -> to\]", r'<<- MSG_PAYLOAD: \["hi"\]'
    server.wait_log("(?s)" + ".*".join(lines))
