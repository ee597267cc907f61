"""Handlers of the meta group's leader: they read and propose assignments (jetstream_cluster.go).

Creations, changes and deletions have no answer here: the server that has the stream answers when it has
carried out what was decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gnats.clock import time_ns
from gnats.core.subjects.subject import collide
from gnats.go.json import Json, marshal, unmarshal
from gnats.go.text import rfc3339
from gnats.go.times import ZERO_TIME, utc
from gnats.jetstream import errors
from gnats.jetstream.api import consumer_requests, stream_requests
from gnats.jetstream.api.answering import ANSWER_DELAY, all_offline, leads_stream
from gnats.jetstream.api.consumer_requests import STREAM_IDENTITY, durable_for_sourcing, named, paused
from gnats.jetstream.api.infos import Infos
from gnats.jetstream.api.meta_requests import STEP_DOWN_BODY, preferred_peer
from gnats.jetstream.api.paging import list_page, names_page
from gnats.jetstream.api.request import Handler, LeftToOthers, Request, Route, Scope
from gnats.jetstream.api.stream_requests import read_new_stream
from gnats.jetstream.cluster.entries import (
    Asset,
    ClientInfo,
    ConsumerAssignment,
    Op,
    RaftGroup,
    StreamAssignment,
)
from gnats.jetstream.cluster.placement import Placement, PlacementError
from gnats.jetstream.cluster.views import AssignedConsumers, AssignedStreams
from gnats.jetstream.control.account_info import CountedStream, account_info
from gnats.jetstream.control.checks import CREATE_OR_UPDATE, StreamChecks, check_consumer
from gnats.jetstream.control.consumers import Consumer
from gnats.jetstream.control.info import is_long
from gnats.jetstream.control.streams import Stream
from gnats.jetstream.settings.config import LIMITS, ConsumerConfig, StreamConfig
from gnats.nkeys.identity import random_name, server_hash
from gnats.runtime.steps import in_slices

if TYPE_CHECKING:
    from gnats.jetstream.control.metagroup import MetaGroup

_NAME_LEN = 8
"""Characters of the names that are chosen here."""


class Lead:
    """A request to the leader, and what is assigned in its account. Raises ApiError, LeftToOthers."""

    def __init__(self, request: Request) -> None:
        request.check_level()
        self.request = request
        self.jsa = request.jsa
        self.cluster = cluster_of(request)
        self.state = self.cluster.state
        self.account = request.account.name
        self.checks = StreamChecks(self.jsa, AssignedStreams(self.state, self.account), None)

    def stream(self, name: str) -> StreamAssignment:
        """Return a stream's assignment, proposed ones too. Raises ApiError."""
        assignment = self.state.stream_or_inflight(self.account, name)
        if assignment is None:
            raise errors.STREAM_NOT_FOUND()
        return assignment

    def consumer(self, stream: str, name: str) -> ConsumerAssignment:
        """Return a consumer's assignment, proposed ones too. Raises ApiError."""
        self.stream(stream)
        assignment = self.state.consumer_or_inflight(self.account, stream, name)
        if assignment is None:
            raise errors.CONSUMER_NOT_FOUND()
        return assignment

    def asked(self) -> dict[str, Any]:
        """Return the members of an assignment that say whom to answer."""
        request = self.request
        reply = request.reply.decode("utf-8", "replace")
        return {"client": self.client(), "subject": request.subject, "reply": reply}

    def client(self) -> ClientInfo:
        """Return the requester as assignments name it; its account is that of the request."""
        members = unmarshal(marshal(self.request.client or {}), ClientInfo.schema(), "ClientInfo")
        client = ClientInfo.from_members(members).for_proposal()
        if client.service_account != self.account:
            client = replace(client, svc=self.account)
        if not client.cluster:
            client = replace(client, cluster=self.cluster.nodes.cluster_of(self.cluster.peer))
        return client

    def check_changeable(self, asset: Asset) -> None:
        """Raise ApiError, to be answered late, for an asset whose server cannot change it.

        Of one that is not supported, not all of the configuration is known here.
        """
        is_stream = isinstance(asset, StreamAssignment)
        self.request.delay = ANSWER_DELAY
        if all_offline(self.cluster, asset.group.peers):
            raise (errors.STREAM_OFFLINE if is_stream else errors.CONSUMER_OFFLINE)()
        if reason := asset.unsupported:
            kind = errors.STREAM_OFFLINE_REASON if is_stream else errors.CONSUMER_OFFLINE_REASON
            raise kind(err=reason)
        self.request.delay = 0.0


def cluster_of(request: Request) -> MetaGroup:
    """Return the meta group of the server."""
    assert request.js.cluster
    return request.js.cluster


def _preferring(placement: Placement, group: RaftGroup) -> RaftGroup:
    return replace(group, preferred=placement.preferred(group))


# ---- streams ----


def _account_info(request: Request) -> Json:
    lead = Lead(request)
    state, account = lead.state, lead.account

    def count(stream: StreamAssignment) -> CountedStream:
        consumers = state.consumers_of(account, stream.name)
        return CountedStream(
            stream.config, Counter(consumer.config.replicas(stream.config) for consumer in consumers)
        )

    return account_info(lead.jsa, [count(stream) for stream in state.streams_of(account)])


async def _create(request: Request) -> None:
    """Assign a stream to a server (jsClusteredStreamRequest); the same one again: have it described."""
    lead = Lead(request)
    config, pedantic = read_new_stream(request)
    config = await lead.checks.check_assign(config, pedantic=pedantic)
    lead.jsa.check_storable(config)
    if known := lead.state.stream_or_inflight(lead.account, config.name):
        lead.cluster.propose_stream(Op.ASSIGN_STREAM, replace(known, **lead.asked()))
        return
    asked, placement = lead.asked(), lead.cluster.placement()
    try:
        group = placement.create_group_for_stream(asked["client"], config)
    except PlacementError as exc:
        raise exc.api_error() from None
    assignment = StreamAssignment.of(
        config,
        created=rfc3339(time_ns()),
        group=_preferring(placement, group),
        sync=_sync_subject(),
        **asked,
    )
    lead.cluster.propose_stream(Op.ASSIGN_STREAM, assignment)


def _sync_subject() -> str:
    """Return a subject on which a stream's replicas catch up (syncSubjForStream)."""
    return f"$JSC.SYNC.{random_name(_NAME_LEN)}"


async def _update(request: Request) -> None:
    """Change a stream where it is (jsClusteredStreamUpdateRequest)."""
    lead = Lead(request)
    config, pedantic = request.read(stream_requests.STREAM_BODY)
    config = await lead.checks.check_cfg(config, pedantic=pedantic)
    if request.tokens[2] != config.name:
        raise errors.STREAM_MISMATCH()
    old = lead.stream(config.name)
    lead.check_changeable(old)
    consumers = AssignedConsumers(lead.state, lead.account, old.name).configs()
    new = await lead.checks.check_update(
        old.config, config.with_static_metadata(), consumers, pedantic=pedantic
    )
    _check_stays(lead, old.config, new)
    known = lead.stream(old.name)
    group, sync = known.group.settled(), known.sync or _sync_subject()
    changed = replace(known.with_config(new), group=group, sync=sync, **lead.asked())
    lead.cluster.propose_stream(Op.UPDATE_STREAM, changed)


def _check_stays(lead: Lead, old: StreamConfig, new: StreamConfig) -> None:
    """Raise ApiError for an update that would move a stream, or change its replicas: not supported yet."""
    if max(1, new.num_replicas) != max(1, old.num_replicas):
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    if not new.placement or new.placement == old.placement:
        return
    try:
        lead.cluster.placement().create_group_for_stream(lead.client(), new)
    except PlacementError as exc:
        raise exc.api_error() from None
    raise errors.CLUSTER_UNSUPPORT_FEATURE()


def _delete(request: Request) -> None:
    lead = Lead(request)
    request.require_empty()
    known = lead.stream(request.tokens[2])
    lead.cluster.propose_stream(Op.REMOVE_STREAM, replace(known, sync="", **lead.asked()))


async def _matching(streams: Iterable[StreamAssignment], subject: str) -> list[StreamAssignment]:
    """Return by name those streams that store a subject; a stream without subjects counts with its name."""
    found = [
        stream
        async for stream in in_slices(streams)
        if not subject
        or any(collide(subject, other) for other in stream.config.subjects or (stream.config.name,))
    ]
    return sorted(found, key=lambda stream: stream.name)


async def _names(request: Request) -> Json:
    lead = Lead(request)
    found = request.read(stream_requests.NAMES_BODY)
    streams = list(lead.state.streams_of(lead.account))
    matching = await _matching(streams, found.get("subject", ""))
    about, names = names_page([stream.name for stream in matching], found)
    return about | {"streams": names if matching else None}


def _peers(request: Request) -> None:
    """Refuse to move a stream from a server to others. Raises ApiError."""
    Lead(request).stream(request.tokens[-1])
    raise errors.CLUSTER_UNSUPPORT_FEATURE()


def _cancel_move(request: Request) -> None:
    Lead(request).stream(request.tokens[-1])
    raise errors.STREAM_RECONFIGURE_NOT_IN_PROGRESS()


def _restore(request: Request) -> None:
    Lead(request)
    raise errors.CLUSTER_UNSUPPORT_FEATURE()


def _step_down(request: Request) -> Json:
    """Let another server lead a stream or a consumer; one that is its only server goes on to do so."""
    request.check_level()
    jsa = request.jsa
    found: Stream | Consumer | None = jsa.streams.get(request.tokens[3])
    if isinstance(found, Stream) and request.tokens[0] == "CONSUMER":
        found = found.consumers.get(request.tokens[4])
    if found and found.member:
        placement = request.read(STEP_DOWN_BODY).get("placement")
        nodes, own = cluster_of(request).nodes, cluster_of(request).peer
        known = {peer: node for peer in found.member.group.peers if (node := nodes.get(peer))}
        preferred = "" if placement is None else preferred_peer(known, own, placement)
        found.member.step_down(preferred)
    return {"success": True}


def purge_account(request: Request) -> Json:
    """Remove everything assigned for an account (jsLeaderAccountPurgeRequest)."""
    request.check_level()
    cluster, account = cluster_of(request), request.tokens[2]
    streams = list(cluster.state.streams_or_inflight(account))
    for stream in streams:
        removal = replace(stream, sync="", subject=request.subject, reply="")
        cluster.propose_stream(Op.REMOVE_STREAM, removal)
    has_streams = str(bool(streams)).lower()
    request.js.log.notice(
        f"Purge request for account {account} (streams: {len(streams)}, hasAccount: {has_streams})"
    )
    return {"initiated": True}


# ---- consumers ----


async def _create_consumer(request: Request) -> Json | None:
    """Assign a consumer, or change one (jsClusteredConsumerRequest).

    Servers that do not lead come here, too, with consumers that may be direct: these are not assigned, but
    made by the server that has the stream. Raises LeftToOthers.
    """
    found, config = request.read(consumer_requests.CREATE_BODY)
    cluster = cluster_of(request)
    if config.direct and not _is_assigned(request, config):
        return await consumer_requests.create(request)
    if cluster.is_leaderless:
        raise errors.CLUSTER_NOT_AVAIL()
    if not cluster.leads:
        raise LeftToOthers
    lead = Lead(request)
    stream_name, config = named(request, config, found.get("stream_name", ""))
    stream = lead.stream(stream_name)
    if config.direct and config.name:
        config = durable_for_sourcing(config)
    if config.sourcing:
        _check_identity(request, stream)
    there = AssignedConsumers(lead.state, lead.account, stream_name)
    action, pedantic = found.get("action", CREATE_OR_UPDATE), bool(found.get("pedantic"))
    config = await check_consumer(
        lead.jsa, stream.config, there, config.with_static_metadata(), action=action, pedantic=pedantic
    )
    name = config.durable_name or config.name
    known = lead.state.consumer_or_inflight(lead.account, stream_name, name)
    cluster.propose_consumer(
        Op.ASSIGN_CONSUMER,
        _changed(lead, stream, known, config) if known else _placed(lead, stream, config, name),
    )
    return None


def _is_assigned(request: Request, config: ConsumerConfig) -> bool:
    """Whether a direct consumer becomes a durable one, which is assigned: not of a stream with limits.

    Raises LeftToOthers when this server has nothing to do with the other ones.
    """
    cluster = cluster_of(request)
    name = request.tokens[3] if request.tokens[1] == "DURABLE" else request.tokens[2]
    stream = cluster.state.stream_or_inflight(request.account.name, name)
    if stream and config.sourcing and stream.config.retention != LIMITS:
        return True
    if stream is None or not leads_stream(request, cluster.peer, stream):
        raise LeftToOthers
    return False


def _check_identity(request: Request, stream: StreamAssignment) -> None:
    identity = server_hash(rfc3339(stream.created_ns))
    asked = request.header_value(STREAM_IDENTITY)
    if asked and asked != identity.encode():
        raise errors.CONSUMER_STREAM_IDENTITY_MISMATCH(msg=identity)


def _placed(lead: Lead, stream: StreamAssignment, config: ConsumerConfig, name: str) -> ConsumerAssignment:
    """Return the assignment of a new consumer; without a name, choose one. Raises ApiError."""
    placement = lead.cluster.placement()
    try:
        group = placement.create_group_for_consumer(config, stream)
    except PlacementError:
        raise errors.INSUFFICIENT_RESOURCES() from None
    group = replace(_preferring(placement, group), cluster=stream.group.cluster)
    return ConsumerAssignment.of(
        config,
        name=name or _free_name(lead, stream.name),
        stream=stream.name,
        created=rfc3339(time_ns()),
        group=group,
        **lead.asked(),
    )


def _free_name(lead: Lead, stream: str) -> str:
    """Return a name that no consumer of a stream has."""
    while True:
        name = random_name(_NAME_LEN)
        if not lead.state.consumer_or_inflight(lead.account, stream, name):
            return name


def _changed(
    lead: Lead, stream: StreamAssignment, known: ConsumerAssignment, config: ConsumerConfig
) -> ConsumerAssignment:
    """Return the assignment of a consumer that changes. Raises ApiError."""
    lead.check_changeable(known)
    if config.replicas(stream.config) != len(known.group.peers):
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    return replace(known.with_config(config), group=known.group.settled(), **lead.asked())


def _delete_consumer(request: Request) -> None:
    lead = Lead(request)
    request.require_empty()
    known = lead.consumer(request.tokens[2], request.tokens[3])
    lead.cluster.propose_consumer(Op.REMOVE_CONSUMER, replace(known, **lead.asked()))


def _consumer_names(request: Request) -> Json:
    lead = Lead(request)
    found = request.read(consumer_requests.PAGE_BODY)
    if lead.state.stream(lead.account, request.tokens[2]) is None:
        raise errors.STREAM_NOT_FOUND()
    names = sorted(each.name for each in lead.state.consumers_of(lead.account, request.tokens[2]))
    about, page = names_page(names, found)
    return about | {"consumers": page}


def _pause(request: Request) -> Json | None:
    """Pause a consumer, or let it go on. The answer does not wait for it."""
    found = request.read(consumer_requests.PAUSE_BODY)
    lead = Lead(request)
    stream, known = lead.stream(request.tokens[2]), lead.consumer(request.tokens[2], request.tokens[3])
    if stream.unsupported or known.unsupported:
        return None
    until = utc(found.get("pause_until", ""))
    config = replace(known.config, pause_until="" if until == ZERO_TIME else until).with_static_metadata()
    changed = replace(known.with_config(config), subject=request.subject, reply="")
    lead.cluster.propose_consumer(Op.ASSIGN_CONSUMER, changed)
    return paused(until)


# ---- lists ----


class _Lists:
    """The lists of streams and consumers, which other servers describe."""

    def __init__(self, infos: Infos) -> None:
        self._infos = infos

    async def streams(self, request: Request) -> Json | None:
        """(jsClusteredStreamListRequest)."""
        lead = Lead(request)
        found = request.read(stream_requests.LIST_BODY)
        streams = list(lead.state.streams_of(lead.account))
        matching = await _matching(streams, found.get("subject", ""))
        about, page = list_page(matching, found)
        listed = await self._infos.streams(page)
        for name, info in listed.shown.items():
            # Servers that are behind may not have all consumers yet.
            count, state = sum(1 for _ in lead.state.consumers_of(lead.account, name)), info.get("state")
            if count and isinstance(state, dict):
                state["consumer_count"] = count
        return await _answer(request, about | listed.answer("streams"), page)

    async def consumers(self, request: Request) -> Json | None:
        """(jsClusteredConsumerListRequest). As there, an unknown stream has no consumers."""
        lead = Lead(request)
        found = request.read(consumer_requests.PAGE_BODY)
        consumers = lead.state.consumers_of(lead.account, request.tokens[2])
        about, page = list_page(sorted(consumers, key=lambda consumer: consumer.name), found)
        listed = await self._infos.consumers(page)
        return await _answer(request, about | listed.answer("consumers"), page)


async def _answer(request: Request, answer: Json, page: Iterable[Asset]) -> Json | None:
    """Return a response; send it, in slices, when it is long."""
    if not is_long(*(asset.config for asset in page)):
        return answer
    await request.responder.respond_at_length(request, answer)
    return None


# ---- routes ----


def led(routes: Iterable[Route], infos: Infos) -> dict[str, Route]:
    """Return the leader's routes by verb: those of a server alone, with the handlers of this module."""
    lists = _Lists(infos)
    gathering: dict[str, Handler] = {"STREAM.LIST": lists.streams, "CONSUMER.LIST": lists.consumers}
    handlers = _HANDLERS | gathering
    return {
        route.verb: replace(
            route,
            handle=handler,
            scope=_SCOPES.get(route.verb, route.scope),
            gathers=route.verb in gathering,
        )
        for route in routes
        if (handler := handlers.get(route.verb))
    }


_HANDLERS: dict[str, Handler] = {
    "INFO": _account_info,
    "STREAM.CREATE": _create,
    "STREAM.UPDATE": _update,
    "STREAM.DELETE": _delete,
    "STREAM.NAMES": _names,
    "STREAM.PEER.REMOVE": _peers,
    "STREAM.PEER.EVACUATE": _peers,
    "STREAM.CANCEL_MOVE": _cancel_move,
    "STREAM.RESTORE": _restore,
    "STREAM.LEADER.STEPDOWN": _step_down,
    "CONSUMER.CREATE": _create_consumer,
    "CONSUMER.DURABLE.CREATE": _create_consumer,
    "CONSUMER.DELETE": _delete_consumer,
    "CONSUMER.NAMES": _consumer_names,
    "CONSUMER.PAUSE": _pause,
    "CONSUMER.LEADER.STEPDOWN": _step_down,
}
_SCOPES = {"CONSUMER.LIST": Scope.ACCOUNT}
"""A list waits for other servers: changes of the stream go on meanwhile."""
