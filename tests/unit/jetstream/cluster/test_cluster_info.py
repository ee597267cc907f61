"""Descriptions of the meta group."""

from __future__ import annotations

from typing import Any

from gnats.go.text import SECOND
from gnats.jetstream.cluster.cluster_info import meta_cluster_info, replicas
from gnats.jetstream.cluster.nodes import Node

OWN, X, Y, Z = "ownownow", "xxxxxxxx", "yyyyyyyy", "zzzzzzzz"


class Known:
    """What is known of the servers: nothing of Z."""

    peer = OWN

    def __init__(self) -> None:
        self.nodes = {OWN: Node("own", "C"), X: Node("x", "C"), Y: Node("a", "D", offline=True)}

    def get(self, peer: str) -> Node | None:
        return self.nodes.get(peer)

    def name_of(self, peer: str) -> str:
        return self.nodes[peer].name if peer in self.nodes else ""

    def cluster_of(self, peer: str) -> str:
        return self.nodes[peer].cluster


def state(leader: str, **peers: tuple[int, int]) -> dict[str, Any]:
    return {
        "leader": leader.encode(),
        "peers": {name.encode(): value for name, value in peers.items()},
        "commit": 10,
        "pindex": 12,
        "snapshot": 7,
        "size": 4,
        "quorum": 3,
    }


def described(leader: str, **peers: tuple[int, int]) -> list[dict[str, Any]]:
    return replicas(Known(), state(leader, **peers))  # type: ignore[arg-type]


def test_a_leader_knows_what_each_peer_has() -> None:
    found = described(OWN, **{OWN: (12, -1), X: (10, 5), Y: (4, 11 * SECOND), Z: (0, -1)})
    assert found == [
        {
            "name": f"Server name unknown at this time (peerID: {Z})",
            "current": False,
            "offline": True,
            "active": 0,
            "peer": Z,
        },
        {"name": "a", "current": False, "offline": True, "active": 11 * SECOND, "lag": 6, "peer": Y},
        {"name": "x", "current": True, "active": 5, "peer": X},
    ]


def test_a_peer_that_is_silent_is_not_current() -> None:
    found = described(OWN, **{X: (10, 11 * SECOND)})
    assert found == [{"name": "x", "current": False, "active": 11 * SECOND, "peer": X}]


def test_a_follower_knows_the_leader_alone() -> None:
    found = described(X, **{OWN: (12, -1), X: (0, SECOND), Y: (0, -1)})
    assert [(each["name"], each["current"], each["active"]) for each in found] == [
        ("a", False, 0),
        ("x", True, SECOND),
    ]
    assert not described(X, **{X: (0, 3 * SECOND)})[0]["current"]


def test_without_a_leader_this_server_is_among_the_peers() -> None:
    assert described("", **{OWN: (12, -1)}) == [{"name": "own", "current": True, "active": 0, "peer": OWN}]


def test_the_meta_group() -> None:
    def info(leader: str, *, full: bool, snapshot: tuple[int, int] = (0, 0)) -> dict[str, Any]:
        return meta_cluster_info(
            Known(),  # type: ignore[arg-type]
            state(leader, **{X: (10, 5)}),
            "_meta_",
            full=full,
            waiting=(2, 1),
            log_bytes=99,
            snapshot=snapshot,
        )

    assert info(X, full=False) == {
        "name": "_meta_",
        "leader": "x",
        "peer": X,
        "cluster_size": 4,
        "quorum_needed": 3,
        "pending": 3,
        "pending_requests": 2,
        "pending_infos": 1,
        "snapshot": {"pending_entries": 5, "pending_size": 99, "last_time": "0001-01-01T00:00:00Z"},
    }
    found = info("", full=True, snapshot=(SECOND, 3))
    assert "leader" not in found
    assert "peer" not in found
    assert [each["name"] for each in found["replicas"]] == ["x"]
    assert found["name"] == "C"
    assert found["snapshot"]["last_time"] == "1970-01-01T00:00:01Z"
    assert found["snapshot"]["last_duration"] == 3
