"""A consumer with replicas at a server: who leads its group, its snapshots and resets (monitorConsumer)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from gnats.jetstream.control.groupmember import GroupMember, SnapshotTimer
from gnats.jetstream.control.raftgroup import RaftGroup
from gnats.jetstream.threads import in_thread

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.jetstream.cluster.entries import ConsumerAssignment
    from gnats.jetstream.cluster.nodes import Nodes
    from gnats.jetstream.control.consumers import Consumer
    from gnats.jetstream.replica.raftnode import Entries


class _ConsumerGroup(RaftGroup):
    machine: ConsumerMembership

    def _restore(self, index: int, data: bytes) -> bool:
        self.machine.restore(data)
        self.node.resume(index)
        return False

    def _change(self, index: int, data: bytes) -> None:
        self.machine.change(data)
        self.node.resume(index)

    def _grown(self, *, much: bool) -> None:
        self.machine.grown(much=much)


class ConsumerMembership(GroupMember):
    """A consumer's place in its group. open() it."""

    def __init__(
        self, consumer: Consumer, assignment: ConsumerAssignment, nodes: Nodes, system: Account
    ) -> None:
        stream = consumer.stream
        what = f"consumer '{stream.jsa.name} > {stream.name} > {consumer.name}'"
        super().__init__(stream.jsa.shared, assignment.group, nodes, system, what)
        self.consumer = consumer
        self._leads = False
        self._closed = False
        self._raft: RaftGroup | None = None
        self.log = consumer.replica
        """What the group has decided."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._snapshots = SnapshotTimer(self.snapshot, self._spawn)

    @property
    def raft(self) -> RaftGroup:
        assert self._raft
        return self._raft

    @property
    def joined(self) -> bool:
        return self._raft is not None

    @property
    def leads(self) -> bool:
        return self._leads

    async def open(self) -> None:
        """Join the group. Raises OSError, FilesError, MemoryError."""
        is_new, peers = self.is_new(), self.peers()
        self._raft = await _ConsumerGroup.open(
            self.shared,
            self.system,
            self.group.name,
            self,
            peer=self.nodes.peer.encode(),
            peers=lambda: (len(peers), peers),
            in_memory=not self.consumer.is_stored,
            prepare=self.log.join,
        )
        self.begin(is_new=is_new)

    # -- the group's -----------------------------------------------------------------------------------------

    def apply(self, index: int, entries: Entries) -> None:
        raise AssertionError("the data plane's half applies them")

    def restore(self, data: bytes) -> None:
        """Become what a snapshot says."""
        if not data:
            return
        try:
            self.log.restore(data)
        except ValueError as exc:
            self.stopped(str(exc))

    def taken(self) -> None:
        """The data plane's half knows what is applied."""

    def lead(self, term: int) -> None:
        """Deliver from now on."""
        consumer, stream = self.consumer, self.consumer.stream
        if not consumer.lead(term):
            return
        self._leads = True
        self.shared.advisories.consumer_leader_elected(
            stream.jsa.account, stream.name, consumer.name, self.nodes.name_of(self.nodes.peer), self.led()
        )

    def follow(self) -> None:
        """Leave it to another server."""
        self._leads = False
        self.consumer.follow()
        self.fail_asked()

    def leader_changed(self, leader: str) -> None:
        """Who leads is asked for when it is needed."""

    def stopped(self, why: str) -> None:
        self.note_stopped(why)
        self.follow()

    def grown(self, *, much: bool) -> None:
        """Have what was applied in the next snapshot."""
        self._snapshots.changed(much=much)

    async def snapshot(self) -> bool:
        """Replace the records that are applied by a snapshot; True. Raises StoreFailure, MemoryError."""
        store = self.consumer.stream.store
        log, node = self.log, self.raft.node
        if self._closed or node.failure:
            return True

        def take() -> None:
            index, state = log.snapshot(store.state().first_seq)
            node.install_snapshot(index, state)

        await in_thread(take)
        return True

    def _spawn(self, work: Awaitable[object]) -> None:
        async def run() -> None:
            await work

        task = self.shared.spawn(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- resets ----------------------------------------------------------------------------------------------

    async def reset(self, seq: int) -> int:
        """Have all servers reset the consumer; return the sequence that it goes on from. Raises ApiError."""
        begun: int = await self.ask(lambda key: self.log.propose_reset(seq, key.encode()))
        return begun

    def change(self, data: bytes) -> None:
        """Carry out a reset; the consumer that has proposed it has begun anew already."""
        seq, reply = max(int.from_bytes(data[1:9], "little"), 1), data[9:].decode(errors="replace")
        self.log.reset(seq)
        self.tell(reply, seq)

    # -- its end ---------------------------------------------------------------------------------------------

    async def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._leads = False
        self._snapshots.close()
        self.fail_asked()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.log.follow()
        if self._raft:
            self._raft.close()
