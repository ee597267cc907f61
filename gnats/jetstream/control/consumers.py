"""The control plane's half of a consumer (consumer.go): configuration, state on disk, information, resets.

The native consumer (gnats.jetstream.consumer.consumer) delivers the messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gnats.accounts.internal_client import Message
from gnats.clock import time_ns
from gnats.go.json import Json, JSONError, marshal, unmarshal
from gnats.go.text import os_error, quote, rfc3339
from gnats.go.times import ZERO_TIME, unix_ns, utc
from gnats.jetstream import errors
from gnats.jetstream.consumer.consumer import Consumer as NativeConsumer
from gnats.jetstream.consumer.consumer import ResetError
from gnats.jetstream.consumer.consumerstate import ConsumerEvent
from gnats.jetstream.control.checks import checked_update
from gnats.jetstream.control.proposals import (
    ConsumerDeleteProposal,
    ConsumerProposal,
    ConsumerResetProposal,
    ConsumerUnpinProposal,
)
from gnats.jetstream.disk.conversion import convert_consumer, read_consumer_state
from gnats.jetstream.disk.encryption import META_KEY, MetaError
from gnats.jetstream.disk.metafiles import META_FILE, STATE_FILE, Undo, remove_directory, write_consumer_meta
from gnats.jetstream.errors import ApiError
from gnats.jetstream.replica.consumerreplica import ConsumerReplica
from gnats.jetstream.settings.config import FILE, ConsumerConfig
from gnats.jetstream.settings.consumer_rules import check_consumer_reset, ending
from gnats.store.format.codec import decode_consumer
from gnats.system.files import replace_file

if TYPE_CHECKING:
    from gnats.jetstream.control.shared import ConsumerMember, StreamAccount
    from gnats.jetstream.disk.encryption import Seal
    from gnats.jetstream.settings.config import StreamConfig
    from gnats.jetstream.stream.stream import Stream as NativeStream
    from gnats.store.store import MsgStore

_RESET_RESPONSE = "io.nats.jetstream.api.v1.consumer_reset_response"


class ConsumerStream(Protocol):
    """The stream as its consumers see it."""

    jsa: StreamAccount
    config: StreamConfig

    @property
    def name(self) -> str: ...
    @property
    def native(self) -> NativeStream: ...
    @property
    def store(self) -> MsgStore: ...
    @property
    def identity(self) -> str: ...
    @property
    def sync_always(self) -> bool: ...
    @property
    def consumers_directory(self) -> Path: ...

    def seq_from_time(self, when: int) -> int:
        """Return the first sequence stored at or after a time (ns since 1970), or the last sequence + 1."""


class Consumer:
    """A consumer of a stream, used from the loop's thread unless a method says otherwise.

    With an `offline_reason` it only exists to be listed, and its native consumer is missing.
    """

    def __init__(
        self,
        stream: ConsumerStream,
        name: str,
        config: ConsumerConfig,
        created: int,
        *,
        offline_reason: str = "",
        replicated: bool = False,
    ) -> None:
        self.stream = stream
        self._shared = stream.jsa.shared
        self._log = stream.jsa.shared.log
        self.name = name
        self.config = replace(config, pause_until=utc(config.pause_until)) if config.pause_until else config
        self.created = created
        self.offline_reason = offline_reason
        self.replicated = replicated
        self.member: ConsumerMember | None = None
        """Its place in its group, once it has joined that; None: this server decides alone."""
        self._replica: ConsumerReplica | None = None
        self._native: NativeConsumer | None = None
        self._unwritten = False  # state() was called, and its result has not been written yet
        self._seal: Seal | None = None
        self._reset: tuple[Callable[[bytes], None], bytes] | None = None

    @property
    def leads(self) -> bool:
        """Whether this server answers for the consumer."""
        return self.member.leads if self.member else not self.replicated

    @property
    def directory(self) -> Path:
        """The directory of a consumer that is stored in files."""
        return self.stream.consumers_directory / self.name

    @property
    def is_stored(self) -> bool:
        config = self.config
        return self.stream.config.storage == FILE and not config.mem_storage and not config.direct

    def stream_changed(self) -> None:
        """Apply the stream's changed configuration, on which the consumer's depends."""
        if self._native is not None:
            self._native.configure(self.config)

    @property
    def native(self) -> NativeConsumer:
        """The data plane's half. Raises ApiError for a consumer that is offline."""
        if self._native is None:
            raise errors.CONSUMER_OFFLINE_REASON(err=self.offline_reason or "offline")
        return self._native

    # -- life ------------------------------------------------------------------------------------------------

    def start(self, restored: bytes = b"", *, recovering: bool = False) -> None:
        """Begin to deliver, from the position of the stored state, of `restored`, or of the configuration.

        When `recovering`, the description is on the disk already. A replicated one delivers when this server
        leads its group. Raises ApiError.
        """
        undo: Undo | None = None
        try:
            if self.is_stored and not recovering:
                undo = Undo(self.directory)
            self._begin(restored, recovering=recovering)
        except Exception as exc:
            self._give_up(undo)
            if isinstance(exc, (OSError, OverflowError, ValueError, MetaError)):
                text = os_error(exc) if isinstance(exc, OSError) else exc
                raise errors.CONSUMER_STORE_FAILED(err=text) from exc
            raise

    def _begin(self, restored: bytes, *, recovering: bool) -> None:
        state, stored = restored or None, b""
        if self.is_stored:
            if self._unlock(recovering=recovering) and not self.replicated:
                stored = read_consumer_state(self.directory, self._seal)
            state = stored or state
        if self.replicated:
            self._replica = ConsumerReplica(self.stream.native, self.name, self.config)
            return
        native = self._make(state)
        if self.is_stored and not stored:
            self.write(native.state())
        self._start(native)

    def _make(self, state: bytes | None) -> NativeConsumer:
        """Make the data plane's half. Raises ValueError, OverflowError, MemoryError."""
        jsa, shared = self.stream.jsa, self._shared
        self._native = native = NativeConsumer(
            self.stream.native,
            self.name,
            self.config,
            account=jsa.name,
            domain=shared.domain,
            reply_v2=shared.options().feature_flags.get("js_ack_fc_v2", False),
            state=state,
            burst=shared.options().max_payload,
            created=self.created,
            replicated=self.replicated,
        )
        shared.register(native, self)
        return native

    def _start(self, native: NativeConsumer) -> None:
        """Deliver, and answer to resets. Raises MemoryError."""
        native.start()
        client = self._shared.clients.of(self.stream.jsa.account)
        subject = f"$JS.API.CONSUMER.RESET.{self.stream.name}.{self.name}".encode()
        self._reset = client.unsubscribe, client.subscribe(subject, self._process_reset)

    @property
    def replica(self) -> ConsumerReplica:
        """What the group of a replicated one has decided. Raises ApiError for a consumer that has stopped."""
        if self._replica is None:
            raise errors.CONSUMER_OFFLINE_REASON(err=self.offline_reason or "offline")
        return self._replica

    def lead(self, term: int) -> bool:
        """Deliver in a term, from what the group has decided. False: another one has begun, or it cannot."""
        try:
            native = self._make(self.replica.state())
            if self.replica.lead(native, term):
                self._start(native)
                return True
        except (ApiError, ValueError, OverflowError, MemoryError) as exc:
            self._log.error(f"JetStream cluster: consumer {self._where} cannot deliver: {exc!r:.200}")
        self.follow()
        return False

    def follow(self) -> None:
        """Leave it to another server to deliver. Idempotent."""
        native, self._native = self._native, None
        if native is not None:
            self.replica.follow()
            self._leave(native)
            native.close(follows=True)

    def _leave(self, native: NativeConsumer) -> None:
        """Hear of the data plane's half no more, nor of resets."""
        if self._reset:
            unsubscribe, sid = self._reset
            unsubscribe(sid)
            self._reset = None
        self._shared.unregister(native)

    def _give_up(self, undo: Undo | None) -> None:
        """Undo _begin(), also half-way; remove the files that it has written if the consumer is new."""
        native, self._native = self._native, None
        if native is not None:
            self._shared.unregister(native)
            native.close(deleted=undo is not None)
        self._close_replica()
        try:
            if undo:
                undo.undo()
        except OSError as exc:
            self._log.error(f"Error removing consumer {self._where}: {os_error(exc)}")

    def _close_replica(self) -> None:
        if self._replica is not None:
            self._replica.close()
            self._replica = None

    @property
    def _where(self) -> str:
        return f"'{self.stream.jsa.name} > {self.stream.name} > {self.name}'"

    def _unlock(self, *, recovering: bool) -> bool:
        """Read or make the key, and write the description; return whether there was one before.

        Raises OSError or MetaError.
        """
        keys, account, name = self._shared.keys, self.stream.jsa.name, f"{self.stream.name}.{self.name}"
        directory = self.directory
        if (directory / META_FILE).exists():
            self._seal = keys.open(directory / META_KEY, account, name)
            if keys and not (self._seal and self._seal.is_current):
                stream, config, created = self.stream.name, self.config, self.created
                self._seal = convert_consumer(
                    directory, keys, account, stream, self.name, config, created, self._seal
                )
            elif not recovering:  # the description on the disk may be damaged, or an older consumer's
                self._write_meta(self.config)
            return True
        self._seal = keys.make(directory, account, name, sync=self.stream.sync_always)
        self._write_meta(self.config)
        return False

    def _write_meta(self, config: ConsumerConfig) -> None:
        """Write the description. Raises OSError."""
        write_consumer_meta(
            self.directory,
            self.stream.name,
            self.name,
            config,
            self.created,
            self._seal,
            sync=self.stream.sync_always,
        )

    def check_update(self, config: ConsumerConfig) -> ConsumerProposal:
        """Check a request to change the configuration. Raises ApiError."""
        config = self.complete(checked_update(self.stream.jsa.account, self.config, config))
        return ConsumerProposal(self.stream.name, self.name, config, self.created)

    def complete(self, config: ConsumerConfig) -> ConsumerConfig:
        """Complete a configuration to change to: an ephemeral consumer ends, even when that is durable."""
        return config if self.config.is_durable else ending(config)

    def check_pause(self, until: str) -> ConsumerProposal:
        """Check a request to pause the consumer until a time (RFC 3339), or to let it go on ("").

        Raises ApiError.
        """
        return self.check_update(replace(self.config, pause_until=until).with_static_metadata())

    def update(self, config: ConsumerConfig) -> None:
        """Change to a configuration that has been checked. Raises ApiError, with nothing changed."""
        native = self._native if self.replicated else self.native
        undo = None
        try:
            if self.is_stored:
                undo = Undo(self.directory)
                self._write_meta(config)
            self._configure(native, config)
            if config.sourcing and native:
                self._reset_to(native, native.check_reset(0))
        except Exception as exc:
            self._configure(native, self.config)
            if undo:
                undo.undo()
            if isinstance(exc, OSError):
                raise errors.CONSUMER_STORE_FAILED(err=os_error(exc)) from exc
            raise
        filters, self.config = self.config.filters, config
        if filters != config.filters and (half := self._replica or native):
            self._shared.forget_unneeded(half)

    def check_state_for_interest_stream(self) -> None:
        """Have the stream remove what was acknowledged, if it is still there. Any thread."""
        if half := self._replica or self._native:
            half.check_state_for_interest_stream()

    def _reset_to(self, native: NativeConsumer, seq: int) -> None:
        if self._replica:
            self._replica.propose_reset(seq, b"")
        else:
            native.reset(seq)

    def _configure(self, native: NativeConsumer | None, config: ConsumerConfig) -> None:
        if native:
            native.configure(config)
        if self._replica:
            self._replica.configure(config)

    def check_deletion(self) -> ConsumerDeleteProposal:
        """Return the proposal to delete the consumer."""
        return ConsumerDeleteProposal(self.stream.name, self.name, self.created)

    def signal_shutdown(self) -> None:
        """Answer all waiting pull requests: the server is shutting down."""
        if self._native is not None:
            self._native.signal_shutdown()

    def stop(self, *, deleting: bool = False, files: bool = True) -> NativeConsumer | ConsumerReplica | None:
        """Stop delivering. Write the state; with `deleting`, delete the files instead.

        Without `files`, leave the files to the caller. Returns what may have the stream forget messages: the
        native consumer, or the replica; None if it was stopped before.
        """
        native, self._native = self._native, None
        half = self._replica or native
        if half is None:
            return None
        if native:
            self._leave(native)
            native.close(deleted=deleting)
        self._close_replica()
        if self.is_stored and files:
            self._settle(native, deleting=deleting)
        return half

    def _settle(self, native: NativeConsumer | None, *, deleting: bool) -> None:
        """Write the state, or delete the files."""
        with self._shared.states.leaving(self):
            if deleting:
                try:
                    remove_directory(self.directory)
                except OSError as exc:
                    if not isinstance(exc, FileNotFoundError):
                        self._log.error(f"Error removing consumer {self._where}: {os_error(exc)}")
            elif native and not self.replicated and (native.is_dirty or self._unwritten):
                self.write(native.state())

    # -- the state -------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self._native is not None

    def state(self) -> bytes | None:
        """Return the state for write(), None when the consumer has stopped."""
        if self._native is None:
            return None
        self._unwritten = True
        return self._native.state()

    def recorded(self) -> bytes:
        """Return the state, as an o.dat, unsealed. Raises ApiError for a consumer that is offline."""
        if self._native is None and self._replica and (state := self._replica.state()):
            return state
        return self.native.state()

    def write(self, state: bytes) -> None:
        """Write the state file. Logs errors. Any thread, but only one at a time."""
        try:
            directory = self.directory
            if directory.is_dir():
                state = self._seal.seal(state) if self._seal else state
                replace_file(directory / STATE_FILE, state, sync=self.stream.sync_always)
                self._unwritten = False
        except FileNotFoundError:  # the consumer has been deleted meanwhile
            return
        except OSError as exc:
            self._log.error(f"State of consumer {self._where} cannot be written: {os_error(exc)}")

    # -- events of the native consumer -----------------------------------------------------------------------

    def on_event(self, what: int, number: int, data: bytes) -> None:
        """Handle an event of the native consumer: write state, delete the consumer, or publish advisories."""
        if self._native is None:
            return
        jsa = self.stream.jsa
        advisories, account, names = self._shared.advisories, jsa.account, (self.stream.name, self.name)
        if what == ConsumerEvent.CONSUMER_DIRTY:
            if self.is_stored:
                self._shared.states.note(self)
            return
        if what == ConsumerEvent.CONSUMER_INACTIVE:
            self._shared.spawn(jsa.propose(self.check_deletion()))
            return
        if what == ConsumerEvent.CONSUMER_UNPAUSED:
            advisories.consumer_pause(account, *names, self.config.pause_until)
            return
        sseq, dseq, deliveries, ack_time, text = NativeConsumer.notice(data)
        shown = text.decode("utf-8", "replace")
        if what == ConsumerEvent.CONSUMER_ACKED:
            advisories.ack_metric(
                account,
                *names,
                consumer_seq=dseq,
                stream_seq=sseq,
                ack_time=ack_time,
                deliveries=deliveries,
            )
        elif what == ConsumerEvent.CONSUMER_MAX_DELIVERIES:
            fields: Json = {"stream_seq": sseq, "deliveries": deliveries}
            advisories.about_message(account, "MAX_DELIVERIES", "max_deliver", *names, fields)
        elif what == ConsumerEvent.CONSUMER_NAKED:
            fields = {"consumer_seq": dseq, "stream_seq": sseq, "deliveries": deliveries}
            advisories.about_message(account, "MSG_NAKED", "nak", *names, fields)
        elif what == ConsumerEvent.CONSUMER_TERMINATED:
            fields = {"consumer_seq": dseq, "stream_seq": sseq, "deliveries": deliveries}
            reason = {"reason": shown} if shown else {}
            advisories.about_message(account, "MSG_TERMINATED", "terminated", *names, fields | reason)
        elif what == ConsumerEvent.CONSUMER_PINNED:
            advisories.group(account, "PINNED", "consumer_group_pinned", *names, self._group, pinned_id=shown)
        elif what == ConsumerEvent.CONSUMER_UNPINNED:
            advisories.group(
                account, "UNPINNED", "consumer_group_unpinned", *names, self._group, reason="timeout"
            )
        elif what == ConsumerEvent.CONSUMER_BAD_NAK:
            self._warn(f"bad NAK delay value: {quote(text)}")
        elif what == ConsumerEvent.CONSUMER_ACK_BEYOND:
            last = self.stream.store.state().last_seq
            self._warn(f"ACK sequence {sseq} past last stream sequence of {last}")

    def _warn(self, text: str) -> None:
        """Log a warning that a client has caused, not more than once a second each."""
        account, stream = self.stream.jsa.name, self.stream.name
        line = f"JetStream consumer '{account} > {stream} > {self.name}' {text}"
        if self._log.allow(line):
            self._log.warn(line)

    @property
    def _group(self) -> str:
        return self.config.priority_groups[0] if self.config.priority_groups else ""

    # -- information -----------------------------------------------------------------------------------------

    def numbers(self) -> Json:
        """Return the position and the counts: the native consumer's, or what the group has decided."""
        if self._native is None and self._replica:
            return _numbers(self._replica.state())
        return self.native.info()

    def pause_remaining(self) -> int:
        """Return for how many ns the consumer is still paused, 0 when it is not."""
        return max(unix_ns(self.config.pause_until) - time_ns(), 0)

    def priority_group(self, numbers: Json) -> Json:
        """Describe the consumer's priority group; `numbers` are of numbers()."""
        found: Json = {"group": self._group}
        if pin := numbers["pin"]:
            found["pinned_client_id"] = pin
        when = numbers["pinned_ts"]
        return found | {"pinned_ts": rfc3339(when) if when else ZERO_TIME}

    def check_unpin(self, group: str) -> ConsumerUnpinProposal:
        """Check a request to unpin the pinned client of a group. Raises ApiError."""
        if group not in self.config.priority_groups:
            raise errors.CONSUMER_INVALID_PRIORITY_GROUP()
        return ConsumerUnpinProposal(self.stream.name, self.name, group)

    def apply_unpin(self, proposal: ConsumerUnpinProposal) -> None:
        """Unpin the pinned client of the consumer's only group. Raises ApiError."""
        self.native.unpin()

    # -- resets ----------------------------------------------------------------------------------------------

    def _process_reset(self, message: Message) -> None:
        """Answer a reset request, which an account sends without the API (processResetReq)."""
        if message.reply and self._native is not None:
            self._shared.spawn(self._answer_reset(message))

    async def _answer_reset(self, message: Message) -> None:
        answer: Json = {"type": _RESET_RESPONSE}
        jsa, header = self.stream.jsa, None
        try:
            seq = await jsa.propose(self.check_reset(message))
            answer |= consumer_info(self) | {"reset_seq": seq}
        except ApiError as exc:
            answer |= {"error": exc.json(), "reset_seq": 0}
        else:
            if message.has_header(b"Nats-Stream-Identity"):
                header = b"NATS/1.0\r\nNats-Stream-Identity: %s\r\n\r\n" % self.stream.identity.encode()
        client = self._shared.clients.of(jsa.account)
        client.publish(message.reply, marshal(answer), reply=b"", header=header)

    def check_reset(self, request: Message) -> ConsumerResetProposal:
        """Check a request to reset the consumer. Raises ApiError."""
        from gnats.jetstream.state.headers import required_level

        if not required_level(request.header):
            raise errors.REQUIRED_API_LEVEL()
        seq = _reset_to(request.payload)
        check_consumer_reset(self.config, seq, self.stream.seq_from_time)
        return ConsumerResetProposal(self.stream.name, self.name, seq)

    async def apply_reset(self, proposal: ConsumerResetProposal) -> int:
        """Reset the consumer; return the sequence that it goes on from. Raises ApiError."""
        try:
            seq = self.native.check_reset(proposal.seq)
        except ResetError as exc:
            raise errors.CONSUMER_INVALID_RESET(err=exc) from exc
        if self.member:
            return await self.member.reset(seq)
        self.native.reset(seq)
        return seq


def _numbers(state: bytes | None) -> Json:
    """Return the numbers that a state has, as NativeConsumer.info() does; None: it is at its beginning."""
    delivered, floor, pending, redelivered = decode_consumer(state) if state else ((0, 0), (0, 0), [], [])
    return {
        "delivered_consumer": delivered[0],
        "delivered_stream": delivered[1],
        "ack_floor_consumer": floor[0],
        "ack_floor_stream": floor[1],
        "num_ack_pending": len(pending),
        "num_redelivered": len(redelivered),
        "num_waiting": 0,
        "num_pending": 0,
        "pin": None,
        "pinned_ts": 0,
    }


def _reset_to(payload: bytes) -> int:
    """Return the sequence that a reset request asks for, 0 for the one after the ack floor.

    Raises ApiError.
    """
    if not payload:
        return 0
    try:
        found = unmarshal(payload, {"seq": "uint64"}, "JSApiConsumerResetRequest")
    except JSONError as exc:
        raise errors.INVALID_JSON(err=exc) from None
    seq = found.get("seq", 0)
    assert isinstance(seq, int)
    return seq


def consumer_info(consumer: Consumer, *, dynamic: bool = True) -> Json:
    """Describe a consumer as responses do (ConsumerInfo in consumer.go).

    `dynamic` adds the server's version and API level to the metadata.
    """
    config = consumer.config.with_dynamic_metadata() if dynamic else consumer.config
    numbers = consumer.numbers()
    info: Json = {
        "stream_name": consumer.stream.name,
        "name": consumer.name,
        "created": rfc3339(consumer.created),
        "config": config.json(),
        "delivered": _sequences(numbers, "delivered"),
        "ack_floor": _sequences(numbers, "ack_floor"),
        "num_ack_pending": numbers["num_ack_pending"],
        "num_redelivered": 0 if config.max_deliver == 1 else numbers["num_redelivered"],
        "num_waiting": numbers["num_waiting"],
        "num_pending": numbers["num_pending"],
    }
    cluster = consumer.member.cluster_info() if consumer.member else consumer.stream.jsa.shared.cluster_info
    if cluster:
        info["cluster"] = cluster
    if numbers.get("push_bound"):
        info["push_bound"] = True
    if remaining := consumer.pause_remaining():
        info |= {"paused": True, "pause_remaining": remaining}
    info["ts"] = rfc3339(time_ns())
    if config.priority_groups:
        info["priority_groups"] = [consumer.priority_group(numbers)]
    return info


def _sequences(numbers: Json, which: str) -> Json:
    found = {
        "consumer_seq": numbers[f"{which}_consumer"],
        "stream_seq": numbers[f"{which}_stream"],
    }
    if last := numbers.get(f"{which}_last"):
        found["last_active"] = rfc3339(last)
    return found
