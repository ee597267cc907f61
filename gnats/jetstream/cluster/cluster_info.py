"""Descriptions of the meta group and its peers (clusterInfo in jetstream_cluster.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnats.go.json import Json
from gnats.go.text import SECOND, rfc3339
from gnats.go.times import ZERO_TIME

if TYPE_CHECKING:
    from gnats.jetstream.cluster.nodes import Nodes

LEADER_SEEN = 2 * SECOND
"""ns since the last word of the leader up to which a follower takes it for current."""
LOST_QUORUM = 10 * SECOND
"""ns since the last word of a peer after which it is not current."""


def replicas(nodes: Nodes, state: dict[str, Any]) -> list[Json]:
    """Describe the peers of a group, in the order of their names (PeerInfo).

    `state` is that of the group's RaftNode. This server is among them only while it knows no leader.
    """
    own, leader = nodes.peer, _name(state["leader"])
    found: list[Json] = []
    for peer, (match, since) in ((_name(key), value) for key, value in state["peers"].items()):
        if peer == own and leader:
            continue
        active, lag = max(since, 0), 0
        if peer == own:
            current = True
        elif own == leader:
            lag = max(state["commit"] - match, 0)
            current = lag == 0
        else:
            current = peer == leader and 0 <= since <= LEADER_SEEN
        node = nodes.get(peer)
        if node is None:
            lag = 0
        info: Json = {
            "name": node.name if node else f"Server name unknown at this time (peerID: {peer})",
            "current": current and active <= LOST_QUORUM,
        }
        if node is None or node.offline:
            info["offline"] = True
        info["active"] = active
        if lag:
            info["lag"] = lag
        found.append(info | {"peer": peer})
    return sorted(found, key=lambda info: str(info["name"]))


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
