"""Mirrors and sources: a stream copies messages from other streams (setupMirrorConsumer and
trySetupSourceConsumer of stream.go, ADR-59 and ADR-60).

An *origin* is a stream that messages are copied from. This module requests a consumer of each origin through
the API, like any client, so that the origin may be on any server. It requests the consumer again when it
fails, is silent for too long, or skips a message. gnats.jetstream.stream.sourcing stores its messages.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gnats.accounts.internal_client import InternalClient, Message
from gnats.clock import Timer, call_later, monotonic, monotonic_ns
from gnats.core.subjects.transform import SubjectTransform
from gnats.go.json import Json, marshal
from gnats.go.text import SECOND, rfc3339
from gnats.go.times import unix_ns
from gnats.jetstream import errors
from gnats.jetstream.errors import ApiError
from gnats.jetstream.settings.config import (
    ACK_FLOW_CONTROL,
    ACK_NONE,
    DELIVER_ALL,
    DELIVER_BY_START_SEQUENCE,
    DELIVER_BY_START_TIME,
    ConsumerConfig,
    StreamSource,
)
from gnats.jetstream.stream.sourcing import SourceConsumer, SourceEvent
from gnats.nkeys.identity import random_name, server_hash
from gnats.runtime.paced import PacedCall
from gnats.store.store import StoreFailure

if TYPE_CHECKING:
    from pathlib import Path

    from gnats.jetstream.control.shared import StreamAccount
    from gnats.jetstream.settings.config import StreamConfig
    from gnats.jetstream.stream.stream import Stream as NativeStream
    from gnats.store.store import MsgStore

RETRY_THRESHOLD = 2.0
"""Shortest time between two requests for a consumer, in seconds."""
RETRY_BACKOFF, RETRY_MAXIMUM = 5.0, 120.0
HEALTH_CHECK = 10.0
"""Seconds of silence after which a consumer is requested again."""
CONSUMER_WAIT, DURABLE_WAIT = 30.0, 5.0
"""Seconds to wait for an answer: to the creation of a consumer, and to the reset of a durable one."""
JITTER = (0.1, 0.2)

_API = "$JS.API"
_ACK_WAIT = 22 * 3600 * SECOND
_SUFFIX = 8
_IDENTITY = "Nats-Stream-Identity"
_MOST = 1 << 64
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors that reading a malformed answer may cause."""

Position = dict[str, Any]
"""The fields of a consumer's configuration that say where it starts."""


class TargetStream(Protocol):
    """The stream that copies messages from origins."""

    jsa: StreamAccount
    config: StreamConfig
    replicated: bool

    @property
    def name(self) -> str: ...
    @property
    def native(self) -> NativeStream: ...
    @property
    def store(self) -> MsgStore: ...
    @property
    def directory(self) -> Path: ...
    @property
    def failure(self) -> str: ...

    def answer_for_origin(self) -> None:
        """Answer direct gets to the origin of this mirror."""


def retry_backoff(fails: int) -> float:
    """Return the seconds to wait after that number of failures in a row (calculateRetryBackoff)."""
    return min(RETRY_BACKOFF * 2 * fails, RETRY_MAXIMUM)


class ConsumerNames:
    """Names the consumers of a stream's origins: the same after every restart."""

    def __init__(self, stream: TargetStream) -> None:
        self._stream = stream
        self._counted: tuple[StreamSource | None, ...] = ()
        self._counts: Counter[str] = Counter()

    def of(self, source: StreamSource, *, mirror: bool) -> str:
        """Return the name of an origin's consumer."""
        stream = self._stream
        parts = [stream.name, stream.jsa.name]
        if domain := stream.jsa.shared.domain:
            parts.append(domain)
        name = server_hash(" ".join(parts))
        if mirror:
            return f"JS_MIRROR_{name}"
        if self._counted is not stream.config.sources:
            self._counted = stream.config.sources
            self._counts = Counter(each.name for each in self._counted if each)
        shared = self._counts[source.name] > 1
        return f"JS_SRC_{server_hash(f'{name} {source.index_name()}' if shared else name)}"


def api_subject(source: StreamSource, *tokens: str) -> str:
    """Return the subject of an API request to the origin, with the external prefix if it has one."""
    subject = ".".join((_API, *tokens))
    if source.external:
        subject = subject.replace(_API, source.external.api, 1).replace("..", ".")
    return subject


def _unique(prefix: str, separator: str = ".") -> str:
    return f"{prefix}{separator}{random_name(_SUFFIX)}"


class Call:
    """A request in the stream's account; calls `done` with the answer, or None after `timeout` seconds."""

    def __init__(
        self,
        stream: TargetStream,
        subject: str,
        payload: bytes,
        headers: dict[str, str],
        timeout: float,
        done: Callable[[Message | None], None],
    ) -> None:
        self._client = stream.jsa.shared.clients.of(stream.jsa.account)
        self._done: Callable[[Message | None], None] | None = done
        reply = _unique("$JSC.R").encode()
        self._sid = self._client.subscribe(reply, self._end)
        self._timer = call_later(timeout, self._end, None)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        header = f"NATS/1.0\r\n{lines}\r\n".encode() if headers else None
        self._client.publish(subject.encode(), payload, reply=reply, header=header)

    def _end(self, message: Message | None) -> None:
        done = self._done
        self.cancel()
        if done:
            done(message)

    def cancel(self) -> None:
        """Stop waiting; `done` is not called. Idempotent."""
        if self._done:
            self._done = None
            self._timer.cancel()
            self._client.unsubscribe(self._sid)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request for a consumer; `delivered` is the last stream sequence delivered before."""

    name: bytes
    delivered: int
    ack_policy: str
    identity: str
    error: ApiError | None


def read_error(payload: bytes) -> ApiError | None:
    """Return the error in an answer, None without one. Raises one of _MALFORMED."""
    error = json.loads(payload).get("error")
    if error is None:
        return None
    return ApiError(int(error["code"]), int(error.get("err_code", 0)), str(error.get("description", "")))


def read_answer(message: Message, failure: errors.Kind) -> Answer:
    """Read the answer of the origin's server; a malformed one becomes the error `failure`."""
    identity = message.header_value(_IDENTITY.encode()).decode("utf-8", "replace").strip()
    try:
        if error := read_error(message.payload):
            return Answer(b"", 0, "", "", error)
        found = json.loads(message.payload)
        name, delivered = found["name"], found["delivered"]["stream_seq"]
        ack_policy = found["config"].get("ack_policy")
        if isinstance(name, str) and type(delivered) is int and 0 <= delivered < _MOST:
            return Answer(name.encode(), delivered, str(ack_policy), identity, None)
    except _MALFORMED:
        pass
    return Answer(b"", 0, "", "", failure(err="invalid consumer create response"))


@dataclass(frozen=True, slots=True)
class OriginKind:
    """The differences between the origin of a mirror and those of sources."""

    what: str
    inbox: str
    """The first token of deliver subjects, behind the prefix."""
    setup_failed: errors.Kind
    requires_flow_control: errors.Kind
    level: int
    """The API level that a request for a consumer requires first."""
    durable_level: int
    """The same for a request to reset the user's own consumer."""
    follows_identity: bool
    """The origin's identity is noted: a new stream of its name is copied from its beginning."""
    start: Callable[[Origin], Position]
    """Returns the position at which a new consumer starts."""


class Origin:
    """A stream that another one copies messages from (sourceInfo). Used from the loop's thread."""

    def __init__(
        self, stream: TargetStream, source: StreamSource, kind: OriginKind, names: ConsumerNames
    ) -> None:
        self.stream = stream
        self.source = source
        self.kind = kind
        self.error: ApiError | None = None
        self._names = names
        self.consumer_name = names.of(source, mirror=kind is MIRROR)
        """Name to request for the consumer; unused with the user's own durable consumer."""
        self.sseq = 0
        """Sequence in the origin of the last message handled, when position() was last called."""
        self.stored = 0
        """Sequence in the origin of the last message stored."""
        self.identity = ""
        """Identity of the origin, "" while unknown. A stream that is deleted and made again has another."""
        self.made_again = False
        """The origin is a new stream of the same name, whose consumer has not been made yet."""
        self._shared = stream.jsa.shared
        self._log = self._shared.log
        self._transforms = tuple(
            SubjectTransform(each.src, each.dest) if each.dest else None for each in source.subject_transforms
        )
        self._lag = self._last = self._fails = 0
        self._asked_at: float | None = None
        self._timer: Timer | None = None
        self._due: PacedCall | None = None
        self._call: Call | None = None
        self._consumer: SourceConsumer | None = None
        self._probe: bytes | None = None
        self._level = 0
        self._config: ConsumerConfig | None = None

    # -- life ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Copy messages until stop()."""
        self._set_up_soon()

    def stop(self) -> None:
        """Stop copying messages. Idempotent."""
        self._cancel()

    def reach(self) -> None:
        """Request the consumer without the delay of earlier failures, unless it delivers or was requested."""
        if self._call or self._due or (self._consumer and not self._is_silent()):
            return
        if self._timer or self._consumer:
            self._retry()

    def leave(self) -> None:
        """Stop for good, and ask the origin to delete the consumer unless it is the user's own."""
        consumer, name, mine = self._consumer, self.consumer_name, self.source.consumer is None
        lasts = consumer is not None and consumer.name == name
        self.stop()
        if mine:
            subject = api_subject(self.source, "CONSUMER", "DELETE", self.source.name, name)
            Call(self.stream, subject, b"", {}, HEALTH_CHECK, partial(self._left, name, lasts))

    def _left(self, name: str, lasts: bool, message: Message | None) -> None:
        why: object = "timed out"
        if message:
            try:
                why = read_error(message.payload)
            except _MALFORMED as exc:
                why = exc
        if lasts and why:
            self._log.warn(
                f"Cleanup of {self.kind.what} consumer '{self.source.name} > {name}' failed for stream"
                f" {self._where}: {why}"
            )

    def position(self) -> tuple[int, str]:
        """Return the last handled sequence in the origin, and the origin's identity."""
        self._note_numbers()
        return self.sseq, self.identity

    @property
    def _client(self) -> InternalClient:
        return self._shared.clients.of(self.stream.jsa.account)

    @property
    def _where(self) -> str:
        return f"'{self.stream.jsa.name} > {self.stream.name}'"

    def _note_numbers(self) -> None:
        if self._consumer:
            self.sseq, stored, self._lag, self._last = self._consumer.numbers()
            self.stored = stored or self.stored

    def _cancel(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._due:
            self._due.cancel()
            self._due = None
        if self._call:
            self._call.cancel()
            self._call = None
        if self._probe:
            self._client.unsubscribe(self._probe)
            self._probe = None
        if consumer := self._consumer:
            consumer.close()
            self._note_numbers()
            self._consumer = None
            self._shared.unregister(consumer)

    # -- requests --------------------------------------------------------------------------------------------

    def _retry(self, *, failed: bool = False) -> None:
        """Request the consumer again, after a delay that grows with the failures in a row."""
        self._cancel()
        self._fails = self._fails + 1 if failed else 0
        delay = random.uniform(*JITTER) + retry_backoff(self._fails)
        if self._asked_at is not None:
            since = monotonic() - self._asked_at
            delay += max(RETRY_THRESHOLD - since, 0.0)
        self._timer = call_later(delay, self._set_up_soon)

    def _set_up_soon(self) -> None:
        """Request a consumer when it is this stream's turn: many of its origins may be due at once."""
        self._due = self._shared.paced.call(self.stream, self._set_up)

    def _set_up(self) -> None:
        """Request a consumer that starts after the last stored message."""
        self._cancel()
        self._asked_at = monotonic()
        self.error = None
        if self.source.consumer:
            self._config = None
        else:
            self._config = self._consumer_config()
        self._level = self.kind.durable_level if self.source.consumer else self.kind.level
        self._ask(with_identity=True)

    def _headers(self, with_identity: bool) -> dict[str, str]:
        headers = {"Nats-Required-Api-Level": str(self._level)} if self._level else {}
        if self._level and with_identity and self.kind.follows_identity:
            headers[_IDENTITY] = self.identity
        return headers

    def _ask(self, *, with_identity: bool) -> None:
        name, config = self.source.name, self._config
        headers, timeout, payload = self._headers(with_identity), CONSUMER_WAIT, b""
        if config is None:
            assert self.source.consumer
            tokens = ["CONSUMER", "RESET", name, self.source.consumer.name]
            timeout = DURABLE_WAIT
        else:
            tokens = ["CONSUMER", "CREATE", name]
            if config.filter_subject:
                tokens += [config.name, config.filter_subject]
            payload = marshal({"stream_name": name, "config": config.json(), "action": ""})
        self._call = Call(
            self.stream, api_subject(self.source, *tokens), payload, headers, timeout, self._answered
        )

    def _consumer_config(self) -> ConsumerConfig:
        """Return the configuration of the consumer to request."""
        stream, source = self.stream, self.source
        self.consumer_name = self._names.of(source, mirror=self.kind is MIRROR)
        key = f"_nats.{'mirror' if self.kind is MIRROR else 'src'}"
        metadata = {f"{key}.stream": stream.name, f"{key}.acc": stream.jsa.name}
        if domain := self._shared.domain:
            metadata[f"{key}.domain"] = domain
        prefix = f"{source.external.deliver}." if source.external and source.external.deliver else "$JS."
        filters = tuple(each.src for each in source.subject_transforms)
        filter_subject = source.filter_subject
        if len(filters) == 1 and not filter_subject:
            filter_subject, filters = filters[0], ()
        return ConsumerConfig(
            name=self.consumer_name,
            deliver_subject=_unique(f"{prefix}{self.kind.inbox}").replace("..", "."),
            ack_policy=ACK_NONE,
            ack_wait=_ACK_WAIT,
            max_deliver=1,
            idle_heartbeat=SECOND,
            flow_control=True,
            direct=True,
            sourcing=True,
            inactive_threshold=int(HEALTH_CHECK) * SECOND,
            filter_subject=filter_subject,
            filter_subjects=filters,
            metadata=metadata,
            **self.kind.start(self),
        )

    # -- answers ---------------------------------------------------------------------------------------------

    def _answered(self, message: Message | None) -> None:
        self._call = None
        if message is None:
            self._retry(failed=True)
            self._watch_for_life()
            return
        answer = read_answer(message, self.kind.setup_failed)
        if answer.error:
            if not self._recover(answer.error):
                self._fail(answer.error)
        elif self.source.consumer and answer.ack_policy != ACK_FLOW_CONTROL:
            self._fail(self.kind.requires_flow_control())
        else:
            self._start(answer)

    def _recover(self, error: ApiError) -> bool:
        """Request another consumer when `error` says how; return whether.

        The new one starts at the beginning of a stream that was made again, or an older server knows it.
        """
        if self.kind.follows_identity and errors.CONSUMER_STREAM_IDENTITY_MISMATCH.is_kind_of(error):
            self.sseq, self.identity, self.made_again = 0, "", True
            fails = self._fails
            self._retry()
            self._fails = fails
            return True
        old = errors.REQUIRED_API_LEVEL.is_kind_of(error) or errors.INVALID_JSON.is_kind_of(error)
        config = self._config
        if not old or self._level == 0:
            return False
        if self._level > 4:
            self._level -= 1
        elif config is None:
            return False
        else:
            # A server that does not know sourcing consumers would refuse a name that is in use.
            self._level = 0
            self._config = replace(config, name=_unique(config.name, "_"), sourcing=False)
        self._ask(with_identity=False)
        return True

    def _fail(self, error: ApiError) -> None:
        self._log.warn(
            f"JetStream error response for stream {self._where} create {self.kind.what} consumer"
            f" {self.source.name}: {error}"
        )
        self._retry(failed=True)
        self.error = error

    def _watch_for_life(self) -> None:
        """Request the user's own consumer again as soon as it delivers something, after it did not answer."""
        if self.source.consumer is None:
            return

        def alive(_: Message) -> None:
            self._retry()

        self._probe = self._client.subscribe(self.source.consumer.deliver_subject.encode(), alive)

    def _start(self, answer: Answer) -> None:
        """Store the messages that the consumer delivers."""
        self._fails = 0
        self._note_identity(answer.identity)
        try:
            consumer = SourceConsumer(
                self.stream.native,
                answer.name,
                index_name="" if self.kind is MIRROR else self.source.index_name(),
                identity=self.identity,
                transforms=self._transforms,
                post_caught_up=self.kind is MIRROR and self.stream.config.mirror_direct,
            )
        except MemoryError as exc:
            self._fail(self.kind.setup_failed(err=exc))
            return
        subject = self._config.deliver_subject if self._config else ""
        if self.source.consumer:
            subject = self.source.consumer.deliver_subject
        self._consumer = consumer
        self._shared.register(consumer, self)
        try:
            consumer.start(subject.encode(), delivered=answer.delivered, seen=self.sseq)
        except (StoreFailure, ValueError, MemoryError) as exc:
            self._fail(self.kind.setup_failed(err=exc))
            return
        self._timer = call_later(HEALTH_CHECK, self._check)

    def _note_identity(self, identity: str) -> None:
        if not self.kind.follows_identity:
            return
        if self.made_again or (identity and self.identity and identity != self.identity):
            self._log.warn(
                f'JetStream source stream "{self.source.name}" for stream {self._where} was recreated,'
                " resetting source state"
            )
            self.sseq = 0
        self.identity, self.made_again = identity, False

    def _check(self) -> None:
        """Request the consumer again if it has been silent for too long."""
        if self._is_silent():
            self._retry()
        else:
            self._timer = call_later(HEALTH_CHECK, self._check)

    def _is_silent(self) -> bool:
        """Whether the consumer has delivered nothing for too long, not even a heartbeat."""
        self._note_numbers()
        return monotonic_ns() - self._last > HEALTH_CHECK * SECOND

    def on_event(self, what: int, number: int, data: bytes) -> None:
        """Handle an event of the native consumer: the mirror has caught up, or a new consumer is needed."""
        if self._consumer is None:
            return
        if what == SourceEvent.CAUGHT_UP:
            self.stream.answer_for_origin()
        elif not self.stream.failure:
            self._log.debug(f"Retrying {self.kind.what} consumer for {self._where}")
            self._retry()

    def info(self) -> Json:
        """Describe the origin as responses do, as a StreamSourceInfo."""
        self._note_numbers()
        source = self.source
        found: Json = {"name": source.name}
        if source.external:
            found["external"] = source.external.json()
        found["lag"] = self._lag
        if self.stored and self.kind is SOURCE:
            found["seq"] = self.stored
        found["active"] = monotonic_ns() - self._last if self._last else -1
        if self.error:
            found["error"] = self.error.json()
        if source.filter_subject:
            found["filter_subject"] = source.filter_subject
        if source.subject_transforms:
            found["subject_transforms"] = [each.json() for each in source.subject_transforms]
        return found


def _start_of_mirror(origin: Origin) -> Position:
    """Return the position after the last message, which has the same sequence in the origin."""
    state, source = origin.stream.store.state(), origin.source
    if state.msgs or state.last_seq:
        return {"deliver_policy": DELIVER_BY_START_SEQUENCE, "opt_start_seq": state.last_seq + 1}
    if source.opt_start_seq:
        return {"deliver_policy": DELIVER_BY_START_SEQUENCE, "opt_start_seq": source.opt_start_seq}
    if source.opt_start_time:
        return {"deliver_policy": DELIVER_BY_START_TIME, "opt_start_time": source.opt_start_time}
    return {"deliver_policy": DELIVER_ALL}


def _start_of_source(origin: Origin) -> Position:
    """Return the position after the last handled message; for a new source, not before the newest message."""
    source = origin.source
    if origin.sseq:
        return {"deliver_policy": DELIVER_BY_START_SEQUENCE, "opt_start_seq": origin.sseq + 1}
    if source.opt_start_seq:
        return {"deliver_policy": DELIVER_BY_START_SEQUENCE, "opt_start_seq": source.opt_start_seq}
    state, start = origin.stream.store.state(), source.opt_start_time
    if state.last_ts and (
        (start and unix_ns(start) < state.last_ts)
        or (not start and state.first_seq > 1 and not origin.made_again)
    ):
        start = rfc3339(state.last_ts)
    if start:
        return {"deliver_policy": DELIVER_BY_START_TIME, "opt_start_time": start}
    return {"deliver_policy": DELIVER_ALL}


MIRROR = OriginKind(
    what="mirror",
    inbox="M",
    setup_failed=errors.MIRROR_CONSUMER_SETUP_FAILED,
    requires_flow_control=errors.MIRROR_CONSUMER_REQUIRES_ACK_FC,
    level=4,
    durable_level=0,
    follows_identity=False,
    start=_start_of_mirror,
)
"""The origin of a mirror, which stores the same messages under the same sequences."""

SOURCE = OriginKind(
    what="source",
    inbox="S",
    setup_failed=errors.SOURCE_CONSUMER_SETUP_FAILED,
    requires_flow_control=errors.SOURCE_CONSUMER_REQUIRES_ACK_FC,
    level=5,
    durable_level=5,
    follows_identity=True,
    start=_start_of_source,
)
"""The origin of a source, whose messages get new sequences and are stored among others."""
