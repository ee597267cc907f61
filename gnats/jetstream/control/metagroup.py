"""The meta group at a server of a JetStream cluster (jetstream_cluster.go).

It decides, for all servers alike, which of them have which streams and consumers. This server keeps what is
decided, carries out its own part (assigned.py), and, while it leads, proposes what the API asks for.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gnats.clock import Timer, call_later, monotonic, monotonic_ns, time_ns
from gnats.go.json import Json
from gnats.jetstream import errors
from gnats.jetstream.cluster.cluster_info import known_peers, meta_cluster_info
from gnats.jetstream.cluster.entries import MetaError, Op, decode_entry, encode_entry, encode_snapshot
from gnats.jetstream.cluster.meta import Change, MetaState
from gnats.jetstream.cluster.placement import Load, Placement
from gnats.jetstream.cluster.staging import Staging
from gnats.jetstream.control.raftgroup import RaftGroup
from gnats.jetstream.threads import in_thread

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.jetstream.cluster.entries import Asset, ConsumerAssignment, StreamAssignment
    from gnats.jetstream.cluster.nodes import Nodes
    from gnats.jetstream.control.shared import Shared
    from gnats.jetstream.replica.raftnode import Entries

META_GROUP = "_meta_"
NORMAL, REMOVE_PEER = 0, 4
"""Types of entries: the group's own, and the removal of a member (EntryType in gnats.raft.messages)."""
SETTLE = 1.5
"""Seconds without a new server until a new group elects: a leader is heard, and servers know each other."""
LOST_QUORUM = 10.0
"""Seconds without a leader after which requests are told so."""
COMPACT_INTERVAL = 60.0
"""Seconds from a change to the snapshot that includes it."""
COMPACT_BYTES = 8 << 20
"""Bytes of changes after which a snapshot does not wait so long: the log is in memory, too."""
_COMPACT_PAUSE = 9
"""The pause after a snapshot, then, in times that this one took."""

_NO_LEADER = "JetStream cluster no metadata leader"
_NO_CONTACT = "JetStream has not established contact with a meta leader"


class MetaGroup:
    """This server's member of the meta group. Used from the loop's thread only.

    `carry_out` is given the changes that concern this server or its clients, in order. `removed` is called
    when this server is no member any more.
    """

    def __init__(
        self,
        shared: Shared,
        nodes: Nodes,
        peer: str,
        carry_out: Callable[[Iterable[Change]], None],
        removed: Callable[[], object],
    ) -> None:
        self.shared = shared
        self.nodes = nodes
        self.peer = peer
        """This server's name in groups."""
        self.state = MetaState(peer)
        self._carry_out = carry_out
        self._removed = removed
        self.group: RaftGroup | None = None
        """The member, from start() on."""
        self.lead_changed: list[Callable[[bool], object]] = []
        """Called with whether this server leads, when it begins to and when it ends."""
        self.watchers: set[Callable[[], object]] = set()
        """Called when another server leads, or none."""
        self._removals: dict[str, Callable[[], None]] = {}
        self._staging: Staging | None = Staging()
        """The changes of the start, then those until this server has caught up; None once it has."""
        self._recovering = True
        self._caught_up_at: int | None = None
        """The record with which this server has caught up, once that is known."""
        self._rng = random.Random()
        self._term = 0
        self._index = 0
        """The last record that is applied, and that the last snapshot includes."""
        self._snapshot = 0
        self._applied_bytes = 0
        """Bytes of entries since then."""
        self._compact_from = 0
        """When a snapshot may be taken again before COMPACT_INTERVAL is over (monotonic ns)."""
        self._last_snapshot = 0, 0
        """When it was taken (ns since 1970), and the ns that this took."""
        self._compacting: asyncio.Task[None] | None = None
        self._compact_timer: Timer | None = None
        self._campaign_timer: Timer | None = None
        self._expected = 0
        self._leaderless_since = monotonic()
        self._leaderless_timer: Timer | None = None
        self._has_led = False
        self.is_removed = False
        """Whether this server is no member any more."""
        self.failure = ""
        """Why the group has stopped at this server."""

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self, account: Account, expected: int) -> None:
        """Read what is known from the files; `account` is the system account.

        `expected` is the number of servers that the configuration names, for the first start of a cluster.
        Raises OSError, FilesError, MemoryError.
        """

        def peers() -> tuple[int, list[bytes]]:
            known = self.nodes.active_peers()
            return max(2, expected, len(known)), [name.encode() for name in known]

        self.group = await RaftGroup.open(
            self.shared, account, META_GROUP, self, peer=self.peer.encode(), peers=peers, managed=False
        )

    def recovered(self) -> list[Change]:
        """Return what this server has to do by its files.

        What it has missed is carried out when it has caught up: a stream that is on its disk may be removed
        and made again on the way, where the group's files were lost. When they are damaged, all waits.
        """
        assert self._staging is not None
        self._recovering = False
        return [] if self.group_state()["doubted"] else self._staging.take()

    def taken(self) -> None:
        """Carry out what this server has missed, once it has caught up with the leader, or leads."""
        if self._staging is None or self._recovering:
            return
        state = self.group_state()
        if self._caught_up_at is None and state["leader"] and not state["catching_up"]:
            self._caught_up_at = state["pindex"]
        if self._caught_up_at is not None and state["applied"] >= self._caught_up_at:
            self._catch_up()

    def _catch_up(self) -> None:
        if self._staging is None:
            return
        staged, self._staging = self._staging, None
        self._changed(staged.take())
        self._compact_later()

    def assigned(self, account: str) -> list[Change]:
        """Return an account's assignments as changes that are not new: it has JetStream from now on."""
        return self.state.assigned_again(account)

    def begin(self) -> None:
        """Take part in the group: another server can be reached, or one more."""
        if not self.group:
            return
        if not self.group.begun:
            self._wait_for_leader()
            self.group.begin(recovering=True, observer=bool(self.failure))
        if self.group.node.files.bootstrapped:
            return
        # The configuration may name few of the servers: with what it says, two leaders could be elected.
        there = sum(node.js and not node.offline for node in self.nodes.placement().values())
        if there > self._expected:
            self._expected = there
            self.group.node.expect(there)
            if self._campaign_timer:
                self._campaign_timer.cancel()
            self._campaign_timer = call_later(SETTLE, self._campaign)

    def _campaign(self) -> None:
        if self.group and not self.leader:
            self.group.node.campaign()

    async def close(self) -> None:
        """Leave the group for now, or for good when this server was removed: it forgets the group then."""
        for timer in (self._compact_timer, self._leaderless_timer, self._campaign_timer):
            if timer:
                timer.cancel()
        if self._compacting:
            await asyncio.wait([self._compacting])
        group, self.group = self.group, None
        if group:
            group.close()
            if self.is_removed:
                directory = group.node.files.directory
                await in_thread(lambda: shutil.rmtree(directory, ignore_errors=True))

    # -- the lead --------------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether this server leads, and has applied what the leaders before it have committed."""
        return self.group is not None and self.group.node.leads

    @property
    def leader(self) -> str:
        """The peer that leads, as far as this server knows; "": none."""
        return self.group.node.leader.decode(errors="replace") if self.group else ""

    @property
    def is_leaderless(self) -> bool:
        """Whether requests must be told that no server leads (isLeaderless)."""
        if self.leader:
            return False
        return bool(self.failure) or monotonic() - self._leaderless_since > LOST_QUORUM

    @property
    def is_recovering(self) -> bool:
        """Whether the files are still being read."""
        return self._recovering

    @property
    def is_current(self) -> bool:
        """Whether this server's part of the group is up to date."""
        return self.group is not None and not self.failure and self.group.is_current

    def step_down(self, preferred: str = "") -> None:
        """Let another server lead. Raises ApiError when this one does not."""
        if not self.group or not self.group.node.step_down(preferred.encode()):
            raise errors.CLUSTER_NOT_LEADER()

    def remove_peer(self, peer: str, done: Callable[[], None]) -> None:
        """Propose that a server is no member any more; `done` is called when a quorum has agreed to it.

        It is not called when the lead changes before. Raises ApiError.
        """
        if self._removals:
            raise errors.CLUSTER_SERVER_MEMBER_CHANGE_INFLIGHT()
        if self.peers() == [peer]:
            raise errors.RAFT_GENERAL(err="raft: cannot remove the last peer")
        if not self.group or not self.group.node.propose_peer(peer.encode(), removes=True):
            raise errors.CLUSTER_SERVER_MEMBER_CHANGE_INFLIGHT()
        self._removals[peer] = done

    def group_state(self) -> dict[str, Any]:
        """Return the numbers of the Raft group (RaftNode.state)."""
        assert self.group
        return self.group.node.state()

    def info(self, *, full: bool, waiting: tuple[int, int]) -> Json | None:
        """Describe the group, as meta_cluster_info() does; None before start()."""
        if self.group is None:
            return None
        return meta_cluster_info(
            self.nodes,
            self.group_state(),
            META_GROUP,
            full=full,
            waiting=waiting,
            log_bytes=self.group.node.files.log.state().bytes,
            snapshot=self._last_snapshot,
        )

    def peers(self) -> list[str]:
        """Return the members of the meta group."""
        return [name.decode(errors="replace") for name in self.group_state()["peers"]] if self.group else []

    # -- proposals of the leader -----------------------------------------------------------------------------

    def placement(self) -> Placement:
        """Return what the choice of peers depends on now."""
        options = self.shared.config.options
        return Placement(
            peers=self.peers(),
            nodes=self.nodes.placement(),
            load=Load(self.state.all_streams_or_inflight()),
            rng=self._rng,
            unique_tag=options.unique_tag,
            max_ha_assets=options.limits.max_ha_assets,
        )

    def propose_stream(self, op: Op, assignment: StreamAssignment) -> None:
        """Propose to assign, change or remove a stream. Raises ApiError when this server does not lead."""
        self._propose(op, assignment)
        self.state.inflight.track_stream(assignment, deleted=op is Op.REMOVE_STREAM)

    def propose_consumer(self, op: Op, assignment: ConsumerAssignment) -> None:
        """Propose to assign or remove a consumer. Raises ApiError when this server does not lead."""
        self._propose(op, assignment)
        self.state.inflight.track_consumer(assignment, deleted=op is Op.REMOVE_CONSUMER)

    def forget_consumer(self, account: str, stream: str, name: str, created: int) -> None:
        """Have a consumer of this server removed everywhere: it was not used for too long."""
        known = self.state.consumer(account, stream, name)
        if self.group and known and known.created_ns == created and known.group.is_member(self.peer):
            removal = replace(known, subject="", reply="")
            self.group.node.forward_proposal(encode_entry(Op.REMOVE_CONSUMER, removal))

    def _propose(self, op: Op, assignment: Asset) -> None:
        if not self.group or not self.group.node.propose(encode_entry(op, assignment)):
            raise errors.CLUSTER_NOT_AVAIL()

    # -- the state machine of the group ----------------------------------------------------------------------

    def apply(self, index: int, entries: Entries) -> None:
        if self.failure:
            return
        if self._caught_up_at is not None and index > self._caught_up_at:
            self._catch_up()  # what comes from here on is new: clients wait for an answer
        self._index = index
        changes: list[Change] = []
        for kind, data in entries:
            if kind == REMOVE_PEER:
                self._peer_removed(data.decode(errors="replace"))
            if kind != NORMAL:
                continue
            self._applied_bytes += len(data)
            try:
                entry = decode_entry(data)
            except MetaError as exc:
                self._lose_track(f"an entry is not understood: {exc}")
                return
            changes += self.state.apply(entry, recovering=self._staging is not None)
        self._changed(changes)
        self._compact_later()

    def restore(self, data: bytes) -> None:
        if self.failure:
            return
        try:
            changes = self.state.restore(data)
        except MetaError as exc:
            self._lose_track(f"a snapshot is not understood: {exc}")
            return
        self._changed(changes)

    def _changed(self, changes: list[Change]) -> None:
        if self._staging is not None:
            self._staging.add(changes)
        elif changes:
            self._carry_out(changes)

    def _peer_removed(self, peer: str) -> None:
        """Note that a server is no member any more (processRemovePeer)."""
        if done := self._removals.pop(peer, None):
            done()
        # Who catches up may see an old removal, before the record that has added it again.
        if peer == self.peer and not self.is_recovering and not self.group_state()["catching_up"]:
            self.is_removed = self.peer not in self.peers()
            if self.is_removed:
                self.shared.log.error("JetStream being DISABLED, our server was removed from the cluster")
                self.shared.advisories.server_removed()
                self._removed()

    def lead(self, term: int) -> None:
        self._catch_up()
        self._term = term
        self.shared.log.notice("Self is new JetStream cluster metadata leader")
        self.shared.advisories.domain_leader_elected(self.peer, known_peers(self.nodes, self.group_state()))
        self._lead_changed(True)

    def follow(self) -> None:
        self._lead_changed(False)

    def _lead_changed(self, leads: bool) -> None:
        self.state.inflight.clear()
        self._removals.clear()
        self._has_led = not leads
        for changed in self.lead_changed:
            changed(leads)

    def leader_changed(self, leader: str) -> None:
        if self._leaderless_timer:
            self._leaderless_timer.cancel()
            self._leaderless_timer = None
        if leader and leader != self.peer:
            name, cluster = self.nodes.name_of(leader), self.nodes.cluster_of(leader)
            new = (
                f"metadata leader: {'/'.join(filter(None, (name, cluster)))}"
                if name
                else "remote metadata leader"
            )
            self.shared.log.notice(f"JetStream cluster new {new}")
        elif not leader:
            self._leaderless_since = monotonic()
            if self._has_led:
                self.shared.log.notice(_NO_LEADER)
            else:
                self._wait_for_leader()
        self._has_led = False
        for watcher in list(self.watchers):
            watcher()

    def _wait_for_leader(self) -> None:
        """Log when there is no leader for long. An election takes a few seconds."""
        text = _NO_LEADER if self.group and self.group.had_leader else _NO_CONTACT
        self._leaderless_timer = call_later(LOST_QUORUM, self.shared.log.warn, text)

    def stopped(self, why: str) -> None:
        self.failure = why
        self.shared.log.error(
            f"JetStream cluster: the meta group has stopped at this server: {why}; mend this and restart it"
        )

    def _lose_track(self, why: str) -> None:
        """Carry out nothing more, and do not lead: what this server knows may not be what is decided."""
        self.stopped(why)
        if self.group:
            self.group.retire()

    # -- snapshots -------------------------------------------------------------------------------------------

    def _compact_later(self) -> None:
        """Make a snapshot soon, or now when much has changed."""
        if self._staging is not None:
            return
        is_due = self._applied_bytes >= COMPACT_BYTES and monotonic_ns() >= self._compact_from
        if is_due and not self._compacting:
            self._compact()
        elif self._compact_timer is None:
            self._compact_timer = call_later(COMPACT_INTERVAL, self._compact)

    def _compact(self) -> None:
        if self._compact_timer:
            self._compact_timer.cancel()
            self._compact_timer = None
        if self.group is None or self._index == self._snapshot or self.failure:
            return
        if self._compacting:
            self._compact_timer = call_later(COMPACT_INTERVAL, self._compact)
            return
        options = self.shared.options().jetstream
        if not self._is_long(options.meta_compact, options.meta_compact_size):
            return
        node, index, assigned = self.group.node, self._index, self.state.assigned()
        self._snapshot, self._applied_bytes = index, 0

        async def install() -> None:
            start = monotonic_ns()
            try:
                if options.meta_compact_sync:
                    done = node.install_snapshot(index, encode_snapshot(assigned))
                else:
                    done = await in_thread(lambda: node.install_snapshot(index, encode_snapshot(assigned)))
                if done:
                    self._last_snapshot = time_ns(), monotonic_ns() - start
            finally:
                now = monotonic_ns()
                self._compact_from = now + _COMPACT_PAUSE * (now - start)

        self._compacting = asyncio.create_task(install())
        self._compacting.add_done_callback(self._compacted)

    def _is_long(self, entries: int, size: int) -> bool:
        """Whether the log has more than so many entries or bytes (0: no limit), or has no limits."""
        assert self.group
        count = self._index - self.group_state()["snapshot"]
        beyond = [count > entries] if entries else []
        beyond += [self.group.node.files.log.state().bytes > size] if size else []
        return any(beyond) if beyond else True

    def _compacted(self, task: asyncio.Task[None]) -> None:
        self._compacting = None
        if not task.cancelled() and (exc := task.exception()):
            self.shared.log.error(f"JetStream cluster: the meta group's snapshot: {exc!r}")
