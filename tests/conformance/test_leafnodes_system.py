"""Leaf nodes in the events of the system account, in clusters, in lame duck mode, and as hops of traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.caller import Caller
from support.launch import Launch
from support.leafpeer import FakeLeaf, LeafListener, launch_accepting, launch_soliciting, leaf_address
from support.routepeer import Fake
from support.servers import Server

pytestmark = pytest.mark.timeout(60)

ACCOUNTS = """
accounts { B { users [ { user: b, password: p } ] }, $SYS { users [ { user: s, password: p } ] } }
"""
OWN = "authorization { users [ { user: u, password: p, account: B } ] }"
PASSWORD = {"pass": "p"}


@pytest.fixture
def fake() -> Iterator[FakeLeaf]:
    with FakeLeaf() as fake:
        yield fake


def observer(server: Server) -> Caller:
    """Return a client that gets what is said of account B; what is said of itself comes at any time."""
    caller = Caller(server, "s", "p")
    caller.subscribe("$SYS.ACCOUNT.B.>")
    caller.subscribe("$SYS.SERVER.ACCOUNT.B.>")
    caller.subscribe("$SYS.SERVER.*.CLIENT.AUTH.ERR")
    return caller


def events(caller: Caller, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Return the next events without what changes: subjects without the server's id, and members."""
    found = []
    for _ in range(count):
        message = caller.next()
        event = message.json
        subject = message.subject.replace(event["server"]["id"], "ID")
        for name in "id", "timestamp", "server":
            event.pop(name)
        for name in "start", "stop", "id", "rtt":
            event.get("client", {}).pop(name, None)
        event.pop("num_subscriptions", None)
        found.append((subject, event))
    return sorted(found, key=lambda each: each[0])


NO_TRAFFIC = {"msgs": 0, "bytes": 0}
OTHERS = {"gateways": NO_TRAFFIC, "routes": NO_TRAFFIC}
NOTHING = NO_TRAFFIC | OTHERS | {"leafs": NO_TRAFFIC}


def connections(leafnodes: int, received: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "io.nats.server.advisory.v1.account_connections",
        "acc": "B",
        "name": "B",
        "conns": 0,
        "leafnodes": leafnodes,
        "total_conns": leafnodes,
        "sent": NOTHING,
        "received": received,
        "slow_consumers": 0,
    }


def client(fake: FakeLeaf, user: str, **members: Any) -> dict[str, Any]:
    common = {"host": "127.0.0.1", "acc": "B", "user": user, "name": fake.name, "ver": "2.15.1"}
    return common | {"name_tag": "B", "kind": "Leafnode"} | members


@pytest.mark.parametrize("own", [True, False], ids=["own users", "users of clients"])
def test_events(launch: Launch, fake: FakeLeaf, own: bool) -> None:
    """A connection of a user of leaf nodes is no event; its end is."""
    server = launch_accepting(launch, block=OWN if own else "", config=ACCOUNTS)
    user = "u" if own else "b"
    with observer(server) as caller:
        peer = fake.dial(server, user=user, **PASSWORD)
        connected = events(caller, 2 if own else 3)
        counts = connections(1, NOTHING)
        expected: list[tuple[str, Any]] = [
            ("$SYS.ACCOUNT.B.SERVER.CONNS", counts),
            ("$SYS.SERVER.ACCOUNT.B.CONNS", counts),
        ]
        if not own:
            about = {
                "type": "io.nats.server.advisory.v1.client_connect",
                "client": client(fake, user),
            }
            expected.insert(0, ("$SYS.ACCOUNT.B.CONNECT", about))
        assert connected == expected
        peer.publish(b"foo", b"abc")
        peer.fence()
        peer.close()
        traffic = {"msgs": 1, "bytes": 3}
        counts = connections(0, traffic | OTHERS | {"leafs": traffic})
        (subject, ended), *others = events(caller, 3)
        assert others == [
            ("$SYS.ACCOUNT.B.SERVER.CONNS", counts),
            ("$SYS.SERVER.ACCOUNT.B.CONNS", counts),
        ]
        assert subject == "$SYS.ACCOUNT.B.DISCONNECT"
        assert ended.pop("reason") in ("Client Closed", "Read Error")
        assert ended == {
            "type": "io.nats.server.advisory.v1.client_disconnect",
            "client": client(fake, user),
            "sent": traffic,
            "received": NO_TRAFFIC,
        }


def test_a_refused_login_is_an_event(launch: Launch, fake: FakeLeaf) -> None:
    server = launch_accepting(launch, block=OWN, config=ACCOUNTS)
    with observer(server) as caller:
        peer = fake.greet(server)
        peer.send(fake.connect(user="u", **{"pass": "x"}))
        peer.rest()
        ((subject, event),) = events(caller, 1)
        assert subject == "$SYS.SERVER.ID.CLIENT.AUTH.ERR"
        expected = client(fake, "u", acc="N/A")
        del expected["name_tag"]
        assert event["client"] == expected
        assert event["reason"] == "Authentication Failure"


def test_statistics_of_the_account(launch: Launch, fake: FakeLeaf) -> None:
    server = launch_accepting(launch, block=OWN, config=ACCOUNTS)
    peer = fake.dial(server, user="u", **PASSWORD)
    peer.publish(b"foo", b"abc")
    peer.fence()
    with Caller(server, "s", "p") as caller:
        answer = caller.request("$SYS.REQ.ACCOUNT.PING.STATZ", {"accounts": ["B"]}).json
        (found,) = answer["data"]["account_statz"]
        assert (found["conns"], found["leafnodes"], found["total_conns"]) == (0, 1, 1)
        assert found["received"]["leafs"] == {"msgs": 1, "bytes": 3}
        page = caller.request("$SYS.REQ.ACCOUNT.B.LEAFZ").json["data"]
        assert [leaf["name"] for leaf in page["leafs"]] == [fake.name]


# -- clusters --------------------------------------------------------------------------------------------


def test_other_servers_of_the_cluster_can_be_dialled(launch: Launch, fake: FakeLeaf) -> None:
    """Leaf nodes are told of them while there are routes to them."""
    config = "cluster { name: C, listen: '127.0.0.1:-1', compression: off }"
    server = launch_accepting(launch, config=config)
    own = "{}:{}".format(*leaf_address(server))
    with Fake() as remote:
        peer = fake.dial(server)
        assert remote.greet(server).info["leafnode_urls"] == [own]
        remote.dial(server, leafnode_urls=["1.2.3.4:5"])
        told = json.loads(peer.await_op(b"INFO ")[5:])
        assert sorted(told["leafnode_urls"]) == sorted([own, "1.2.3.4:5"])
        assert "client_id" not in told
        assert "nonce" not in told
        with FakeLeaf() as later:
            assert sorted(later.greet(server).info["leafnode_urls"]) == sorted([own, "1.2.3.4:5"])
    assert json.loads(peer.await_op(b"INFO ")[5:])["leafnode_urls"] == [own]


def test_no_advertise(launch: Launch) -> None:
    config = "cluster { name: C, listen: '127.0.0.1:-1', compression: off }"
    server = launch_accepting(launch, block="no_advertise: true", config=config)
    with Fake() as remote:
        assert "leafnode_urls" not in remote.greet(server).info


# -- traces ----------------------------------------------------------------------------------------------


def test_hops_of_a_trace(launch: Launch) -> None:
    """A leaf node is a hop: the trace names it, and it gets the header that says which."""
    with LeafListener() as listener, FakeLeaf() as fake:
        server = launch_soliciting(launch, listener.url)
        peer = fake.serve(listener)
        peer.subscribe(b"traced")
        with Caller(server) as caller:
            caller.subscribe("dest")
            caller.publish("traced", b"x", header=b"NATS/1.0\r\nNats-Trace-Dest: dest\r\n\r\n")
            egress = [event for event in caller.next_on("dest").json["events"] if event["type"] == "eg"]
        assert [(each["kind"], each["name"], each.get("hop")) for each in egress] == [(4, fake.name, "1")]
        assert b"Nats-Trace-Hop: 1\r\n" in peer.await_op(b"HMSG traced ")


EXPORTS = """
accounts {
    X { users [ { user: x, password: p } ], exports [ { stream: "st.>" } ] }
    A { users [ { user: a, password: p } ]
        imports [ { stream: { account: X, subject: "st.>" }, to: "im.>" } ] }
}
"""


def test_a_trace_ends_where_an_import_does_not_allow_it(launch: Launch, fake: FakeLeaf) -> None:
    """The exporting account does not see what the importing one has, whether here or behind a leaf node."""
    server = launch_accepting(launch, config=EXPORTS)
    peer = fake.dial(server, user="a", **PASSWORD)
    peer.subscribe(b"im.x")
    peer.fence()
    with Caller(server, "x", "p") as caller:
        caller.subscribe("dest")
        caller.publish("st.x", b"x", header=b"NATS/1.0\r\nNats-Trace-Dest: dest\r\n\r\n")
        events = caller.next_on("dest").json["events"]
    got = peer.await_op(b"HMSG im.x ")
    if server.kind.is_reference:  # it traces over leaf nodes whatever the import says
        assert b"Nats-Trace-Dest: dest\r\n" in got
        assert [event["type"] for event in events] == ["in", "eg"]
    else:
        assert b"Nats-Trace-Dest: trace disabled\r\n" in got
        assert [event["type"] for event in events] == ["in", "se"]


# -- lame duck mode --------------------------------------------------------------------------------------


def test_the_end_of_lame_duck_mode_closes(launch: Launch, fake: FakeLeaf) -> None:
    import signal

    server = launch_accepting(launch, config="lame_duck_duration: '30s'\nlame_duck_grace_period: '1s'")
    peer = fake.dial(server)
    server.process.send_signal(signal.SIGUSR2)
    peer.rest()
    server.process.wait(30)


def test_a_port_that_is_not_advertised(launch: Launch, fake: FakeLeaf) -> None:
    """Leaf nodes are told of the other servers only, and those are not told of this one."""
    config = "cluster { name: C, listen: '127.0.0.1:-1', compression: off }"
    server = launch_accepting(launch, block="no_advertise: true", config=config)
    with Fake() as remote:
        peer = fake.dial(server)
        assert "leafnode_urls" not in peer.info
        assert "leafnode_urls" not in remote.greet(server).info
        remote.dial(server, leafnode_urls=["1.2.3.4:5"])
        told = json.loads(peer.await_op(b"INFO ")[5:])
        assert told["leafnode_urls"] == ["1.2.3.4:5"]
