"""Choose the peers of a stream or consumer (selectPeerGroup in jetstream_cluster.go).

The choice is the leader's alone, which proposes its result; random numbers come from the caller.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from gnats.jetstream.cluster.entries import ClientInfo, RaftGroup, StreamAssignment
from gnats.jetstream.errors import CLUSTER_NO_PEERS, ApiError
from gnats.jetstream.settings.config import MEMORY, ConsumerConfig, StreamConfig
from gnats.nkeys.identity import random_name, server_hash

EXCLUDE_PLACEMENT = "!jetstream"
"""The tag of a server that gets no assets (jsExcludePlacement)."""
_NUID = 22
"""Characters of a unique id, whose hash ends a group's name."""


@dataclass(frozen=True, slots=True)
class NodeStats:
    """The use of a server's memory and storage, in bytes (JetStreamStats)."""

    memory: int = 0
    store: int = 0
    reserved_memory: int = 0
    reserved_store: int = 0
    ha_assets: int = 0
    """Groups of more than one peer, the meta group among them."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """The facts about a peer that it has sent (nodeInfo in server.go)."""

    name: str
    cluster: str
    tags: tuple[str, ...] = ()
    offline: bool = False
    max_memory: int | None = None
    """Bytes; None: the peer has not said it."""
    max_store: int | None = None
    stats: NodeStats | None = None

    @property
    def selectable(self) -> bool:
        """Whether the peer has been heard of: its limits and its use are known."""
        return self.max_memory is not None and self.max_store is not None and self.stats is not None

    def has_tag(self, tag: str) -> bool:
        """Whether a server has a tag (TagList.Contains in jwt); tags of servers are in lower case."""
        return tag.strip().lower() in self.tags

    def available(self, storage: str) -> int:
        """Return the bytes that are neither used nor reserved."""
        if self.stats is None:
            return 0
        if storage == MEMORY:
            most, used = self.max_memory, max(self.stats.memory, self.stats.reserved_memory)
        else:
            most, used = self.max_store, max(self.stats.store, self.stats.reserved_store)
        return max(0, (most or 0) - used)


@dataclass(slots=True)
class PlacementError(Exception):
    """No group of peers could be chosen, for any of these reasons (selectPeerError)."""

    offline: bool = False
    exclude_tag: bool = False
    no_storage: bool = False
    unique_tag: bool = False
    misc: bool = False
    no_js_cluster: bool = False
    missing_tags: dict[str, None] = field(default_factory=dict)
    """Wanted tags that some peer lacks."""
    excluded_tags: dict[str, None] = field(default_factory=dict)
    """Unwanted tags that some peer has."""

    def accumulate(self, other: PlacementError) -> None:
        """Add the reasons of another attempt."""
        for name, _ in _REASONS:
            setattr(self, name, getattr(self, name) or getattr(other, name))
        self.missing_tags |= other.missing_tags
        self.excluded_tags |= other.excluded_tags

    def __str__(self) -> str:
        parts = ["no suitable peers for placement"]
        parts += [text for name, text in _REASONS if getattr(self, name)]
        for text, tags in (
            ("tags not matched", self.missing_tags),
            ("tags excluded", self.excluded_tags),
        ):
            if tags:
                quoted = ", ".join(f"'{tag}'" for tag in tags)
                parts.append(f"{text} [{quoted}]")
        return ", ".join(parts)

    def api_error(self) -> ApiError:
        """Return the refusal of a request about a stream (NewJSClusterNoPeersError)."""
        return CLUSTER_NO_PEERS(err=self)


_REASONS = (
    ("offline", "peer offline"),
    ("exclude_tag", "exclude tag set"),
    ("no_storage", "insufficient storage"),
    ("unique_tag", "server tag not unique"),
    ("misc", "miscellaneous issue"),
    ("no_js_cluster", "jetstream not enabled in cluster"),
)


class Load:
    """How many streams each peer has."""

    def __init__(self, assignments: Iterable[StreamAssignment] = ()) -> None:
        self._assignments = assignments

    @cached_property
    def _counts(self) -> tuple[Counter[str], Counter[str]]:
        """Counted when it is first needed: consumers are placed without."""
        streams: Counter[str] = Counter()
        replicated: Counter[str] = Counter()
        for assignment in self._assignments:
            if assignment.unsupported:
                continue
            peers = assignment.group.peers
            streams.update(peers)
            if len(peers) > 1:
                replicated.update(peers)
        return streams, replicated

    @property
    def streams(self) -> Counter[str]:
        return self._counts[0]

    @property
    def replicated(self) -> Counter[str]:
        """How many of those streams have more than one peer."""
        return self._counts[1]


class _Node(NamedTuple):
    """A peer that could be chosen."""

    peer: str
    available: int
    offline: bool
    replicated: int
    streams: int


class _UniqueTags:
    """The tags with a prefix of which no two peers of a group may have the same."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._owners: set[str] = set()

    def take(self, node: NodeInfo) -> bool:
        """Take the node's tag; False when it has none, or another node has it."""
        tag = next((tag for tag in node.tags if tag.startswith(self.prefix)), None)
        if tag is None or tag in self._owners:
            return False
        self._owners.add(tag)
        return True


@dataclass(slots=True)
class Placement:
    """The peers of the meta group, and the facts by which they are chosen."""

    peers: Sequence[str]
    nodes: Mapping[str, NodeInfo]
    load: Load
    rng: random.Random
    unique_tag: str = ""
    """The prefix of tags that must differ within a group (`unique_tag` of the configuration)."""
    max_ha_assets: int = 0
    """0: no limit."""

    def select_peer_group(
        self,
        replicas: int,
        cluster: str,
        config: StreamConfig,
        existing: Sequence[str] = (),
        replace_first_existing: int = 0,
        ignore: Collection[str] = (),
    ) -> tuple[str, ...]:
        """Choose `replicas` peers of a cluster: those that `existing`, and others (selectPeerGroup).

        Tags of the first `replace_first_existing` may be taken again; peers in `ignore` are not chosen.
        Raises PlacementError.
        """
        if not cluster:
            raise PlacementError(misc=True)
        if existing and len(existing) >= replicas:
            return tuple(existing[:replicas])
        unique = self._unique_tags(config)
        if unique:
            for peer in existing[replace_first_existing:]:
                if node := self.nodes.get(peer):
                    unique.take(node)  # it stays even when the tag is another's
        error = PlacementError()
        found: list[_Node] = []
        for peer in self.rng.sample(self.peers, len(self.peers)):
            node = self.nodes.get(peer)
            if node is None:
                error.misc = True
            elif node.cluster == cluster:
                if not node.selectable:
                    error.offline = True
                elif peer not in ignore and peer not in existing and self._fits(node, config, unique, error):
                    found.append(self._weigh(peer, node, config))
        missing = replicas - len(existing)
        online = sum(not node.offline for node in found)
        without_quorum = online + len(existing) < replicas // 2 + 1
        if len(found) < missing or without_quorum:
            if not self.peers:
                error.no_js_cluster = True
            elif len(found) >= missing:
                error.offline = True
            raise error
        found.sort(key=lambda node: (node.offline, -node.available, node.streams))
        if config.num_replicas > 1:
            found.sort(key=lambda node: (node.offline, node.replicated))
        return (*existing, *(node.peer for node in found[:missing]))

    def _unique_tags(self, config: StreamConfig) -> _UniqueTags | None:
        """Return None when no tag must be unique, also because the stream asks for one of these tags."""
        if not self.unique_tag:
            return None
        wanted = config.placement.tags if config.placement else ()
        if any(tag.removeprefix("!").startswith(self.unique_tag) for tag in wanted):
            return None
        return _UniqueTags(self.unique_tag)

    def _fits(
        self, node: NodeInfo, config: StreamConfig, unique: _UniqueTags | None, error: PlacementError
    ) -> bool:
        """Whether a stream can be on a node; the reason why not is added to `error`."""
        if node.has_tag(EXCLUDE_PLACEMENT):
            error.exclude_tag = True
            return False
        for tag in config.placement.tags if config.placement else ():
            name = tag.removeprefix("!")
            unwanted = name != tag
            if node.has_tag(name) == unwanted:
                (error.excluded_tags if unwanted else error.missing_tags)[name] = None
                return False
        if config.max_bytes > 0 and node.available(config.storage) < config.max_bytes:
            error.no_storage = True
            return False
        # The meta group counts as an asset, and is not one that has been placed.
        if self.max_ha_assets > 0 and node.stats and node.stats.ha_assets > self.max_ha_assets:
            error.misc = True
            return False
        if unique and not unique.take(node):
            error.unique_tag = True
            return False
        return True

    def _weigh(self, peer: str, node: NodeInfo, config: StreamConfig) -> _Node:
        available = node.available(config.storage)
        return _Node(peer, available, node.offline, self.load.replicated[peer], self.load.streams[peer])

    def create_group_for_stream(self, client: ClientInfo, config: StreamConfig) -> RaftGroup:
        """Choose the group of a new stream, in the client's cluster or another (createGroupForStream).

        Raises PlacementError with the reasons in all clusters that were tried.
        """
        replicas = config.num_replicas or 1
        if config.placement and config.placement.cluster:
            clusters: tuple[str, ...] = (config.placement.cluster,)
        else:
            clusters = client.cluster, *client.alts
        error = PlacementError()
        for cluster in clusters:
            try:
                peers = self.select_peer_group(replicas, cluster, config)
            except PlacementError as exc:
                error.accumulate(exc)
                continue
            name = group_name_for_stream(len(peers), config.storage, self.rng)
            return RaftGroup(name=name, peers=peers, store=config.storage, cluster=cluster)
        raise error

    def create_group_for_consumer(self, config: ConsumerConfig, stream: StreamAssignment) -> RaftGroup:
        """Choose the group of a new consumer among its stream's peers (createGroupForConsumer).

        The cluster is the caller's to set: the stream's. Raises PlacementError; the API answers 10023.
        """
        peers = stream.group.peers
        if not peers or config.num_replicas > len(peers):
            raise PlacementError(misc=True)
        replicas = config.replicas(stream.config)
        active = self.online(peers)
        if len(active) < replicas // 2 + 1:
            raise PlacementError(offline=True)
        if 0 < replicas < len(peers):
            if len(active) < replicas:
                raise PlacementError(offline=True)
            peers = tuple(self.rng.sample(active, replicas))
        storage = MEMORY if config.mem_storage else stream.config.storage
        return RaftGroup(
            name=group_name_for_consumer(len(peers), storage, self.rng), peers=peers, store=storage
        )

    def online(self, peers: Iterable[str]) -> list[str]:
        """Return those of the peers that are known and not offline."""
        return [peer for peer in peers if (node := self.nodes.get(peer)) and not node.offline]

    def are_all_offline(self, peers: Iterable[str]) -> bool:
        """Whether all of a group's peers are offline, or unknown (allPeersOffline)."""
        return not self.online(peers)

    def preferred(self, group: RaftGroup) -> str:
        """Choose the peer that shall lead a new group first: one that is online (setPreferred)."""
        if len(group.peers) <= 1:
            return group.peers[0] if group.peers else ""
        return self.rng.choice(self.online(group.peers) or list(group.peers))

    def has_too_many_ha_assets(self, group: RaftGroup) -> bool:
        """Whether a peer of a replicated consumer's group may get none (jsClusteredConsumerRequest)."""
        if self.max_ha_assets == 0 or len(group.peers) <= 1:
            return False
        nodes = (self.nodes.get(peer) for peer in group.peers)
        return any(node and node.stats and node.stats.ha_assets > self.max_ha_assets for node in nodes)


def group_name_for_stream(replicas: int, storage: str, rng: random.Random) -> str:
    """Return a name for a stream's group, as S-R3F-xxxxxxxx (groupNameForStream)."""
    return _group_name("S", replicas, storage, rng)


def group_name_for_consumer(replicas: int, storage: str, rng: random.Random) -> str:
    """Return a name for a consumer's group, as C-R1M-xxxxxxxx (groupNameForConsumer)."""
    return _group_name("C", replicas, storage, rng)


def _group_name(prefix: str, replicas: int, storage: str, rng: random.Random) -> str:
    unique = server_hash(random_name(_NUID, rng))
    return f"{prefix}-R{replicas}{storage[:1].upper()}-{unique}"
