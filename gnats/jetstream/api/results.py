"""Results of assignments: a server tells the meta leader that it could not make what it was assigned
(processStreamAssignmentResults, processConsumerAssignmentResults in jetstream_cluster.go).

The leader answers the client, and undoes a new stream's assignment, or assigns it to another cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gnats.accounts.internal_client import InternalClient, Message
from gnats.clock import time_ns
from gnats.go.json import Json, JSONError, Named, Struct, marshal, unmarshal
from gnats.go.text import SECOND
from gnats.jetstream import errors
from gnats.jetstream.api.request import RESPONSE_TYPE
from gnats.jetstream.cluster.entries import Asset, ConsumerAssignment, Op, StreamAssignment
from gnats.jetstream.cluster.placement import PlacementError
from gnats.jetstream.errors import ApiError

if TYPE_CHECKING:
    from gnats.jetstream.control.metagroup import MetaGroup
    from gnats.log.logger import Logger

STREAM_RESULT, CONSUMER_RESULT = b"$SYS.JSC.STREAM.ASSIGNMENT.RESULT", b"$SYS.JSC.CONSUMER.ASSIGNMENT.RESULT"

STREAM_CREATED = f"{RESPONSE_TYPE}stream_create_response"
STREAM_RESTORED = f"{RESPONSE_TYPE}stream_restore_response"
CONSUMER_CREATED = f"{RESPONSE_TYPE}consumer_create_response"
_YOUNG = 5 * SECOND
"""ns from a stream's assignment within which a failure undoes it."""
_ERROR: Struct = {"code": "int", "err_code": "uint64", "description": "string"}
_RESPONSE = Named("ApiResponse", {"type": "string", "error": Named("ApiError", _ERROR, pointer=True)})
_STREAM: Struct = {
    "account": "string",
    "stream": "string",
    "create_response": _RESPONSE,
    "restore_response": _RESPONSE,
    "is_update": "bool",
}
_CONSUMER: Struct = {"account": "string", "stream": "string", "consumer": "string", "response": _RESPONSE}
_NO_RESOURCES = (
    errors.INSUFFICIENT_RESOURCES,
    errors.MEMORY_RESOURCES_EXCEEDED,
    errors.STORAGE_RESOURCES_EXCEEDED,
)


class Results:
    """Results to the leader, and of it. Used from the loop's thread.

    `client` is the system account's. Only what other servers send is believed.
    `answer` sends an error, in a response of that type and with more members, to an asset's client.
    """

    def __init__(
        self,
        cluster: MetaGroup,
        client: InternalClient,
        log: Logger,
        answer: Callable[[Asset, ApiError, str, Json], None],
    ) -> None:
        self._cluster = cluster
        self._client = client
        self._log = log
        self._answer = answer
        self._sids = [
            client.subscribe(STREAM_RESULT, self._on_stream),
            client.subscribe(CONSUMER_RESULT, self._on_consumer),
        ]

    def close(self) -> None:
        """Take no more results."""
        for sid in self._sids:
            self._client.unsubscribe(sid)

    def refuse(self, asset: Asset, error: ApiError, update: bool) -> None:
        """Tell the leader that an asset could not be made, or, with `update`, changed."""
        response: Json = {"error": error.json()}
        members: Json = {"account": asset.account}
        if isinstance(asset, ConsumerAssignment):
            if self._cluster.leads:
                self._consumer_refused(asset, error)
                return
            response = {"type": CONSUMER_CREATED, **response}
            members |= {"stream": asset.stream, "consumer": asset.name, "response": response}
            self._client.publish(CONSUMER_RESULT, marshal(members), reply=b"")
            return
        if self._cluster.leads:
            self._stream_refused(asset, error, update=update, restoring=False)
            return
        members |= {"stream": asset.name, "create_response": {"type": STREAM_CREATED, **response}}
        members |= {"is_update": True} if update else {}
        self._client.publish(STREAM_RESULT, marshal(members), reply=b"")

    # -- the leader ------------------------------------------------------------------------------------------

    def _read(self, message: Message, fields: Struct, what: str) -> dict[str, Any] | None:
        """Return the members of a message of another server, None when this one does not lead."""
        if not message.from_server or not self._cluster.leads:
            return None
        try:
            return unmarshal(message.payload, fields, what)
        except JSONError as exc:
            self._log.warn(f"JetStream cluster: a result of an assignment is not understood: {exc}")
            return None

    def _on_stream(self, message: Message) -> None:
        found = self._read(message, _STREAM, "streamAssignmentResult")
        if found is None:
            return
        assignment = self._cluster.state.stream_or_inflight(found.get("account", ""), found.get("stream", ""))
        restoring = bool(found.get("restore_response"))
        response = found.get("restore_response" if restoring else "create_response") or {}
        if assignment and (error := response.get("error")):
            update = bool(found.get("is_update"))
            self._stream_refused(assignment, _error(error), update=update, restoring=restoring)

    def _on_consumer(self, message: Message) -> None:
        found = self._read(message, _CONSUMER, "consumerAssignmentResult")
        if found is None:
            return
        where = found.get("account", ""), found.get("stream", ""), found.get("consumer", "")
        assignment = self._cluster.state.consumer(*where)
        if assignment and (error := (found.get("response") or {}).get("error")):
            self._consumer_refused(assignment, _error(error))

    def _stream_refused(
        self, assignment: StreamAssignment, error: ApiError, *, update: bool, restoring: bool
    ) -> None:
        """Assign a stream to another cluster, or refuse the request and undo its assignment."""
        cluster = self._cluster
        known = cluster.state.stream_or_inflight(assignment.account, assignment.name)
        is_known = known is not None and known.created_ns == assignment.created_ns
        is_new = is_known and not update and time_ns() - assignment.created_ns < _YOUNG
        removal = replace(assignment, sync="", reply="")
        lacks_resources = any(kind.is_kind_of(error) for kind in _NO_RESOURCES)
        if is_new and lacks_resources and not restoring and (again := self._elsewhere(assignment)):
            cluster.propose_stream(Op.REMOVE_STREAM, removal)
            cluster.propose_stream(Op.ASSIGN_STREAM, again)
            return
        if restoring:
            self._answer(assignment, error, STREAM_RESTORED, {"deliver_subject": ""})
        else:
            self._answer(assignment, error, STREAM_CREATED, {})
        if is_new:
            where = f"'{assignment.account} > {assignment.name}'"
            self._log.warn(f"Stream assignment for {where} rejected by assigned member: {error}")
            cluster.propose_stream(Op.REMOVE_STREAM, removal)

    def _elsewhere(self, assignment: StreamAssignment) -> StreamAssignment | None:
        """Return the assignment to another cluster; None when the client wants or knows no other one."""
        config, client, cluster = assignment.config, assignment.client, self._cluster
        if not client or not client.alts or (config.placement and config.placement.cluster):
            return None
        alts = tuple(name for name in client.alts if name != assignment.group.cluster)
        if not alts:
            return None
        others, placement = replace(client, cluster=alts[0], alts=alts[1:]), cluster.placement()
        try:
            group = placement.create_group_for_stream(others, config)
        except PlacementError as exc:
            where = f"'{assignment.account} > {assignment.name}'"
            self._log.warn(f"Retrying cluster placement for stream {where} failed: {exc}")
            return None
        return replace(assignment, client=others, group=replace(group, preferred=placement.preferred(group)))

    def _consumer_refused(self, assignment: ConsumerAssignment, error: ApiError) -> None:
        """Refuse the request for a consumer. It stays assigned, and is tried again when it is asked for."""
        where = f"'{assignment.account} > {assignment.stream} > {assignment.name}'"
        self._log.warn(f"Consumer assignment for {where} rejected by assigned member: {error}")
        self._answer(assignment, error, CONSUMER_CREATED, {})


def _error(found: Json) -> ApiError:
    return ApiError(found.get("code", 0), found.get("err_code", 0), found.get("description", ""))
