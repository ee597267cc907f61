"""This server's replica of a stream: its group, its snapshots, messages that it lacks (monitorStream)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from gnats.clock import call_later, sleep
from gnats.jetstream.control.groupmember import SnapshotTimer
from gnats.jetstream.control.raftgroup import RaftGroup
from gnats.jetstream.replica.catchup import CATCHUP_FAILED, Catchup, CatchupReceiver, CatchupSender
from gnats.jetstream.replica.streamreplica import StreamReplica
from gnats.jetstream.replica.streamstate import ReplicatedState, decode, encode
from gnats.jetstream.threads import in_thread
from gnats.nkeys.identity import random_name
from gnats.store.index.seqset import SequenceSet

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.accounts.internal_client import Message
    from gnats.jetstream.control.shared import Shared
    from gnats.jetstream.replica.raftnode import Entries, RaftNode
    from gnats.jetstream.stream.stream import Stream
    from gnats.store.store import MsgStore

ASK_AGAIN = 2.0
"""Seconds from a request for messages that came to nothing to the next one."""
ANSWERED = 3.0
"""Seconds in which the first message comes from a leader that has heard the request."""
SILENT = 30.0
"""Seconds without a message after which a replica asks anew."""
MOST_SENDERS = 32
"""Replicas that this server sends messages of one stream to at the same time."""
_NAME_LEN = 8


class Owner(Protocol):
    """What a replica belongs to."""

    def lead(self, term: int) -> None:
        """This server leads from now on."""

    def follow(self) -> None:
        """This server does not lead any more."""

    def leader_changed(self, leader: str) -> None:
        """Another peer leads as far as this server knows; "": none."""

    def stopped(self, why: str) -> None:
        """The replica has stopped, and does not go on before a restart."""

    async def carry_out(self, index: int, change: bytes) -> None:
        """Carry out a deletion or a purge. Raises ValueError for a change that cannot be read."""


class _StreamGroup(RaftGroup):
    machine: Replica

    def _restore(self, index: int, data: bytes) -> bool:
        self.machine.take_over(index, data)
        return False

    def _change(self, index: int, data: bytes) -> None:
        self.machine.change(index, data)

    def _grown(self, *, much: bool) -> None:
        self.machine.grown(much=much)


class Replica:
    """A stream's replica. Used from the loop's thread only. open() it, then begin()."""

    group: RaftGroup
    log: StreamReplica

    def __init__(
        self, shared: Shared, system: Account, stream: Stream, store: MsgStore, owner: Owner, sync: str
    ) -> None:
        self.shared = shared
        self.system = system
        self.stream = stream
        self.store = store
        self.owner = owner
        self.sync = sync.encode()
        """The subject on which the leader is asked for messages."""
        self.leads = False
        self.opened = False
        """Whether `group` and `log` are there."""
        self.catching_up = False
        self._client = shared.clients.of(system)
        self._sync_sid = b""
        self._senders: set[_Sender] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._snapshots = SnapshotTimer(self.snapshot, self._spawn)
        self._closed = False

    async def open(
        self, name: str, peer: bytes, peers: Callable[[], tuple[int, list[bytes]]], *, in_memory: bool = False
    ) -> None:
        """Open the files of the group. Raises OSError, FilesError, MemoryError."""
        group = await _StreamGroup.open(
            self.shared,
            self.system,
            name,
            self,
            peer=peer,
            peers=peers,
            in_memory=in_memory,
            prepare=self._put_behind,
        )
        self.group = group
        self.opened = True

    def _put_behind(self, node: RaftNode) -> None:
        self.log = StreamReplica(self.stream, node)

    def begin(self, *, recovering: bool) -> None:
        """Take part in the group."""
        self.group.begin(recovering=recovering)

    # -- the group's -----------------------------------------------------------------------------------------

    def apply(self, index: int, entries: Entries) -> None:
        raise AssertionError("the stream's half applies them")

    def restore(self, data: bytes) -> None:
        raise AssertionError("take_over() does that")

    def taken(self) -> None:
        """The stream's half knows what is applied."""

    def grown(self, *, much: bool) -> None:
        """Have what was applied in the next snapshot."""
        self._snapshots.changed(much=much)

    def lead(self, term: int) -> None:
        self.leads = True
        if not self._sync_sid:
            self._sync_sid = self._client.subscribe(self.sync, self._on_sync_request)
        self.owner.lead(term)

    def follow(self) -> None:
        self.leads = False
        self._unsubscribe()
        self.owner.follow()

    def leader_changed(self, leader: str) -> None:
        self.owner.leader_changed(leader)

    def stopped(self, why: str) -> None:
        self._unsubscribe()
        self.owner.stopped(why)

    def change(self, index: int, data: bytes) -> None:
        """Carry out a change that comes between messages."""

        async def carry_out() -> None:
            try:
                await self.owner.carry_out(index, data)
            except ValueError as exc:
                self.owner.stopped(str(exc))
                return
            self._resume(index)

        self._spawn(carry_out())

    def _resume(self, index: int) -> None:
        if not self._closed:
            self.group.node.resume(index)

    def _spawn(self, work: Awaitable[object]) -> None:
        async def run() -> None:
            await work

        task = self.shared.spawn(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _unsubscribe(self) -> None:
        if self._sync_sid:
            self._client.unsubscribe(self._sync_sid)
            self._sync_sid = b""
        for sender in list(self._senders):
            sender.close()

    # -- snapshots -------------------------------------------------------------------------------------------

    async def snapshot(self) -> bool:
        """Replace the records that are applied by a snapshot. False: that is not possible now.

        Raises StoreFailure.
        """
        node, store = self.group.node, self.store
        state = node.state()
        index = state["applied"]
        if self._closed or index <= state["snapshot"] or self.group.node.failure:
            return True
        if self.catching_up:
            return False

        def make() -> bool:
            # What is stored meanwhile does no harm: a replay knows what is there.
            store.flush_pending()
            store.sync_flushed()
            return node.install_snapshot(index, encode(self.state()))

        return await in_thread(make)

    def state(self) -> ReplicatedState:
        refused = self.log.refused
        state = self.store.state()
        return ReplicatedState(
            state.msgs, state.bytes, state.first_seq, state.last_seq, refused, self.store.deleted()
        )

    def take_over(self, index: int, data: bytes) -> None:
        """Become what a snapshot says: remove what it has not, and get what it has from the leader."""

        async def take_over() -> None:
            self.catching_up = True
            try:
                await self._take_over(data)
            except ValueError as exc:
                self.owner.stopped(f"a snapshot is not understood: {exc}")
                return
            finally:
                self.catching_up = False
            self._resume(index)

        self._spawn(take_over())

    async def _take_over(self, data: bytes) -> None:
        snapshot = decode(data) if data else ReplicatedState(0, 0, 0, 0, 0)
        await in_thread(lambda: self._remove_deleted(snapshot))
        self.log.set_refused(snapshot.refused)
        if self.store.state().last_seq < snapshot.last_seq:
            self.group.node.set_observer(True)  # it could not tell others what it lacks itself
            while self.store.state().last_seq < snapshot.last_seq:
                await self._ask(snapshot.last_seq)
            self.group.node.set_observer(self.shared.retires)
            self.store.flush_pending()

    def _remove_deleted(self, snapshot: ReplicatedState) -> None:
        """Remove what the snapshot has not. In a thread."""
        if snapshot.first_seq > self.store.state().first_seq:
            self.store.compact_to(snapshot.first_seq)
            self.stream.limits_changed()
        state = self.store.state()
        gone = SequenceSet()
        for first, last in self.store.deleted():
            gone.insert_range(first, last)
        for first, last in snapshot.deleted:
            seq = gone.next_absent(max(first, state.first_seq))
            while 0 < seq <= min(last, state.last_seq):
                self.stream.delete_msg(seq)
                seq = gone.next_absent(seq + 1)

    # -- messages that this replica lacks --------------------------------------------------------------------

    async def _ask(self, last: int) -> None:
        """Ask the leader for messages up to a sequence, and store them."""
        await self.group.led.wait()
        inbox = f"$JSC.R.{random_name(_NAME_LEN)}".encode()
        receiver = _Receiver(self, inbox)
        try:
            request = {
                "peer": self.group.node.peer.decode(),
                "first_seq": self.store.state().last_seq + 1,
                "last_seq": last,
                "delete_ranges": True,
                "min_applied": self.group.node.state()["applied"],
            }
            self._client.publish(self.sync, json.dumps(request).encode(), reply=inbox)
            await receiver.wait()
        finally:
            receiver.close()
        if self.store.state().last_seq < last:
            if receiver.native.failure:
                self.shared.log.warn(
                    f"Catchup for stream '{self.stream.name}' errored, will retry: {receiver.native.failure}"
                )
            await sleep(ASK_AGAIN)

    def _on_sync_request(self, message: Message) -> None:
        """A replica asks for messages (handleClusterSyncRequest)."""
        try:
            request = json.loads(message.payload)
            first, last = int(request["first_seq"]), int(request["last_seq"])
        except (ValueError, KeyError, TypeError):
            return
        if not self.leads or not message.reply or len(self._senders) >= MOST_SENDERS:
            return
        if first < 1 or last > self.store.state().last_seq:
            return  # what it asks for is not applied here yet: it will ask again
        _Sender(self, message.reply, first, last)

    # -- its end ---------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Leave the group for now. Idempotent. Raises StoreFailure when the files could not be written."""
        if self._closed:
            return
        self._closed = True
        self._unsubscribe()
        self._snapshots.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        try:
            self.group.close()
        finally:
            self.log.close()


class _End:
    """One end of a catch-up: it ends when no message has passed for SILENT seconds, or none at first."""

    def __init__(self, replica: Replica, native: Catchup) -> None:
        self.replica = replica
        self.native = native
        replica.shared.register(native, self)
        self._timer = call_later(ANSWERED, self._look)
        self._seen = 0

    def _look(self) -> None:
        if self.native.messages == self._seen:
            self._ended()
            return
        self._seen = self.native.messages
        self._timer = call_later(SILENT, self._look)

    def _ended(self) -> None:
        raise NotImplementedError

    def on_event(self, what: int, number: int, data: bytes) -> None:
        self._ended()

    def close(self) -> None:
        self._timer.cancel()
        self.replica.shared.unregister(self.native)
        self.native.close()


class _Sender(_End):
    """Sends messages to another replica."""

    def __init__(self, replica: Replica, to: bytes, first: int, last: int) -> None:
        shared = replica.shared
        native = CatchupSender(
            shared.engine,
            replica.system,
            replica.stream,
            cid=shared.clients.next_cid(),
            to=to,
            ack_root=f"$JSC.ACK.{random_name(_NAME_LEN)}".encode(),
            first=first,
            last=last,
        )
        super().__init__(replica, native)
        replica._senders.add(self)
        native.start()

    def on_event(self, what: int, number: int, data: bytes) -> None:
        if what == CATCHUP_FAILED:
            self.replica.shared.log.warn(
                f"Catchup for stream '{self.replica.stream.name}' was aborted: {self.native.failure}"
            )
        self._ended()

    def _ended(self) -> None:
        self.close()

    def close(self) -> None:
        self.replica._senders.discard(self)
        super().close()


class _Receiver(_End):
    """Stores messages that the leader sends."""

    def __init__(self, replica: Replica, inbox: bytes) -> None:
        shared = replica.shared
        self._end = asyncio.Event()
        cid = shared.clients.next_cid()
        super().__init__(
            replica, CatchupReceiver(shared.engine, replica.system, replica.stream, cid=cid, inbox=inbox)
        )

    def _ended(self) -> None:
        self._end.set()

    async def wait(self) -> None:
        await self._end.wait()
