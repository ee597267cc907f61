"""Descriptions of streams and consumers on all servers of a cluster, for the leader's lists
(jetstream_cluster.go).

Each server answers `$JSC.SI.<account>.<stream>` and `$JSC.CI.<account>.<stream>.<consumer>` for what it has.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gnats.accounts.internal_client import InternalClient, Message
from gnats.clock import Timer, call_later, time_ns
from gnats.go.json import Json, marshal
from gnats.go.text import rfc3339, text_bytes
from gnats.jetstream.api.answering import ANSWER_DELAY, all_offline
from gnats.jetstream.cluster.entries import Asset, ConsumerAssignment, StreamAssignment
from gnats.jetstream.control.consumers import Consumer, consumer_info
from gnats.jetstream.control.info import cluster_info, is_long, stream_info, stream_info_at_length
from gnats.jetstream.control.streams import EMPTY_STATE, Stream
from gnats.nkeys.identity import random_name

if TYPE_CHECKING:
    from gnats.jetstream.control.jetstream import JetStream
    from gnats.jetstream.control.metagroup import MetaGroup

STREAM_INFO, CONSUMER_INFO = "$JSC.SI.", "$JSC.CI."
PATIENCE = 4.0
"""Seconds to wait for the descriptions of a list."""


@dataclass(slots=True)
class Listed:
    """The descriptions of a list, by name."""

    shown: dict[str, Json] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """Names of those that nobody has described, or that are offline."""
    offline: dict[str, str] = field(default_factory=dict)
    """Reasons why some are offline."""

    def answer(self, what: str) -> Json:
        """Return the members of the response."""
        found: Json = {what: [info for _, info in sorted(self.shown.items())]}
        if self.missing:
            found["missing"] = self.missing
        return found | ({"offline": self.offline} if self.offline else {})


class _Gathering:
    """The descriptions that a list waits for."""

    def __init__(self, listed: Listed, names: Iterable[str], name_of: Callable[[Json], object]) -> None:
        self.listed = listed
        self.waiting = set(names)
        self.done = asyncio.Event()
        self._name_of = name_of

    def take(self, info: Json) -> None:
        """Take the description that a server has sent."""
        name = self._name_of(info)
        if not isinstance(name, str) or name not in self.waiting:
            return
        self.waiting.discard(name)
        if reason := info.get("offline_reason"):
            self.listed.offline[name] = str(reason)
            self.listed.missing.append(name)
        else:
            self.listed.shown[name] = info
        if not self.waiting:
            self.done.set()


class Infos:
    """Describes what this server has to others, and gathers what they have. For the loop's thread.

    `client` is the system account's. Only descriptions that other servers send are believed.
    """

    def __init__(self, js: JetStream, cluster: MetaGroup, client: InternalClient) -> None:
        self._js = js
        self._cluster = cluster
        self._client = client
        self._inbox = f"$SYS._INBOX_.{random_name(22)}."
        self._numbers = itertools.count(1)
        self._gathering: dict[str, _Gathering] = {}
        self._later: set[Timer] = set()
        self._sids = [
            client.subscribe(f"{STREAM_INFO}>".encode(), self._asked_for_stream),
            client.subscribe(f"{CONSUMER_INFO}>".encode(), self._asked_for_consumer),
            client.subscribe(f"{self._inbox}*".encode(), self._told),
        ]

    def close(self) -> None:
        """Answer no more."""
        for sid in self._sids:
            self._client.unsubscribe(sid)
        for timer in self._later:
            timer.cancel()

    # -- lists -----------------------------------------------------------------------------------------------

    async def streams(self, assignments: Sequence[StreamAssignment]) -> Listed:
        """Gather the descriptions of streams."""

        def name_of(info: Json) -> object:
            config = info.get("config")
            return config.get("name") if isinstance(config, dict) else None

        return await self._gather({each.name: each for each in assignments}, name_of)

    async def consumers(self, assignments: Sequence[ConsumerAssignment]) -> Listed:
        """Gather the descriptions of consumers of one stream."""
        return await self._gather({each.name: each for each in assignments}, lambda info: info.get("name"))

    async def _gather(self, assets: Mapping[str, Asset], name_of: Callable[[Json], object]) -> Listed:
        listed, mine, elsewhere = Listed(), [], {}
        for name, asset in assets.items():
            if all_offline(self._cluster, asset.group.peers):
                listed.shown[name] = self._offline(asset)
                listed.missing.append(name)
            elif self._is_mine(asset):
                mine.append(asset)
            else:
                elsewhere[name] = asset
        await self._gather_from(listed, mine, elsewhere, name_of)
        return listed

    async def _gather_from(
        self,
        listed: Listed,
        mine: Iterable[Asset],
        elsewhere: Mapping[str, Asset],
        name_of: Callable[[Json], object],
    ) -> None:
        gathering = _Gathering(listed, elsewhere, name_of)
        inbox = f"{self._inbox}{next(self._numbers)}"
        self._gathering[inbox] = gathering
        try:
            for asset in elsewhere.values():
                self._client.publish(_subject(asset), b"", reply=inbox.encode())
            timer = call_later(PATIENCE, gathering.done.set)
            for asset in mine:
                await self._describe_mine(listed, asset)
            if elsewhere:
                await gathering.done.wait()
            timer.cancel()
        finally:
            del self._gathering[inbox]
        if gathering.waiting:
            self._js.log.warn(f"Did not receive all infos: {len(gathering.waiting)} are missing")
            listed.missing += sorted(gathering.waiting)

    async def _describe_mine(self, listed: Listed, asset: Asset) -> None:
        found = self._find(asset)
        if reason := asset.unsupported or (found.offline_reason if found else ""):
            listed.offline[asset.name] = reason
            listed.missing.append(asset.name)
        elif found is None:
            listed.missing.append(asset.name)
        else:
            listed.shown[asset.name] = await self._describe(found)

    def _is_mine(self, asset: Asset) -> bool:
        """Whether this server describes an asset: of one with several servers, its leader does."""
        if not asset.group.is_member(self._cluster.peer):
            return False
        found = self._find(asset)
        return found is None or found.leads or bool(found.offline_reason)

    def _find(self, asset: Asset) -> Stream | Consumer | None:
        """Return an asset as it is at this server."""
        jsa = self._js.accounts.get(asset.account)
        if isinstance(asset, StreamAssignment):
            return jsa.streams.get(asset.name) if jsa else None
        stream = jsa.streams.get(asset.stream) if jsa else None
        return stream.consumers.get(asset.name) if stream else None

    def _offline(self, asset: Asset) -> Json:
        """Describe an asset none of whose servers can be reached, as it is assigned (offlineClusterInfo)."""
        config = asset.config.json()
        cluster: Json = {"name": self._js.shared.options().cluster.name, "raft_group": asset.group.name}
        replicas = [
            {"name": node.name, "current": False, "offline": True, "active": 0, "peer": peer}
            for peer in asset.group.peers
            if (node := self._cluster.nodes.get(peer))
        ]
        cluster |= {"replicas": replicas} if replicas else {}
        ts = rfc3339(time_ns())
        if isinstance(asset, StreamAssignment):
            about: Json = {
                "config": config,
                "created": asset.created,
                "state": EMPTY_STATE | {"consumer_count": 0},
            }
            return about | {"cluster": cluster, "ts": ts}
        none = {"consumer_seq": 0, "stream_seq": 0}
        numbers = ("num_ack_pending", "num_redelivered", "num_waiting", "num_pending")
        about = {"stream_name": asset.stream, "name": asset.name, "created": asset.created, "config": config}
        about |= {"delivered": none, "ack_floor": none, **dict.fromkeys(numbers, 0)}
        return about | {"cluster": cluster, "ts": ts}

    def _told(self, message: Message) -> None:
        """Take a description that another server has sent."""
        gathering = self._gathering.get(message.subject.decode("utf-8", "replace"))
        if gathering is None or not message.from_server:
            return
        try:
            info = json.loads(message.payload)
        except (ValueError, RecursionError):
            self._js.log.warn("Error unmarshalling clustered info response")
            return
        if isinstance(info, dict):
            gathering.take(info)

    # -- answers to other servers ----------------------------------------------------------------------------

    def _asked_for_stream(self, message: Message) -> None:
        subject = message.subject.decode("utf-8", "replace")
        account, _, name = subject.removeprefix(STREAM_INFO).rpartition(".")
        self._answer(message, self._cluster.state.stream(account, name))

    def _asked_for_consumer(self, message: Message) -> None:
        subject = message.subject.decode("utf-8", "replace")
        where, _, name = subject.removeprefix(CONSUMER_INFO).rpartition(".")
        account, _, stream = where.rpartition(".")
        self._answer(message, self._cluster.state.consumer(account, stream, name))

    def _answer(self, message: Message, asset: Asset | None) -> None:
        if not message.reply or asset is None or not self._is_mine(asset):
            return
        found = self._find(asset)
        if reason := asset.unsupported or (found.offline_reason if found else ""):
            # Later, so that a server that has it first can say so.
            self._say_later(message.reply, {**self._offline(asset), "offline_reason": reason})
        elif found is not None:
            self._js.shared.spawn(self._say(message.reply, found))

    async def _say(self, reply: bytes, found: Stream | Consumer) -> None:
        self._client.publish(reply, marshal(await self._describe(found)), reply=b"")

    def _say_later(self, reply: bytes, info: Json) -> None:
        def say() -> None:
            self._later.discard(timer)
            self._client.publish(reply, marshal(info), reply=b"")

        timer = call_later(ANSWER_DELAY, say)
        self._later.add(timer)

    async def _describe(self, found: Stream | Consumer) -> Json:
        if isinstance(found, Consumer):
            return consumer_info(found, dynamic=False)
        cluster = cluster_info(self._js, found)
        if is_long(found.config):
            async with self._js.accounts[found.jsa.name].looking:
                return await stream_info_at_length(found, dynamic=False, cluster=cluster)
        return stream_info(found, dynamic=False, cluster=cluster)


def _subject(asset: Asset) -> bytes:
    if isinstance(asset, StreamAssignment):
        return text_bytes(f"{STREAM_INFO}{asset.account}.{asset.name}")
    return text_bytes(f"{CONSUMER_INFO}{asset.account}.{asset.stream}.{asset.name}")
