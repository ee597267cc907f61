"""The servers that may be peers of JetStream's groups, by their names there (nodeToInfo in server.go).

A server is known from the first of its events on, as gnats.events.servers hears them. It stays known, as
offline, when it goes: its groups still name it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from gnats.events.events import JETSTREAM_ENABLED
from gnats.jetstream.cluster.placement import NodeInfo, NodeStats
from gnats.nkeys.identity import server_hash
from gnats.version import NATS_VERSION

if TYPE_CHECKING:
    from gnats.nkeys.identity import Identity
    from gnats.options.options import Options


class OwnJetStream(Protocol):
    """JetStream of this server."""

    @property
    def max_memory(self) -> int: ...
    @property
    def max_store(self) -> int: ...
    def stats(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Node(NodeInfo):
    """A server that is known, this one or another."""

    id: str = ""
    version: str = ""
    domain: str = ""
    js: bool = False
    """Whether JetStream runs there."""


class Nodes:
    """The servers of this one's domain by peer name, from JetStream's start on. For the loop's thread only.

    `jetstream` returns this server's JetStream, None while it does not run: then the table has only others.
    """

    def __init__(
        self,
        identity: Identity,
        options: Callable[[], Options],
        jetstream: Callable[[], OwnJetStream | None],
    ) -> None:
        self._identity = identity
        self._options = options
        self._jetstream = jetstream
        self._others: dict[str, Node] = {}
        self.peer = server_hash(identity.name)
        """This server's name in groups."""
        self.changed: list[Callable[[str], object]] = []
        """Called with the name of a peer that is new, has gone, has come back, or has changed what it says
        of itself; for its use of memory and storage, only the first time."""

    # -- look-ups --------------------------------------------------------------------------------------------

    def get(self, peer: str) -> Node | None:
        """Return what is known of a peer, of this server what is so now; None for an unknown one."""
        return self._own() if peer == self.peer else self._others.get(peer)

    def placement(self) -> dict[str, Node]:
        """Return all servers by peer name, as they are now."""
        own = self._own()
        return {self.peer: own} | self._others if own else dict(self._others)

    def active_peers(self) -> list[str]:
        """Return the names of all peers that are online, this server's first (ActivePeers).

        As in nats-server, servers without JetStream are among them: theirs may be about to start.
        """
        return [peer for peer, node in self.placement().items() if not node.offline]

    def is_online(self, peer: str) -> bool:
        """Whether a peer is known and has not gone."""
        node = self.get(peer)
        return node is not None and not node.offline

    def name_of(self, peer: str) -> str:
        """Return a peer's server name, "" for an unknown one (serverNameForNode)."""
        node = self.get(peer)
        return node.name if node else ""

    def cluster_of(self, peer: str) -> str:
        """Return the name of a peer's cluster, "" for an unknown one (clusterNameForNode)."""
        node = self.get(peer)
        return node.cluster if node else ""

    def _own(self) -> Node | None:
        js, options = self._jetstream(), self._options()
        if js is None:
            return None
        return Node(
            self._identity.name,
            options.cluster.name,
            tuple(options.server_tags),
            max_memory=js.max_memory,
            max_store=js.max_store,
            stats=_stats(js.stats()),
            id=self._identity.id,
            version=NATS_VERSION,
            domain=options.jetstream.domain,
            js=True,
        )

    # -- events of other servers -----------------------------------------------------------------------------

    def heard(self, server: Mapping[str, Any], jetstream: Mapping[str, Any] | None, statistics: bool) -> None:
        """Note how an event describes its server (remoteServerUpdate, processNewServer).

        `jetstream` is that member of its statistics, and `statistics` says whether the event has these:
        another event tells of servers only that were not known.
        """
        name, domain = server.get("name", ""), server.get("domain", "")
        peer = server_hash(name)
        if not name or peer == self.peer or not self._is_same_domain(domain):
            return
        if not statistics and peer in self._others:
            return
        config, stats = (jetstream or {}).get("config"), (jetstream or {}).get("stats")
        enabled = server.get("jetstream", False) or bool(server.get("flags", 0) & JETSTREAM_ENABLED)
        node = Node(
            name,
            server.get("cluster", ""),
            tuple(server.get("tags", ())),
            max_memory=None if config is None else config.get("max_memory", 0),
            max_store=None if config is None else config.get("max_storage", 0),
            stats=None if stats is None else _stats(stats),
            id=server["id"],
            version=server.get("ver", ""),
            domain=domain,
            js=enabled,
        )
        old = self._others.get(peer)
        self._others[peer] = node
        if old is None or _standing(old) != _standing(node):
            self._tell(peer)

    def gone(self, server_id: str) -> None:
        """Note that a server has gone (processRemoteServerShutdown).

        One without JetStream is forgotten: its name may never come back, and no group has it.
        """
        for peer, node in list(self._others.items()):
            if node.id == server_id and not node.offline:
                if node.js:
                    self._others[peer] = replace(node, offline=True)
                else:
                    del self._others[peer]
                self._tell(peer)

    def _is_same_domain(self, domain: str) -> bool:
        own = self._options().jetstream.domain
        return not domain or not own or domain == own

    def _tell(self, peer: str) -> None:
        for changed in self.changed:
            changed(peer)


def _stats(stats: Mapping[str, Any]) -> NodeStats:
    """Read the member `stats` of JetStream's statistics."""
    return NodeStats(
        memory=stats.get("memory", 0),
        store=stats.get("storage", 0),
        reserved_memory=stats.get("reserved_memory", 0),
        reserved_store=stats.get("reserved_storage", 0),
        ha_assets=stats.get("ha_assets", 0),
    )


def _standing(node: Node) -> tuple[Node, bool]:
    """Return what callers of `changed` are told of."""
    return replace(node, stats=None), node.selectable
