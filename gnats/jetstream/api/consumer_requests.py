"""Handlers of the API's requests about consumers (jetstream_api.go)."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING

from gnats.clock import time_ns
from gnats.go.json import Custom, Json, JSONError, Named, Struct
from gnats.go.structs import TIME
from gnats.go.times import ZERO_TIME, unix_ns, utc
from gnats.jetstream import errors
from gnats.jetstream.api.paging import PAGE, PAGED, ListPage, names_page
from gnats.jetstream.api.request import OFFLINE_DELAY, Body, Request, Route, Scope, cluster_required, members
from gnats.jetstream.api.stream_requests import online
from gnats.jetstream.control.checks import CREATE, CREATE_OR_UPDATE, UPDATE
from gnats.jetstream.control.consumers import consumer_info
from gnats.jetstream.control.info import is_long
from gnats.jetstream.settings.config import ACK_FLOW_CONTROL, LIMITS, ConsumerConfig
from gnats.jetstream.settings.consumer_rules import is_group_name
from gnats.runtime.steps import in_slices

if TYPE_CHECKING:
    from gnats.jetstream.control.consumers import Consumer, ConsumerStream
    from gnats.jetstream.control.streams import Stream

STREAM_IDENTITY = b"Nats-Stream-Identity"


def _read_action(value: object) -> object:
    if value in (CREATE, UPDATE, CREATE_OR_UPDATE) and isinstance(value, str):
        return value
    from gnats.go.json import marshal

    raise JSONError(f"unknown consumer action: {marshal(value).decode()}")


def _consumer_request(found: Json) -> tuple[Json, ConsumerConfig]:
    return found, ConsumerConfig.from_members(found.get("config", {}))


CREATE_BODY = Body(
    {
        "stream_name": "string",
        "config": Named("ConsumerConfig", ConsumerConfig.schema()),
        "action": Custom(_read_action),
        "pedantic": "bool",
    },
    "CreateConsumerRequest",
    _consumer_request,
)
PAGE_BODY = members(PAGE, "JSApiConsumersRequest", optional=True)
PAUSE_REQUEST: Struct = {"pause_until": TIME}
PAUSE_BODY = members(PAUSE_REQUEST, "JSApiConsumerPauseRequest", optional=True)
_UNPIN_BODY = members({"group": "string"}, "JSApiConsumerUnpinRequest", skips_unknown=True)


async def create(request: Request) -> Json:
    """Make a consumer, or change the one of that name, and describe it."""
    found, config = request.read(CREATE_BODY)
    request.check_level()
    jsa = request.jsa
    stream_name, config = named(request, config, found.get("stream_name", ""))
    if config.num_replicas > 1:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    stream = online(request, jsa.stream(stream_name))
    if config.direct and config.sourcing and config.name:
        config = _for_sourcing(stream, config)
    identity = ""
    if config.direct or config.sourcing:
        identity = stream.identity
        asked = request.header_value(STREAM_IDENTITY)
        if asked and asked != identity.encode():
            raise errors.CONSUMER_STREAM_IDENTITY_MISMATCH(msg=identity)
    if consumer := stream.consumers.get(config.durable_name or config.name):
        _online(request, consumer)
    config, pedantic = config.with_static_metadata(), bool(found.get("pedantic"))
    action = found.get("action", CREATE_OR_UPDATE)
    proposal = await stream.check_add_consumer(config, action=action, pedantic=pedantic)
    await jsa.propose(proposal)
    consumer = stream.consumer(proposal.name)
    if identity:
        request.response_header = identity_header(stream)
    info = consumer_info(consumer)
    if consumer.pause_remaining():
        request.js.advisories.consumer_pause(
            request.account, stream.name, consumer.name, consumer.config.pause_until
        )
    return info


def identity_header(stream: ConsumerStream) -> bytes:
    """Return the header of a response that says which stream a consumer for sourcing is of."""
    return b"NATS/1.0\r\n%s: %s\r\n\r\n" % (STREAM_IDENTITY, stream.identity.encode())


def named(request: Request, config: ConsumerConfig, asked: str) -> tuple[str, ConsumerConfig]:
    """Return the stream's name, and the configuration with the consumer's name of the subject.

    Raises ApiError.
    """
    tokens, legacy, subject_filter = request.tokens, "", ""
    if tokens[1] == "DURABLE":
        legacy, stream, name = "durable", tokens[3], tokens[4]
    elif len(tokens) == 3:
        legacy, stream, name = "ephemeral", tokens[2], config.name
    else:
        stream, name, subject_filter = tokens[2], tokens[3], ".".join(tokens[4:])
    if stream != asked:
        raise errors.STREAM_MISMATCH()
    if set(name) & set("\\/"):
        raise errors.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS()
    durable = config.durable_name
    if legacy == "durable" and not durable:
        raise errors.CONSUMER_DURABLE_NAME_NOT_SET()
    if legacy != "ephemeral" and durable and durable != name:
        raise errors.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT()
    if legacy == "ephemeral" and durable:
        raise errors.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME()
    if subject_filter and config.filter_subjects:
        raise errors.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED()
    if subject_filter and config.filter_subject != subject_filter:
        raise errors.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH()
    return stream, replace(config, name=name)


def durable_for_sourcing(config: ConsumerConfig) -> ConsumerConfig:
    """Adapt the configuration of another stream's consumer of one that removes acknowledged messages."""
    return replace(
        config,
        direct=False,
        durable_name=config.name,
        ack_policy=ACK_FLOW_CONTROL,
        ack_wait=0,
        max_deliver=0,
        inactive_threshold=0,
    )


def _for_sourcing(stream: Stream, config: ConsumerConfig) -> ConsumerConfig:
    """Adapt the configuration of a consumer that another stream requests as its origin.

    When this stream removes acknowledged messages, the consumer becomes durable and acknowledges by flow
    control. Otherwise its name gets a random suffix.
    """
    if stream.config.retention != LIMITS:
        return durable_for_sourcing(config)
    return replace(config, name=f"{config.name}-{stream.new_consumer_name()}")


def _online(request: Request, consumer: Consumer) -> Consumer:
    if consumer.offline_reason:
        request.delay = OFFLINE_DELAY
        raise errors.CONSUMER_OFFLINE_REASON(err=consumer.offline_reason)
    return consumer


def _unless_offline(stream: Stream, name: str) -> Consumer | None:
    """Return a consumer; None when it or its stream is offline: the request gets no answer.

    Raises ApiError.
    """
    if stream.offline_reason:
        return None
    consumer = stream.consumer(name)
    return None if consumer.offline_reason else consumer


def _public(stream: Stream) -> list[Consumer]:
    """Return the consumers by name, without the direct consumers of mirrors and sources."""
    found = [consumer for consumer in stream.consumers.values() if not consumer.config.direct]
    return sorted(found, key=lambda consumer: consumer.name)


def _names(request: Request) -> Json:
    request.check_level()
    jsa = request.jsa
    found = request.read(PAGE_BODY)
    consumers = _public(jsa.stream(request.tokens[2]))
    about, names = names_page([consumer.name for consumer in consumers], found)
    return about | {"consumers": names}


def _list(request: Request) -> Json | Awaitable[None]:
    request.check_level()
    jsa = request.jsa
    found = request.read(PAGE_BODY)
    consumers = _public(jsa.stream(request.tokens[2]))
    page = ListPage(consumers, found)
    if not is_long(*(consumer.config for consumer in page.items)):
        return page.answer("consumers", [consumer_info(consumer, dynamic=False) for consumer in page.items])

    async def look() -> None:
        async with jsa.looking:
            shown = [consumer_info(consumer, dynamic=False) async for consumer in in_slices(page.items)]
            await request.responder.respond_at_length(request, page.answer("consumers", shown))

    return look()


def _info(request: Request) -> Json:
    request.require_empty()
    request.check_level()
    stream = request.jsa.stream(request.tokens[2])
    return consumer_info(_online(request, stream.consumer(request.tokens[3])))


async def _delete(request: Request) -> Json:
    request.check_level()
    jsa = request.jsa
    request.require_empty()
    stream = jsa.stream(request.tokens[2])
    await jsa.propose(stream.check_delete_consumer(request.tokens[3]))
    return {"success": True}


async def _pause(request: Request) -> Json | None:
    found = request.read(PAUSE_BODY)
    request.check_level()
    jsa = request.jsa
    consumer = _unless_offline(jsa.stream(request.tokens[2]), request.tokens[3])
    if consumer is None:
        return None
    until = utc(found.get("pause_until", ""))
    await jsa.propose(consumer.check_pause("" if until == ZERO_TIME else until))
    return paused(until)


def paused(until: str) -> Json:
    """Return the response to a request to pause a consumer until a time, "" or ZERO_TIME: not to."""
    remaining = unix_ns(until) - time_ns()
    answer: Json = {"paused": remaining > 0, "pause_until": until or ZERO_TIME}
    return answer | ({"pause_remaining": remaining} if remaining > 0 else {})


async def _unpin(request: Request) -> Json | None:
    request.check_level()
    found = request.read(_UNPIN_BODY)
    group = found.get("group", "")
    if not group:
        raise errors.INVALID_JSON(err="consumer group not specified")
    if not is_group_name(group):
        raise errors.CONSUMER_INVALID_GROUP_NAME()
    jsa = request.jsa
    consumer = _unless_offline(jsa.stream(request.tokens[2]), request.tokens[3])
    if consumer is None:
        return None
    await jsa.propose(consumer.check_unpin(group))
    return {}


# Not here: CONSUMER.MSG.NEXT and CONSUMER.RESET, to which each consumer subscribes in its account (its native
# half, and Consumer in control/consumers.py).
ROUTES = (
    Route(
        "CONSUMER.CREATE",
        create,
        "consumer_create_response",
        1,
        or_more=True,
        body=CREATE_BODY,
        limited=True,
    ),
    Route("CONSUMER.DURABLE.CREATE", create, "consumer_create_response", 2, body=CREATE_BODY, limited=True),
    Route(
        "CONSUMER.NAMES",
        _names,
        "consumer_names_response",
        1,
        is_info=True,
        empty={**PAGED, "consumers": []},
        scope=Scope.STREAM,
        body=PAGE_BODY,
    ),
    Route(
        "CONSUMER.LIST",
        _list,
        "consumer_list_response",
        1,
        is_info=True,
        empty={**PAGED, "consumers": []},
        scope=Scope.STREAM,
        body=PAGE_BODY,
    ),
    Route("CONSUMER.INFO", _info, "consumer_info_response", 2, is_info=True, scope=Scope.STREAM),
    Route("CONSUMER.DELETE", _delete, "consumer_delete_response", 2, limited=True),
    Route(
        "CONSUMER.PAUSE",
        _pause,
        "consumer_pause_response",
        2,
        empty={"paused": False, "pause_until": ZERO_TIME},
        body=PAUSE_BODY,
        limited=True,
    ),
    Route("CONSUMER.UNPIN", _unpin, "consumer_unpin_response", 2, body=_UNPIN_BODY, limited=True),
    Route("CONSUMER.LEADER.STEPDOWN", cluster_required, "consumer_leader_stepdown_response", 2),
)
