"""Requests of operators about the meta group, in the system account (jetstream_api.go).

The leader alone is subscribed to most, so that others stay silent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from gnats.go.json import Json
from gnats.go.text import quote
from gnats.jetstream import errors
from gnats.jetstream.api.request import Request, Route, Scope, members

if TYPE_CHECKING:
    from gnats.jetstream.cluster.nodes import Node
    from gnats.jetstream.control.metagroup import MetaGroup

STEP_DOWN_BODY = members(
    {"placement": {"cluster": "string", "tags": "strings", "preferred": "string"}},
    "JSApiLeaderStepdownRequest",
    optional=True,
)
_SERVER = members({"peer": "string", "peer_id": "string"}, "JSApiMetaServerRemoveRequest")


class MetaRequests:
    """Answers them. Used from the loop's thread only.

    `serve` carries out requests on a route, and returns what ends that.
    """

    def __init__(self, meta: MetaGroup, serve: Callable[[Route], Callable[[], None]]) -> None:
        self._meta = meta
        self._serve = serve
        self._ends: list[Callable[[], None]] = []
        rescue = Route("META.RESCUE", self._rescue, "meta_rescue_response", scope=Scope.ACCOUNT)
        self._end_rescue = serve(rescue)
        meta.lead_changed.append(self._lead_changed)
        self._lead_changed(meta.leads)

    def close(self) -> None:
        """Stop answering."""
        self._meta.lead_changed.remove(self._lead_changed)
        self._lead_changed(False)
        self._end_rescue()

    def _lead_changed(self, leads: bool) -> None:
        for end in self._ends:
            end()
        self._ends = []
        if leads:
            for verb, handle, response in (
                ("META.LEADER.STEPDOWN", self._step_down, "meta_leader_stepdown_response"),
                ("SERVER.REMOVE", self._remove, "meta_server_remove_response"),
                ("SERVER.EVACUATE", self._evacuate, "meta_server_remove_response"),
            ):
                self._ends.append(self._serve(Route(verb, handle, response, scope=Scope.ACCOUNT)))

    def _step_down(self, request: Request) -> Json:
        """Let another server lead (jsLeaderStepDownRequest)."""
        request.check_level()
        placement = request.read(STEP_DOWN_BODY).get("placement")
        meta = self._meta
        known = {peer: node for peer in meta.peers() if (node := meta.nodes.get(peer))}
        meta.step_down("" if placement is None else preferred_peer(known, meta.peer, placement))
        return {"success": True}

    def _remove(self, request: Request) -> None:
        """Remove a server from the cluster; answer when a quorum has agreed (jsLeaderServerRemoveRequest)."""
        request.check_level()
        request.require_body()
        asked, meta = request.read(_SERVER), self._meta
        wanted, name = asked.get("peer_id"), asked.get("peer", "")
        peers = meta.peers()
        found = [wanted] if wanted in peers else []
        if not wanted:
            found = [peer for peer in peers if (node := meta.nodes.get(peer)) and node.name == name]
        if not found:
            raise errors.CLUSTER_SERVER_NOT_MEMBER()
        meta.remove_peer(found[0], partial(request.respond, {"success": True}))

    def _evacuate(self, request: Request) -> Json:
        request.check_level()
        request.require_body()
        raise errors.CLUSTER_UNSUPPORT_FEATURE()

    def _rescue(self, request: Request) -> Json:
        """Refuse to lower the quorum by hand: servers could then decide different things."""
        name, server_id = self._meta.shared.advisories.server
        request.empty = {"server": name, "server_id": server_id}
        request.check_level()
        request.require_body()
        raise errors.CLUSTER_RESCUE(err="not supported")


def preferred_peer(known: Mapping[str, Node], own: str, placement: Json) -> str:
    """Choose the next leader of a group, which this server, by the name `own`, leads
    (getStepDownPreferredPlacement). Raises ApiError."""
    if name := placement.get("preferred"):
        peer = next((peer for peer, node in known.items() if node.name == name), "")
        if peer == own:
            raise errors.CLUSTER_NO_PEERS(err=f"preferred server {quote(name)} is already leader")
        if not peer:
            raise errors.CLUSTER_NO_PEERS(err=f"preferred server {quote(name)} not known")
        return peer
    fit = [peer for peer, node in known.items() if peer != own and _fits(node, placement)]
    if not fit:
        raise errors.CLUSTER_NO_PEERS(err="no replacement peer connected")
    return random.choice(fit)


def _fits(node: Node, placement: Json) -> bool:
    if node.offline or placement.get("cluster", "") not in ("", node.cluster):
        return False
    wanted = {tag.strip().lower() for tag in placement.get("tags") or ()}
    return wanted <= {tag.lower() for tag in node.tags}
