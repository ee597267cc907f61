"""Which server of a cluster answers a request to the API (jetstream_api.go).

All servers get each request. The leader of the meta group answers those about what is assigned, and refuses
those about what is not; the server that has a stream answers those about its messages. The others keep
silent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from gnats.jetstream import errors
from gnats.jetstream.api.request import OFFLINE_DELAY, Request, Route
from gnats.jetstream.errors import ApiError, Kind

if TYPE_CHECKING:
    from gnats.jetstream.cluster.entries import Asset, ConsumerAssignment, StreamAssignment
    from gnats.jetstream.control.consumers import Consumer
    from gnats.jetstream.control.metagroup import MetaGroup
    from gnats.jetstream.control.streams import Stream

ANSWER_DELAY = OFFLINE_DELAY
"""Seconds that the right server has to answer before another one says that it cannot."""
_DIRECT = re.compile(rb'"direct"', re.IGNORECASE)


class Answering:
    """Who answers, by the state of the meta group. `led` are the leader's own handlers, by verb."""

    def __init__(self, cluster: MetaGroup, led: Mapping[str, Route]) -> None:
        self._cluster = cluster
        self._led = led
        self._rules: dict[str, Callable[[Request], bool]] = {
            "STREAM.RESTORE": self._leads,
            "STREAM.SNAPSHOT": lambda request: self._has_stream(request, request.tokens[2]),
            "STREAM.INFO": self._stream_info,
            "STREAM.PURGE": self._stream_purge,
            "STREAM.MSG.GET": lambda request: self._of_stream(request, request.tokens[3]),
            "STREAM.MSG.DELETE": lambda request: self._of_stream(request, request.tokens[3]),
            "STREAM.LEADER.STEPDOWN": lambda request: self._of_stream(request, request.tokens[3]),
            "CONSUMER.CREATE": lambda request: self._consumer_create(request, request.tokens[2]),
            "CONSUMER.DURABLE.CREATE": lambda request: self._consumer_create(request, request.tokens[3]),
            "CONSUMER.INFO": self._consumer_info,
            "CONSUMER.UNPIN": self._consumer_unpin,
            "CONSUMER.LEADER.STEPDOWN": self._consumer_step_down,
        }

    def choose(self, request: Request, route: Route) -> Route | None:
        """Return the route by which this server answers; None when it keeps silent.

        Raises ApiError, to be answered after `request.delay`, or LeftToOthers.
        """
        rule = self._rules.get(route.verb, self._leader_alone)
        return self._led.get(route.verb, route) if rule(request) else None

    def is_silent(self, route: Route) -> bool:
        """Whether this server keeps silent whatever the request says: the leader alone answers it."""
        return route.verb not in self._rules and not (self._cluster.leads or self._cluster.is_leaderless)

    # -- the leader ------------------------------------------------------------------------------------------

    def _leads(self, request: Request) -> bool:
        return self._cluster.leads

    def _leader_alone(self, request: Request) -> bool:
        if self._cluster.is_leaderless:
            raise errors.CLUSTER_NOT_AVAIL()
        return self._cluster.leads

    def _missing(self, request: Request, error: ApiError) -> None:
        """Refuse a request about something that is not assigned, as the leader. Raises ApiError."""
        if self._cluster.leads:
            _ = request.jsa  # an account without JetStream is refused for that
            raise error

    def _late(self, request: Request, error: ApiError) -> ApiError:
        request.delay = ANSWER_DELAY
        return error

    # -- the server that has it ------------------------------------------------------------------------------

    def _stream(self, request: Request, name: str) -> StreamAssignment | None:
        return self._cluster.state.stream_or_inflight(request.account.name, name)

    def _consumer(self, request: Request, stream: str, name: str) -> ConsumerAssignment | None:
        return self._cluster.state.consumer_or_inflight(request.account.name, stream, name)

    def _has_stream(self, request: Request, name: str) -> bool:
        assignment = self._stream(request, name)
        return assignment is not None and leads_stream(request, self._cluster.peer, assignment)

    def _of_stream(self, request: Request, name: str) -> bool:
        if self._cluster.is_leaderless:
            raise errors.CLUSTER_NOT_AVAIL()
        if self._stream(request, name) is None:
            self._missing(request, errors.STREAM_NOT_FOUND())
        return self._has_stream(request, name)

    def _stream_purge(self, request: Request) -> bool:
        """The server that has it purges it without a leader, too."""
        name = request.tokens[2]
        return self._has_stream(request, name) or self._of_stream(request, name)

    def _stream_info(self, request: Request) -> bool:
        assignment = self._stream(request, request.tokens[2])
        if assignment is None:
            self._missing(request, errors.STREAM_NOT_FOUND())
        mine = assignment is not None and leads_stream(request, self._cluster.peer, assignment)
        _check_led(stream_here(request, assignment) if assignment else None)
        return self._info(request, assignment, errors.STREAM_OFFLINE, errors.STREAM_OFFLINE_REASON, mine)

    def _info(
        self, request: Request, asset: Asset | None, offline: Kind, offline_reason: Kind, mine: bool
    ) -> bool:
        """Decide about a description of what is assigned, if anything is. Raises ApiError, for later."""
        cluster = self._cluster
        if asset and asset.unsupported and asset.group.is_member(cluster.peer):
            raise self._late(request, offline_reason(err=asset.unsupported))
        if asset and cluster.leads and all_offline(cluster, asset.group.peers):
            raise self._late(request, offline())
        if mine:
            return True
        if cluster.is_leaderless:
            raise self._late(request, errors.CLUSTER_NOT_AVAIL())
        return False

    # -- consumers -------------------------------------------------------------------------------------------

    def _consumer_create(self, request: Request, stream: str) -> bool:
        """The handler decides about requests that may be for a direct consumer, which is never assigned."""
        if _DIRECT.search(request.payload):
            return self._cluster.is_leaderless or self._cluster.leads or self._has_stream(request, stream)
        return self._leader_alone(request)

    def _consumer_info(self, request: Request) -> bool:
        stream, name = request.tokens[2:4]
        assignment = self._consumer(request, stream, name)
        if assignment is None:
            self._missing(request, self._not_found(request, stream))
        mine = assignment is not None and leads_consumer(request, self._cluster.peer, assignment)
        _check_led(consumer_here(request, assignment) if assignment else None)
        return self._info(request, assignment, errors.CONSUMER_OFFLINE, errors.CONSUMER_OFFLINE_REASON, mine)

    def _not_found(self, request: Request, stream: str) -> ApiError:
        """Return the error for a consumer that is not assigned: its stream, perhaps, is not, either."""
        known = self._stream(request, stream) is not None
        return errors.CONSUMER_NOT_FOUND() if known else errors.STREAM_NOT_FOUND()

    def _consumer_unpin(self, request: Request) -> bool:
        stream, name = request.tokens[2:4]
        known, assignment = self._stream(request, stream), self._consumer(request, stream, name)
        if known is None or assignment is None:
            self._missing(request, self._not_found(request, stream))
            return False
        if known.unsupported or assignment.unsupported:
            return False
        return leads_consumer(request, self._cluster.peer, assignment)

    def _consumer_step_down(self, request: Request) -> bool:
        if self._cluster.is_leaderless:
            raise errors.CLUSTER_NOT_AVAIL()
        stream, name = request.tokens[3:5]
        assignment = self._consumer(request, stream, name)
        if assignment is None:
            self._missing(request, self._not_found(request, stream))
            return False
        return leads_consumer(request, self._cluster.peer, assignment)


def leads_stream(request: Request, peer: str, assignment: StreamAssignment) -> bool:
    """Whether this server, by the name `peer`, leads a stream, as the only one that has it does."""
    if assignment.group.peers == (peer,):
        return True
    stream = stream_here(request, assignment)
    return stream is not None and stream.member is not None and stream.member.leads


def leads_consumer(request: Request, peer: str, assignment: ConsumerAssignment) -> bool:
    """Whether this server, by the name `peer`, leads a consumer, as the only one that has it does."""
    if assignment.group.peers == (peer,):
        return True
    consumer = consumer_here(request, assignment)
    return consumer is not None and consumer.member is not None and consumer.member.leads


def stream_here(request: Request, assignment: StreamAssignment) -> Stream | None:
    """Return a stream as it is at this server."""
    jsa = request.js.accounts.get(assignment.account)
    return jsa.streams.get(assignment.name) if jsa else None


def consumer_here(request: Request, assignment: ConsumerAssignment) -> Consumer | None:
    """Return a consumer as it is at this server."""
    jsa = request.js.accounts.get(assignment.account)
    stream = jsa.streams.get(assignment.stream) if jsa else None
    return stream.consumers.get(assignment.name) if stream else None


def _check_led(here: Stream | Consumer | None) -> None:
    """Raise ApiError for an asset of this server whose group has lost its leader (isGroupLeaderless)."""
    if here and here.member and here.member.lost_leader:
        raise errors.CLUSTER_NOT_AVAIL()


def all_offline(cluster: MetaGroup, peers: Iterable[str]) -> bool:
    """Whether none of a group's peers can be reached (allPeersOffline)."""
    return not any(peer == cluster.peer or cluster.nodes.is_online(peer) for peer in peers)
