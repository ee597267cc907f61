"""The control plane's half of a stream (stream.go): configuration, life on disk, consumers, queries.

The native stream (gnats.jetstream.stream.stream) and its store handle the messages.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gnats.clock import time_ns
from gnats.go.json import Json
from gnats.go.text import os_error, rfc3339
from gnats.go.times import ZERO_TIME
from gnats.jetstream import errors
from gnats.jetstream.batch.batching import AbandonReason
from gnats.jetstream.control.checks import CREATE_OR_UPDATE, check_consumer
from gnats.jetstream.control.consumers import Consumer
from gnats.jetstream.control.origins import Origins
from gnats.jetstream.control.proposals import (
    ConsumerDeleteProposal,
    ConsumerProposal,
    MessageDeleteProposal,
    PurgeProposal,
)
from gnats.jetstream.control.stream_store import holds_limits, is_synced, open_store, update_store
from gnats.jetstream.disk.conversion import convert_stream
from gnats.jetstream.disk.encryption import META_KEY, MetaError
from gnats.jetstream.disk.metafiles import (
    CONSUMERS,
    META_FILE,
    Undo,
    remove_directory,
    sync_meta,
    write_stream_meta,
)
from gnats.jetstream.disk.sources_state import SourcesState, write_sources_state
from gnats.jetstream.settings.config import (
    FILE,
    INTEREST,
    LIMITS,
    MEMORY,
    ConsumerConfig,
    StreamConfig,
)
from gnats.jetstream.settings.consumer_rules import check_consumer_cfg, completed, with_defaults
from gnats.jetstream.state.streamcore import StreamEvent
from gnats.jetstream.stream.stream import Stream as NativeStream
from gnats.jetstream.stream.stream import StreamError
from gnats.jetstream.threads import in_thread
from gnats.nkeys.identity import random_name, server_hash
from gnats.store.store import StoreFailure
from gnats.store.times.zones import has_database

if TYPE_CHECKING:
    from gnats.jetstream.control.shared import Member, StreamAccount
    from gnats.jetstream.disk.encryption import Seal
    from gnats.store.store import MsgStore
StoredMessage = tuple[bytes, int, bytes, bytes, int]
"""Subject, sequence, header, payload, and ns since 1970."""

_NAME_LEN = 8
_NO_REASON = "offline"
_MOST_LOST = 100_000
_MOST_DELETED = 250_000
"""Most sequences that an answer lists, because a gap may be of any size."""


class Stream:
    """A stream of an account, used from the loop's thread. Made by create().

    With an `offline_reason` it only exists to be listed, and its native stream and store are missing.
    """

    def __init__(
        self, jsa: StreamAccount, config: StreamConfig, tier: str, created: int, *, offline_reason: str = ""
    ) -> None:
        self.jsa = jsa
        self._shared = jsa.shared
        self._log = jsa.shared.log
        self.config = config
        self.tier = tier
        self.created = created
        self.offline_reason = offline_reason
        self.consumers: dict[str, Consumer] = {}
        self._direct = self._sourcing = 0  # direct consumers, and other consumers for sourcing
        self.origins = Origins(self)
        self.seal: Seal | None = None
        self._meta_unsynced = False
        self._written_sources: SourcesState | None = None
        self._undo: Undo | None = None
        self._native: NativeStream | None = None
        self._store: MsgStore | None = None
        self.replicated = False
        self.member: Member | None = None
        """Its place in its group; None: it has none, and this server decides alone."""

    @property
    def leads(self) -> bool:
        """Whether this server answers for the stream."""
        return self.member.leads if self.member else not self.replicated

    @property
    def name(self) -> str:
        return self.config.name

    @cached_property
    def directory(self) -> Path:
        """The directory of a stream that is stored in files."""
        return self.jsa.streams_dir / self.name

    @cached_property
    def consumers_directory(self) -> Path:
        """The directory of the consumers that are stored in files."""
        return self.directory / CONSUMERS

    @property
    def native(self) -> NativeStream:
        """The data plane's half. Raises ApiError for a stream that is offline."""
        if self._native is None:
            raise errors.STREAM_OFFLINE_REASON(err=self.offline_reason or _NO_REASON)
        return self._native

    @property
    def store(self) -> MsgStore:
        """The messages. Raises ApiError for a stream that is offline."""
        if self._store is None:
            raise errors.STREAM_OFFLINE_REASON(err=self.offline_reason or _NO_REASON)
        return self._store

    @property
    def failure(self) -> str:
        """The error that made the store read-only, "" when it can be written."""
        return self._store.failure() if self._store else ""

    @property
    def identity(self) -> str:
        """A hash that differs between this stream and a later one of the same name (identity)."""
        return server_hash(rfc3339(self.created))

    # -- life ------------------------------------------------------------------------------------------------

    @classmethod
    async def create(
        cls,
        jsa: StreamAccount,
        config: StreamConfig,
        tier: str,
        created: int,
        *,
        recovering: bool,
        replicated: bool = False,
        store: MsgStore | None = None,
    ) -> Stream:
        """Make a stream and subscribe it; `store`, if given, is its open store.

        Raises ApiError, after removing all that it has made. When `recovering`, the caller subscribes it once
        its consumers have been recovered, because without them it may drop messages that they want, and
        starts the origins once all streams have been recovered. A `replicated` one is subscribed when this
        server leads its group.
        """
        stream = cls(jsa, config, tier, created)
        stream.replicated = replicated
        try:
            await stream._begin(recovering=recovering, store=store)
        except Exception:
            await stream._give_up()
            raise
        return stream

    async def _begin(self, *, recovering: bool, store: MsgStore | None) -> None:
        """Raises ApiError."""
        jsa, config, shared = self.jsa, self.config, self._shared
        try:
            if store is None:
                store = await in_thread(lambda: self._open(new=not recovering))
        except OSError as exc:
            raise errors.STREAM_STORE_FAILED(err=os_error(exc)) from exc
        except MetaError as exc:
            if recovering:
                raise errors.STREAM_STORE_FAILED(err=exc) from exc
            # The error names paths: log it, and do not show them to the client.
            self._log.error(f"Error creating stream '{jsa.name} > {config.name}': {exc}")
            raise errors.STREAM_STORE_FAILED(err="metadata cannot be used") from exc
        self._store = store
        self._native = NativeStream(
            shared.engine,
            jsa.account,
            config.name,
            store,
            cid=shared.clients.next_cid(),
            domain=shared.domain,
            account_usage=jsa.usage(self.tier),
            server_usage=shared.usage,
            batch_limits=shared.batch_limits,
        )
        shared.register(self._native, self)
        self._configure(config)
        if holds_limits(config):
            try:
                await in_thread(lambda: update_store(store, config))
            except StoreFailure as exc:
                raise errors.STREAM_STORE_FAILED(err=exc) from exc
        if not recovering and not self.replicated:
            self.subscribe()
            await self.origins.start()
        self._undo = None

    def subscribe(self) -> None:
        """Store messages from now on. Raises ApiError for a stream that is offline."""
        self.native.subscribe()

    def lead(self) -> None:
        """Store what is published, and copy messages from the origins, from now on. Raises ApiError."""
        self.subscribe()
        self._shared.spawn(self.origins.start())

    def follow(self) -> None:
        """Store nothing more: another server does. Idempotent."""
        self.origins.stop()
        self.origins = Origins(self)
        self.native.unsubscribe()

    async def _give_up(self) -> None:
        """Undo _begin(), also half-way; remove the files that it has written if the stream is new."""
        self.origins.stop()
        self._close_native()
        undo, store = self._undo, self._store
        self._native = self._store = self._undo = None
        try:
            if store is not None:
                await in_thread(store.close)
        except (StoreFailure, OSError) as exc:
            self._log_error("closing", exc)
        try:
            if undo:
                await asyncio.to_thread(undo.undo)
        except OSError as exc:
            self._log_error("removing", exc)

    def _close_native(self) -> None:
        """Close the data plane's half, if there is one."""
        if self._native is not None:
            self._shared.unregister(self._native)
            self._native.close()

    def _log_error(self, doing: str, exc: OSError) -> None:
        self._log.error(f"Error {doing} stream '{self.jsa.name} > {self.name}': {os_error(exc)}")

    def _configure(self, config: StreamConfig) -> None:
        if config.allow_msg_schedules and not has_database():
            where = f"stream '{self.jsa.name} > {self.name}'"
            self._log.warn(f"No time zone database: {where} refuses schedules with time zones")
        # What a group commits is synced in its log, and in the store before it leaves that.
        self.native.configure(config, sync_always=is_synced(self.jsa, config) and not self.replicated)

    @property
    def sync_always(self) -> bool:
        """Whether messages are synced before they are acknowledged."""
        return is_synced(self.jsa, self.config)

    def _open(self, *, new: bool) -> MsgStore:
        """Open the store; in a thread. Raises OSError or MetaError.

        A `new` stream adopts messages that it finds: they belong to a stream whose metadata was unreadable.
        """
        if self.config.storage == FILE:
            if new:
                self._undo = Undo(self.directory)
            self._unlock(new=new)
        held = holds_limits(self.config)
        return open_store(self.jsa, self.config, self.directory, self.seal, self._warn, hold_limits=held)

    def _unlock(self, *, new: bool) -> None:
        """Read or make the keys, write a missing or `new` description, and convert files to the current key.

        Raises OSError or MetaError.
        """
        keys, account = self._shared.keys, self.jsa.name
        there = (self.directory / META_FILE).exists()
        self.seal = keys.open(self.directory / META_KEY, account, self.name)
        if not there and not self.seal:
            self.seal = keys.make(self.directory, account, self.name)
        if new or not there:
            always = self.sync_always
            write_stream_meta(self.directory, self.config, self.created, self.seal, sync=always)
            self._meta_unsynced = not always
        if keys:
            config, created = self.config, self.created
            self.seal = convert_stream(self.directory, keys, account, config, created, self.seal, self._say)

    def _warn(self, text: str) -> None:
        """Log a warning of the recovery. May be called in any thread."""
        self._shared.loop.call_soon_threadsafe(
            self._log.warn, f"Stream '{self.jsa.name} > {self.name}': {text}"
        )

    def _say(self, text: str) -> None:
        """Log a notice of the conversion. May be called in any thread."""
        self._shared.loop.call_soon_threadsafe(
            self._log.notice, f"Stream '{self.jsa.name} > {self.name}': {text}"
        )

    async def sync(self) -> None:
        """Sync what is written, write state files and tidy up the blocks. Logs errors."""
        store = self._store
        if store is None or self.config.storage == MEMORY or self.failure:
            return
        sources = self.origins.state()
        if store.rests() and sources in (None, self._written_sources) and not self._meta_unsynced:
            return
        try:
            if self._meta_unsynced:
                await asyncio.to_thread(sync_meta, self.directory)
                self._meta_unsynced = False
            await in_thread(store.sync_flushed)
            await self._write_sources(sources)
            await in_thread(store.write_state)
            await in_thread(store.maintain)
        except (OSError, StoreFailure) as exc:
            if self._store is None:  # the stream has been deleted meanwhile
                return
            self._log.error(f"Error syncing stream '{self.jsa.name} > {self.name}': {exc}")

    async def _write_sources(self, state: SourcesState | None) -> None:
        """Write the positions of the sources, which count stored messages only. Raises OSError."""
        if state is not None and state != self._written_sources:
            self._written_sources = None
            await asyncio.to_thread(write_sources_state, self.directory, state)
            self._written_sources = state

    async def update(self, config: StreamConfig) -> None:
        """Change to a configuration that has been checked. Raises ApiError.

        After an error the old configuration is back, except when only the positions of the sources could not
        be written.
        """
        old, undo = self.config, None
        try:
            if config.storage == FILE:
                undo = await asyncio.to_thread(Undo, self.directory)
                await asyncio.to_thread(write_stream_meta, self.directory, config, self.created, self.seal)
            # The store first: it must know TTLs and schedules before the first one is acknowledged.
            await in_thread(lambda: self._update_store(config))
            self._change(config)
        except Exception as exc:
            await self._change_back(old, undo)
            if isinstance(exc, OSError):
                text = exc if isinstance(exc, StoreFailure) else os_error(exc)
                raise errors.STREAM_UPDATE(err=text) from exc
            raise
        self.native.look_for_expired()
        if config.retention != old.retention:
            await self.forget_acknowledged()
        await self.origins.update(old)
        try:
            await self._write_sources(self.origins.state())
        except OSError as exc:
            raise errors.STREAM_UPDATE(err=os_error(exc)) from exc

    async def forget_acknowledged(self) -> None:
        """Remove messages that the consumers have acknowledged, if retention depends on them.

        An interest stream without consumers has no messages, but a replicated one may not know them yet. One
        with consumers keeps older messages that pass none of their filters, as in nats-server, unless it is
        replicated: there a batch leaves some.
        """
        if self.config.retention == INTEREST and bool(self.consumers) == self.replicated:
            await in_thread(self.native.forget_unneeded)
        elif self.config.retention != LIMITS:
            for consumer in list(self.consumers.values()):
                await in_thread(consumer.check_state_for_interest_stream)

    def _update_store(self, config: StreamConfig) -> None:
        """Apply a configuration to the store; in a thread. Raises StoreFailure."""
        try:
            update_store(self.store, config)
        finally:
            self.native.limits_changed()

    def _change(self, config: StreamConfig) -> None:
        self._configure(config)
        self.config = config
        for consumer in self.consumers.values():
            consumer.stream_changed()

    async def _change_back(self, old: StreamConfig, undo: Undo | None) -> None:
        """Go back to the `old` configuration. Messages that the new limits removed do not come back."""
        if self._native is not None:
            self._change(old)
            try:
                await in_thread(lambda: self._update_store(old))
            except StoreFailure as exc:
                self._log_error("changing", exc)
        try:
            if undo:
                await asyncio.to_thread(undo.undo)
        except OSError as exc:
            self._log_error("changing", exc)

    async def stop(self) -> None:
        """Stop the stream and its consumers, and write their state. Stored data stays."""
        await self.origins.wind_down()
        if self.member:
            await self.member.close()
        await self._leave_groups()
        for consumer in list(self.consumers.values()):
            consumer.stop()
        sources = self.origins.state() if self._store is not None else None
        self._close_native()
        if self._store is not None:
            store = self._store
            try:
                await in_thread(store.close)
                await self._write_sources(sources)
            except (StoreFailure, OSError) as exc:
                self._log.error(f"Error stopping stream '{self.jsa.name} > {self.name}': {exc}")
        self._native = self._store = None

    async def _leave_groups(self, *, removes: bool = False) -> None:
        """Have the consumers leave their groups, and remove the files of these. Raises ApiError."""
        for consumer in list(self.consumers.values()):
            await _leave_group(consumer, removes=removes)

    def go_offline(self, reason: str) -> None:
        """Stop, and stay in lists as an offline stream with this reason."""
        self.offline_reason = reason
        self.origins.stop()
        self._close_native()
        store = self._store
        self._native = self._store = None
        if store is not None:
            try:
                store.close()
            except StoreFailure as exc:
                self._log_error("closing", exc)

    async def delete(self) -> None:
        """Stop, and delete the files. Raises ApiError."""
        await self._leave_groups(removes=True)
        for consumer in list(self.consumers.values()):
            consumer.stop(deleting=True, files=False)  # their files are in the stream's directory
        self.consumers.clear()
        self._direct = self._sourcing = 0
        self.origins.stop()
        if self.member:
            await self.member.close()
        store, self._store = self._store, None
        self._close_native()
        self._native = None
        if store is not None:
            try:
                await in_thread(store.close)
            except StoreFailure as exc:  # no harm: the files are deleted next
                self._log.debug(f"Closing stream '{self.jsa.name} > {self.name}': {exc}")
        if self.config.storage == FILE and self.directory.is_dir():
            try:
                await asyncio.to_thread(remove_directory, self.directory, sync=self.sync_always)
            except OSError as exc:
                raise errors.STREAM_DELETE(err=os_error(exc)) from exc
        if self.member:
            try:
                await self.member.remove()
            except OSError as exc:
                raise errors.STREAM_DELETE(err=os_error(exc)) from exc

    # -- messages --------------------------------------------------------------------------------------------

    def message(self, seq: int, last_for: str, next_for: str) -> StoredMessage | None:
        """Find a message; None when there is none, or it cannot be read.

        With `next_for`: the first of that subject from `seq` on. Else with `seq`: the message of that
        sequence. Else: the last of the subject `last_for`.
        """
        try:
            if next_for:
                found = self.store.get_next((next_for.encode(),), seq)
            elif seq:
                found = self.store.get(seq)
            else:
                found = self.store.get_last(last_for.encode())
        except StoreFailure:
            return None
        if found is None:
            return None
        sequence, when, subject, header, payload = found
        return subject, sequence, header, payload, when

    def seq_from_time(self, when: int) -> int:
        seq: int = self.store.seq_at(when)
        return seq

    def check_may_delete(self) -> None:
        """Raise ApiError when the stream is sealed, or its configuration denies deletes."""
        if self.config.sealed:
            raise errors.STREAM_SEALED()
        if self.config.deny_delete:
            raise errors.STREAM_MSG_DELETE_FAILED(err="message delete not permitted")

    def check_delete_message(self, seq: int, *, erase: bool) -> MessageDeleteProposal:
        """Check a request to delete a message, after check_may_delete(). Raises ApiError."""
        if self.config.storage == FILE:
            state = self.store.state()
            if seq > state.last_seq:
                raise errors.STREAM_MSG_DELETE_FAILED(err="stream store EOF")
            if seq == 0 or seq < state.first_seq:
                raise errors.STREAM_MSG_DELETE_FAILED(err="no message found")
        return MessageDeleteProposal(self.name, seq, erase)

    def apply_delete_message(self, proposal: MessageDeleteProposal) -> bool:
        """Delete a message; return False when the stream does not have it. Raises ApiError."""
        try:
            return self.native.delete_msg(proposal.seq, proposal.erase)
        except (StoreFailure, StreamError) as exc:
            raise errors.STREAM_MSG_DELETE_FAILED(err=exc) from exc

    def check_purge(self, subject: str, seq: int, keep: int) -> PurgeProposal:
        """Check a request to remove messages, as PurgeProposal says. Raises ApiError."""
        if self.config.sealed:
            raise errors.STREAM_SEALED()
        if self.config.deny_purge:
            raise errors.STREAM_PURGE_FAILED(err="stream purge not permitted")
        return PurgeProposal(self.name, subject, seq, keep)

    async def apply_purge(self, proposal: PurgeProposal) -> int:
        """Remove messages; return how many. Raises ApiError."""
        native, subject = self.native, proposal.subject.encode()
        try:
            return await in_thread(lambda: native.purge(subject, proposal.seq, proposal.keep))
        except (StoreFailure, StreamError) as exc:
            raise errors.STREAM_GENERAL(err=exc) from exc

    def on_event(self, what: int, number: int, data: bytes) -> None:
        """Report an event of the native stream: damage, an abandoned batch, or a store that is read-only."""
        shared = self._shared
        if what == StreamEvent.STREAM_DAMAGED:
            self._report_damage()
            return
        if what == StreamEvent.BATCH_ABANDONED:
            self.native.advisory_published()
            shared.advisories.batch_abandoned(self.jsa.account, self.name, data, AbandonReason(number))
            return
        reason = self.failure or os.strerror(number)
        self._log.error(f"JetStream stream '{self.jsa.name} > {self.name}' is read-only: {reason}")
        shared.advisories.out_of_storage(self.name)

    def look_at_batches(self) -> None:
        """Apply changed limits to the open batches."""
        if self._native is not None:
            self._native.look_at_batches()

    def _report_damage(self) -> None:
        """Log the messages whose loss was discovered while messages were read."""
        for block, first, last, count in self._store.newly_lost() if self._store else ():
            where = f"Stream '{self.jsa.name} > {self.name}': block {block}"
            self._log.error(f"{where}: {count} messages are lost to damage, sequences {first} to {last}")

    def answer_for_origin(self) -> None:
        """Answer direct gets to the origin, too, if the configuration allows it.

        Called when this mirror has nearly caught up with its origin.
        """
        if self.config.mirror and self.config.mirror_direct:
            self.native.answer_for(self.config.mirror.name)

    # -- information -----------------------------------------------------------------------------------------

    def state(self, *, details: bool = False) -> Json:
        """Return the stream's counts (StreamState); with `details`, also the deleted sequences."""
        if self._store is None:
            return EMPTY_STATE | {"consumer_count": 0}
        found = self._store.state()
        state: Json = {
            "messages": found.msgs,
            "bytes": found.bytes,
            "first_seq": found.first_seq if found.msgs or found.last_seq or self.config.first_seq else 0,
            "first_ts": rfc3339(found.first_ts) if found.first_ts else ZERO_TIME,
            "last_seq": found.last_seq,
            "last_ts": rfc3339(found.last_ts) if found.last_ts else ZERO_TIME,
        }
        if found.num_subjects:
            state["num_subjects"] = found.num_subjects
        if found.num_deleted:
            state["num_deleted"] = found.num_deleted
            if details:
                state["deleted"] = _sequences(self._store.deleted(), _MOST_DELETED)
        if found.lost_msgs or found.lost_bytes:
            lost = _sequences(self._store.lost_ranges(), _MOST_LOST)
            state["lost"] = {"msgs": lost or None, "bytes": found.lost_bytes}
        state["consumer_count"] = self.consumer_count
        return state

    @property
    def consumer_count(self) -> int:
        """The number of consumers, without the direct consumers of mirrors and sources."""
        return len(self.consumers) - self._direct

    def subjects_page(self, subject: str, offset: int, most: int) -> tuple[int, dict[str, int]]:
        """Return the number of subjects that match, and one page of (subject: messages), in order.

        May be called in any thread.
        """
        total, page = self.store.subjects_page((subject.encode(),), offset, most)
        return total, {name.decode("utf-8", "replace"): count for name, count in page}

    # -- consumers -------------------------------------------------------------------------------------------

    def consumer(self, name: str) -> Consumer:
        """Return the consumer of that name. Raises ApiError."""
        consumer = self.consumers.get(name)
        if consumer is None:
            raise errors.CONSUMER_NOT_FOUND()
        return consumer

    def new_consumer_name(self) -> str:
        """Return a random name that no consumer has."""
        while True:
            name = random_name(_NAME_LEN)
            if name not in self.consumers:
                return name

    async def check_add_consumer(
        self, config: ConsumerConfig, *, action: str = CREATE_OR_UPDATE, pedantic: bool = False
    ) -> ConsumerProposal:
        """Check a request to make a consumer or to change it (check_consumer). Raises ApiError."""
        there = _Consumers(self)
        config = await check_consumer(self.jsa, self.config, there, config, action=action, pedantic=pedantic)
        name = config.durable_name or config.name
        if consumer := self.consumers.get(name):
            return ConsumerProposal(self.name, name, consumer.complete(config), consumer.created)
        return ConsumerProposal(self.name, name or self.new_consumer_name(), completed(config), time_ns())

    def apply_consumer(self, proposal: ConsumerProposal) -> Consumer:
        """Make a consumer, or change the existing one (addConsumer). Raises ApiError."""
        if there := self.consumers.get(proposal.name):
            there.update(
                there.complete(proposal.config)
            )  # a meta leader leaves this to the consumer's server
            return there
        consumer = Consumer(
            self,
            proposal.name,
            completed(proposal.config),
            proposal.created,
            replicated=proposal.replicated,
        )
        consumer.start(proposal.state)
        self.enter_consumer(consumer)
        return consumer

    def recover_consumer(self, name: str, config: ConsumerConfig, created: int) -> Consumer:
        """Start a consumer that was found on the disk. Raises ApiError."""
        limits, _ = self.jsa.select_limits(config.replicas(self.config))
        server = self._shared.config.options.limits
        config = with_defaults(config, self.config, server, limits)
        overlaps = self._shared.overlaps
        check_consumer_cfg(config, server, self.config, limits, recovering=True, overlaps=overlaps)
        replicated = self.replicated and config.replicas(self.config) > 1
        consumer = Consumer(self, name, completed(config), created, replicated=replicated)
        consumer.start(recovering=True)
        self.enter_consumer(consumer)
        return consumer

    def enter_consumer(self, consumer: Consumer) -> None:
        """Add a consumer to the stream's table and counts."""
        self.consumers[consumer.name] = consumer
        self._count(consumer, 1)

    def _count(self, consumer: Consumer, n: int) -> None:
        self._direct += n * consumer.config.direct
        self._sourcing += n * (consumer.config.sourcing and not consumer.config.direct)

    @property
    def limitable(self) -> int:
        """The number of consumers that count against limits."""
        return len(self.consumers) - self._direct - self._sourcing

    def check_delete_consumer(self, name: str) -> ConsumerDeleteProposal:
        """Check a request to delete a consumer. Raises ApiError."""
        return self.consumer(name).check_deletion()

    async def apply_delete_consumer(self, proposal: ConsumerDeleteProposal) -> Consumer | None:
        """Delete a consumer and its files, unless it is gone; return it (deleteConsumer).

        With interest retention, also removes the messages that only this consumer wanted.
        """
        consumer = self.consumers.get(proposal.name)
        if consumer is None or consumer.created != proposal.created:
            return None
        del self.consumers[consumer.name]
        self._count(consumer, -1)
        await asyncio.shield(_leave_group(consumer, removes=True))
        native = consumer.stop(deleting=True)
        if native and self.config.retention == INTEREST:
            await asyncio.shield(self._shared.forget_unneeded(native))
        return consumer


async def _leave_group(consumer: Consumer, *, removes: bool) -> None:
    """Have a consumer leave its group, if it has one, and remove the files of that. Raises ApiError."""
    if consumer.member:
        await consumer.member.close()
        if removes:
            try:
                await consumer.member.remove()
            except OSError as exc:
                raise errors.CONSUMER_STORE_FAILED(err=os_error(exc)) from exc


class _Consumers:
    """The consumers of a stream, for check_consumer()."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def config(self, name: str) -> ConsumerConfig | None:
        consumer = self._stream.consumers.get(name)
        return consumer.config if consumer else None

    def limitable(self) -> int:
        return self._stream.limitable

    def with_filters(self, subjects: tuple[str, ...]) -> Iterator[tuple[str, ConsumerConfig]]:
        stream = self._stream
        found = (stream.native.consumers_with(subject.encode()) for subject in subjects)
        for name in {consumer.name for consumers in found for consumer in consumers}:
            yield name, stream.consumers[name].config


def _sequences(ranges: list[tuple[int, int]], most: int) -> list[int]:
    """List the first `most` sequences of `ranges`."""
    found: list[int] = []
    for first, last in ranges:
        found += range(first, min(last + 1, first + most - len(found)))
        if len(found) == most:
            break
    return found


EMPTY_STATE: Json = {
    "messages": 0,
    "bytes": 0,
    "first_seq": 0,
    "first_ts": ZERO_TIME,
    "last_seq": 0,
    "last_ts": ZERO_TIME,
}
