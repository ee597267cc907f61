"""A Raft group of this server: the meta layer's, a stream's or a consumer's (createRaftGroup)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gnats.clock import time_ns
from gnats.jetstream.cluster.cluster_info import LEADER_SEEN
from gnats.jetstream.replica.raftnode import (
    APPLIED_CHANGE,
    APPLIED_ENTRIES,
    APPLIED_FOLLOW,
    APPLIED_LEAD,
    APPLIED_LEADER,
    APPLIED_MUCH,
    APPLIED_SNAPSHOT,
    APPLIED_SOME,
    APPLIED_TRUST,
    RAFT_NEWS,
    RaftNode,
)
from gnats.jetstream.threads import in_thread
from gnats.raft.files import RaftFiles, bootstrap

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.jetstream.control.shared import Shared
    from gnats.jetstream.replica.raftnode import Entries


class StateMachine(Protocol):
    """What a group's committed entries change. It is called in the order of the log."""

    def apply(self, index: int, entries: Entries) -> None:
        """Carry out the entries of a record."""

    def restore(self, data: bytes) -> None:
        """Replace the state by that of a snapshot."""

    def taken(self) -> None:
        """What has come so far is applied."""

    def lead(self, term: int) -> None:
        """This server leads from now on."""

    def follow(self) -> None:
        """This server does not lead any more."""

    def leader_changed(self, leader: str) -> None:
        """Another peer leads as far as this server knows; "": none. This server is one, before lead()."""

    def stopped(self, why: str) -> None:
        """The group has stopped at this server, and does not go on before a restart."""


class RaftGroup:
    """A member of a group: its files, its node, its state machine. Used from the loop's thread only."""

    def __init__(self, shared: Shared, node: RaftNode, machine: StateMachine) -> None:
        self.shared = shared
        self.node = node
        self.machine = machine
        self.begun = False
        self.leader_since: int | None = None
        """When this server began to lead, in ns since 1970; None while it does not."""
        self.had_leader = False
        """Whether a leader was known since the start."""
        self.led = asyncio.Event()
        """Set while a leader is known."""
        self._stopped = False
        shared.register(node, self)
        shared.groups.add(self)

    @classmethod
    async def open(
        cls,
        shared: Shared,
        account: Account,
        name: str,
        machine: StateMachine,
        *,
        peer: bytes,
        peers: Callable[[], tuple[int, list[bytes]]],
        managed: bool = True,
        in_memory: bool = False,
        prepare: Callable[[RaftNode], object] | None = None,
    ) -> RaftGroup:
        """Open a member's files below `account`, the system account; `peer` is its name.

        `peers` returns the number of peers and those that are known; it is called for a new member.
        `prepare` is given the node before it reads the files: to put it behind a stream. The machine
        has what the files say when this returns. Raises OSError, FilesError, MemoryError.
        """
        options = shared.config.options
        directory = Path(shared.config.store_dir, account.name, "_js_", name)
        if not (directory / "peers.idx").exists():
            size, known = peers()
            await in_thread(lambda: bootstrap(directory, size, known))
        sync_always = options.sync_always and not in_memory
        seal = shared.keys.make(directory, name, name, sync=options.sync_always) if shared.keys else None

        def open_files() -> RaftFiles:
            return RaftFiles(
                directory,
                name,
                sync_always=sync_always,
                in_memory=in_memory,
                cipher=seal.cipher if seal else None,
                key=seal.key if seal else b"",
                account=name,
                warn=shared.log.warn,
            )

        files = await in_thread(open_files)
        node = RaftNode(
            shared.engine,
            account,
            files,
            name,
            peer,
            cid=shared.clients.next_cid(),
            managed=managed,
            sync_always=sync_always,
        )
        try:
            if prepare:
                prepare(node)
            await in_thread(node.recover)
        except BaseException:
            node.close()
            raise
        group = cls(shared, node, machine)
        group._take()
        return group

    def begin(self, *, recovering: bool, observer: bool = False) -> None:
        """Take part in the group; `recovering`: this server may have been a member before.

        An `observer` never leads; nor does a server that is about to go.
        """
        self.begun = True
        self.node.begin(recovering or self.node.files.bootstrapped, observer or self.shared.retires)

    @property
    def is_current(self) -> bool:
        """Whether this server leads, or has heard its leader lately and catches up with nobody (isCurrent).

        What is committed is applied in the loop's next turn, so that does not count.
        """
        if self.node.failure:
            return False
        state = self.node.state()
        if state["state"] == "Leader":
            return True
        _, heard = state["peers"].get(state["leader"], (0, -1))
        return bool(state["commit"] > 0 and not state["catching_up"] and 0 <= heard <= LEADER_SEEN)

    def retire(self) -> bool:
        """Let another member lead, and never lead again: this server is about to go.

        False: it did not lead.
        """
        led = self.node.step_down()
        self.node.set_observer(True)
        if led:
            self.led.clear()
        return led

    def on_event(self, what: int, number: int, data: bytes) -> None:
        if what == RAFT_NEWS:
            self._take()

    def _take(self) -> None:
        applied = 0
        for kind, number, value in self.node.take():
            if kind == APPLIED_ENTRIES:
                self.machine.apply(number, value)
                applied = number
            elif kind == APPLIED_SNAPSHOT:
                if self._restore(number, value):
                    applied = number
            elif kind == APPLIED_CHANGE:
                self._change(number, value)
            elif kind in (APPLIED_SOME, APPLIED_MUCH):
                self._grown(much=kind == APPLIED_MUCH)
            elif kind == APPLIED_LEAD:
                self.leader_since = time_ns()
                self.machine.lead(number)
            elif kind == APPLIED_FOLLOW:
                self.leader_since = None
                self.machine.follow()
            elif kind == APPLIED_LEADER:
                self._note_leader(value)
            elif kind == APPLIED_TRUST:
                self.shared.log.notice(f"RAFT [{self.node.group}] has again what it had lost to damage")
        if applied:
            self.node.applied(applied)
        if self.begun:
            self.machine.taken()
        if (why := self.node.failure) and not self._stopped:
            self._stopped = True
            self.machine.stopped(why)

    def _restore(self, index: int, data: bytes) -> bool:
        """Take over the state of a snapshot. False: that is under way, and the node is to resume after it."""
        self.machine.restore(data)
        return True

    def _change(self, index: int, data: bytes) -> None:
        """Carry out an entry that the stream's half has handed on, and then have the node resume."""
        raise NotImplementedError

    def _grown(self, *, much: bool) -> None:
        """The data plane's half has applied something, or much, since the last snapshot."""
        raise NotImplementedError

    def _note_leader(self, leader: bytes) -> None:
        if leader:
            self.had_leader = True
            self.led.set()
        else:
            self.led.clear()
        self.machine.leader_changed(leader.decode(errors="replace"))

    def close(self) -> None:
        """Leave the group for now. Idempotent. Raises StoreFailure when the files could not be written."""
        self.shared.groups.discard(self)
        self.shared.unregister(self.node)
        self.node.close()
