"""Descriptions of the meta group and its peers (clusterInfo in jetstream_cluster.go)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from gnats.go.json import Json
from gnats.go.text import SECOND, rfc3339
from gnats.go.times import ZERO_TIME

if TYPE_CHECKING:
    from gnats.jetstream.cluster.nodes import Node, Nodes

LEADER_SEEN = 2 * SECOND
"""ns since the last word of the leader up to which a follower takes it for current."""
LOST_QUORUM = 10 * SECOND
"""ns since the last word of a peer after which it is not current."""


class Standing(NamedTuple):
    """A peer of a group as a member sees it. A follower knows nothing of other followers."""

    peer: str
    current: bool
    active: int
    """ns since it was heard; 0: not yet, or this server."""
    lag: int
    """Committed records that it lacks."""


def standings(state: dict[str, Any], own: str) -> Iterator[Standing]:
    """Yield all peers of a group (Peers in raft.go).

    `state` is that of the group's RaftNode, `own` this server's name there.
    """
    leader = _name(state["leader"])
    for name, (match, since) in state["peers"].items():
        peer, active = _name(name), max(since, 0)
        if peer == own:
            yield Standing(peer, True, 0, 0)
        elif own == leader:
            lag = max(state["commit"] - match, 0)
            yield Standing(peer, lag == 0, active, lag)
        elif peer == leader:
            yield Standing(peer, 0 <= since <= LEADER_SEEN, active, 0)
        else:
            yield Standing(peer, False, 0, 0)


def replicas(nodes: Nodes, state: dict[str, Any]) -> list[Json]:
    """Describe the peers of a group, in the order of their names (PeerInfo).

    `state` is that of the group's RaftNode. This server is among them only while it knows no leader.
    """
    found: list[Json] = []
    for peer, current, active, lag in standings(state, nodes.peer):
        if peer == nodes.peer and state["leader"]:
            continue
        node = nodes.get(peer)
        name = node.name if node else f"Server name unknown at this time (peerID: {peer})"
        current = current and active <= LOST_QUORUM
        found.append(_member(name, node, current, active, lag if node else 0, peer))
    return sorted(found, key=lambda info: str(info["name"]))


def known_peers(nodes: Nodes, state: dict[str, Any]) -> list[Json]:
    """Describe all peers of a group whose servers are known, this one too, for advisories."""
    return [
        _member(node.name, node, current, active, lag, peer)
        for peer, current, active, lag in standings(state, nodes.peer)
        if (node := nodes.get(peer))
    ]


def _member(name: str, node: Node | None, current: bool, active: int, lag: int, peer: str) -> Json:
    info: Json = {"name": name, "current": current}
    if node is None or node.offline:
        info["offline"] = True
    info["active"] = active
    if lag:
        info["lag"] = lag
    return info | {"peer": peer}


def meta_cluster_info(
    nodes: Nodes,
    state: dict[str, Any],
    group: str,
    *,
    full: bool,
    waiting: tuple[int, int],
    log_bytes: int,
    snapshot: tuple[int, int],
) -> Json:
    """Describe the meta group, with its replicas only if `full` (MetaClusterInfo).

    `waiting` are the numbers of requests to the API that wait, those for information last. `log_bytes` is the
    size of the group's log, `snapshot` when its last snapshot was taken (ns since 1970; 0: never), and the ns
    that this took.
    """
    leader = nodes.name_of(_name(state["leader"]))
    info: Json = {"name": nodes.cluster_of(nodes.peer) if full else group}
    if leader:
        info["leader"] = leader
        info["peer"] = _name(state["leader"])
    if full and (others := replicas(nodes, state)):
        info["replicas"] = others
    requests, infos = waiting
    info |= {
        "cluster_size": state["size"],
        "quorum_needed": state["quorum"],
        "pending": requests + infos,
        "pending_requests": requests,
        "pending_infos": infos,
    }
    taken, duration = snapshot
    stats: Json = {"pending_entries": state["pindex"] - state["snapshot"], "pending_size": log_bytes}
    stats["last_time"] = rfc3339(taken) if taken else ZERO_TIME
    if duration:
        stats["last_duration"] = duration
    return info | {"snapshot": stats}


def _name(peer: bytes) -> str:
    return peer.decode(errors="replace")
