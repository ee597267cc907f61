"""A replicated stream at a server: who leads its group, and changes that the group decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gnats.clock import Timer, call_later
from gnats.jetstream.control.groupmember import GroupMember
from gnats.jetstream.control.proposals import MessageDeleteProposal, PurgeProposal
from gnats.jetstream.control.replica import Replica
from gnats.jetstream.errors import ApiError
from gnats.jetstream.settings.config import LIMITS, MEMORY

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.jetstream.cluster.entries import StreamAssignment
    from gnats.jetstream.cluster.nodes import Nodes
    from gnats.jetstream.control.raftgroup import RaftGroup
    from gnats.jetstream.control.streams import Stream


SCAN_INTERVAL = 60.0
"""Seconds after which the leader looks again for messages that no consumer needs."""
LOOK_AGAIN = 0.5
"""Seconds from a look for consumers that are not here yet to the next one."""
PURGE, DELETE = 5, 6
"""The first byte of an entry (entryOp in nats-server)."""


class Membership(GroupMember):
    """A stream's place in its group. open() it."""

    def __init__(
        self,
        stream: Stream,
        assignment: StreamAssignment,
        nodes: Nodes,
        system: Account,
        consumers: Callable[[], Iterable[str]],
    ) -> None:
        shared = stream.jsa.shared
        what = f"stream '{stream.jsa.name} > {stream.name}'"
        super().__init__(shared, assignment.group, nodes, system, what)
        self.stream = stream
        self._replica = Replica(shared, system, stream.native, stream.store, self, assignment.sync)
        self._consumers = consumers
        """Returns the names of the consumers that are assigned to this server."""
        self._knows = False
        self._scanner: Timer | None = None
        self._scanned: tuple[int, ...] = ()
        """What the stream had when it was looked through last."""
        self._recovered = 0
        """The last record of the log that was there at the start."""

    @property
    def raft(self) -> RaftGroup:
        return self._replica.group

    @property
    def joined(self) -> bool:
        return self._replica.opened

    def problem(self) -> str:
        """Return why this server's part is not up to date, "": it is."""
        return super().problem() or ("stream catching up" if self._replica.catching_up else "")

    @property
    def leads(self) -> bool:
        return self._replica.leads

    @property
    def waiting(self) -> int:
        """The number of sequences that this server has proposed, and that are not stored yet."""
        return self._replica.log.waiting

    async def open(self) -> None:
        """Join the group. Raises OSError, FilesError, MemoryError."""
        is_new, peers = self.is_new(), self.peers()
        await self._replica.open(
            self.group.name,
            self.nodes.peer.encode(),
            lambda: (len(peers), peers),
            in_memory=self.stream.config.storage == MEMORY,
        )
        self._recovered = self.raft.node.state()["pindex"]
        self.begin(is_new=is_new)

    # -- the group's -----------------------------------------------------------------------------------------

    def lead(self, term: int) -> None:
        """Store what is published from now on."""
        stream = self.stream
        stream.lead()
        if stream.config.retention != LIMITS:
            self._scanned = ()
            self._scan()
        self.shared.advisories.stream_leader_elected(
            stream.jsa.account, stream.name, self.nodes.name_of(self.nodes.peer), self.led()
        )

    def _scan(self) -> None:
        """Look for messages that no consumer needs, when something has changed, and again later.

        Acknowledgements alone do not find all: a consumer may begin behind a message, or get a snapshot.
        After a start, nothing is decided before all consumers are here that are assigned.
        """
        if self._scanner:
            self._scanner.cancel()
        if not self._knows:
            if any(name not in self.stream.consumers for name in self._consumers()):
                self._scanner = call_later(LOOK_AGAIN, self._scan)
                return
            self._knows = True
            self._replica.log.decide()
        self._scanner = call_later(SCAN_INTERVAL, self._scan)
        state = self.stream.store.state()
        seen = state.last_seq, state.msgs, len(self.stream.consumers)
        if seen != self._scanned:
            self._scanned = seen
            self.shared.spawn(self.stream.forget_acknowledged())

    def follow(self) -> None:
        """Leave it to another server."""
        self._stop_scanning()
        self.stream.follow()
        self.fail_asked()

    def leader_changed(self, leader: str) -> None:
        """Who leads is asked for when it is needed."""

    def stopped(self, why: str) -> None:
        self._stop_scanning()
        self.note_stopped(why)
        self.stream.follow()

    # -- changes ---------------------------------------------------------------------------------------------

    async def propose(self, proposal: PurgeProposal | MessageDeleteProposal) -> Any:
        """Have all servers carry out a change; return its result here. Raises ApiError."""
        members: dict[str, Any] = {"stream": self.stream.name}
        if isinstance(proposal, MessageDeleteProposal):
            op = DELETE
            members |= {"seq": proposal.seq} | ({} if proposal.erase else {"no_erase": True})
        else:
            op = PURGE
            asked = {"seq": proposal.seq, "filter": proposal.subject, "keep": proposal.keep}
            request = {name: value for name, value in asked.items() if value}
            last = self.stream.store.state().last_seq + self.waiting
            members |= {"last_seq": last} | ({"request": request} if request else {})
        node = self.raft.node

        def propose(key: str) -> bool:
            change = json.dumps(members | {"subject": "", "reply": key}).encode()
            return node.propose(bytes([op]) + change)

        return await self.ask(propose)

    async def carry_out(self, index: int, change: bytes) -> None:
        """Carry out a change, and tell who has asked for it here. Raises ValueError for an unknown one."""
        members = json.loads(change[1:])
        if not isinstance(members, dict):
            raise ValueError("a change is no JSON object")
        proposal = self._proposal(change[0], members, index)
        result: Any = 0
        try:
            if isinstance(proposal, PurgeProposal):
                result = await self.stream.apply_purge(proposal)
            elif proposal:
                result = self.stream.apply_delete_message(proposal)
        except ApiError as exc:
            result = exc
        self.tell(str(members.get("reply", "")), result)

    def _proposal(
        self, op: int, members: Mapping[str, Any], index: int
    ) -> PurgeProposal | MessageDeleteProposal | None:
        """Read a change; None: there is nothing to do. Raises ValueError."""
        name = self.stream.name
        try:
            if op == DELETE:
                return MessageDeleteProposal(name, int(members["seq"]), not members.get("no_erase", False))
            if op != PURGE:
                raise ValueError(f"a change of an unknown kind, {op}")
            request = members.get("request") or {}
            seq, keep = int(request.get("seq", 0)), int(request.get("keep", 0))
            if not seq and not keep:
                seq = int(members["last_seq"]) + 1  # what was stored later stays when this is done again
            elif not seq and index <= self._recovered:
                return None  # what it kept then is not known any more
            return PurgeProposal(name, str(request.get("filter", "")), seq, keep)
        except (KeyError, TypeError, AttributeError) as exc:
            raise ValueError(f"a change that cannot be read: {exc!r}") from None

    # -- its end ---------------------------------------------------------------------------------------------

    def _stop_scanning(self) -> None:
        if self._scanner:
            self._scanner.cancel()
            self._scanner = None

    async def _close(self) -> None:
        self._stop_scanning()
        self.fail_asked()
        await self._replica.close()
