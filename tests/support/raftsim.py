"""A simulated world for a Raft group: clock, network and disks from one seed, in which everything may fail.

The members are real Raft cores. After each event the safety of the group is checked; when the faults stop, it
must go on.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnats.raft import messages
from gnats.raft.files import RaftFiles, bootstrap
from gnats.raft.raft_probe import FilesProbe, RaftProbe

MS = 1_000_000
SECOND = 1000 * MS
NORMAL = 0
VOTE_RESPONSE = 17
"""Bytes of one."""
GROUP = "simulated"
APPEND, VOTE, ANSWER, BEHIND, CATCHUP = range(5)
Record = tuple[int, bytes]
Snapshot = tuple[int, int, bytes, bytes]


class Unsafe(AssertionError):
    """Raised when a group has done what no group may do."""


@dataclass
class Disk:
    """The files of a member: what is durable, and what a crash may take or leave."""

    log: dict[int, bytes] = field(default_factory=dict)
    pending: list[tuple[str, int, bytes]] = field(default_factory=list)
    vote: tuple[int, bytes] = (0, b"")
    vote_pending: tuple[int, bytes] | None = None
    snapshot: Snapshot | None = None
    peers: bytes = b""
    lost: int = 0
    """Records up to here were lost to damage; 0: none, or this member has them again."""
    lost_term: int = 0
    """The term of the last of them."""

    def apply(self, count: int) -> None:
        """Make the first `count` changes of the log durable."""
        for kind, index, data in self.pending[:count]:
            if kind == "store":
                self.log[index] = data
            elif kind == "truncate":
                self.log = {at: each for at, each in self.log.items() if at <= index}
            else:
                self.log = {at: each for at, each in self.log.items() if at > index}
        del self.pending[:count]

    def crash(self, rng: random.Random) -> None:
        """Lose some of what is not durable."""
        self.apply(rng.randint(0, len(self.pending)))
        self.pending.clear()
        if self.vote_pending and rng.random() < 0.5:
            self.vote = self.vote_pending
        self.vote_pending = None

    def damage(self, rng: random.Random) -> bool:
        """Lose durable records from some index on, perhaps the snapshot. False: nothing is there."""
        base = self.snapshot[1] if self.snapshot else 0
        last = max(self.log, default=base)
        term = int.from_bytes(self.log[last][8:16], "little") if self.log else 0
        first = rng.randint(base + 1, max(last, base + 1))
        if self.snapshot and rng.random() < 0.3:
            term = term or self.snapshot[0]
            self.snapshot = None
            first = 0
        elif first > last:
            return False
        self.log = {at: each for at, each in self.log.items() if at < first}
        if last > self.lost:
            self.lost, self.lost_term = last, max(self.lost_term, term)
        return True


class Member:
    """One member; it is also the world of its Raft core."""

    def __init__(self, sim: Sim, number: int, peers: bytes) -> None:
        self.sim = sim
        self.number = number
        self.name = b"member-%d" % number
        self.disk = Disk(peers=peers)
        self.raft: RaftProbe | None = None
        self.log: dict[int, bytes] = {}
        self.inboxes = itertools.count()
        self.started_before = False
        self.paused: list[Callable[[], None]] | None = None
        self.start()

    # -- its life --

    def start(self) -> None:
        self.life = object()
        self.inbox = b""
        self.to_apply: list[tuple[int, bytes]] = []
        self.at, self.hash = 0, b""
        self.committed = 0
        self.leads = False
        self.raft = RaftProbe(self, self.name, self.sim.rng.getrandbits(60))
        self.raft.set_times(**self.sim.times)
        self.recover(self.raft)
        self.raft.begin(self.started_before, self.sim.now)
        self.started_before = True
        self.schedule()

    def recover(self, raft: RaftProbe) -> None:
        disk = self.disk
        self.log = dict(disk.log)
        if disk.snapshot:
            self.take(disk.snapshot)
        raft.recover(*disk.vote, disk.snapshot, disk.peers)
        index = (disk.snapshot[1] if disk.snapshot else 0) + 1
        while index in self.log and raft.replay(index, self.log[index]):
            index += 1
        for later in [at for at in self.log if at >= index]:
            del self.log[later]
        disk.log = dict(self.log)
        if disk.lost:
            self.distrust(raft)

    def distrust(self, raft: RaftProbe) -> None:
        raft.distrust(self.disk.lost, self.disk.lost_term)

    def crash(self, damaged: bool = False) -> None:
        self.raft = None
        self.paused = None
        self.disk.crash(self.sim.rng)
        if damaged:
            self.sim.damaged += self.disk.damage(self.sim.rng)

    def close(self) -> None:
        """End the test."""

    def call(self, work: Callable[[RaftProbe], object]) -> None:
        """Give the core something to do, then what belongs to the end of a batch."""
        if self.paused is not None:
            self.paused.append(lambda: self.call(work))
            return
        raft = self.raft
        if raft is None or raft.failure:
            return
        work(raft)
        if self.sim.rng.random() < 0.9:
            raft.flush(self.sim.now)
        self.schedule()
        self.sim.check(self)

    def schedule(self) -> None:
        raft, life = self.raft, self.life
        assert raft
        self.sim.at(max(raft.deadline, self.sim.now + 1), lambda: self.tick(life))

    def tick(self, life: object) -> None:
        if life is self.life and self.raft and self.sim.now >= self.raft.deadline:
            self.call(lambda raft: raft.tick(self.sim.now))

    # -- the world of its core --

    def store(self, index: int, data: bytes) -> int:
        assert index == max(self.log, default=self.base()) + 1
        self.log[index] = data
        self.disk.pending.append(("store", index, data))
        if self.sim.sync_now:
            self.disk.apply(len(self.disk.pending))
            return 1
        self.sync_later(index)
        return 0

    def base(self) -> int:
        return self.disk.snapshot[1] if self.disk.snapshot else 0

    def sync_later(self, index: int) -> None:
        life, data = self.life, self.log[index]

        def synced() -> None:
            if life is self.life and self.raft and self.log.get(index) is data:
                change = ("store", index, data)
                if change in self.disk.pending:
                    self.disk.apply(self.disk.pending.index(change) + 1)
                self.call(lambda raft: raft.stored(index))

        self.sim.after(self.sim.disk_delay(), synced)

    def load(self, index: int) -> bytes | None:
        return self.log.get(index)

    def truncate(self, index: int) -> int:
        self.sim.truncated += 1
        for later in [at for at in self.log if at > index]:
            del self.log[later]
        self.disk.pending.append(("truncate", index, b""))
        return 0

    def save_snapshot(self, snapshot: Snapshot, everything: bool) -> int:
        self.disk.apply(len(self.disk.pending))
        self.disk.snapshot = snapshot
        kept = {at: each for at, each in self.log.items() if at > snapshot[1] and not everything}
        self.log, self.disk.log = kept, dict(kept)
        return 0

    def load_snapshot(self) -> Snapshot | None:
        return self.disk.snapshot

    def save_vote(self, term: int, vote: bytes) -> int:
        known = self.disk.vote_pending or self.disk.vote
        if term < known[0] or (term == known[0] and known[1] and vote != known[1]):
            raise Unsafe(f"{self.name!r} votes twice in term {term}")
        if self.sim.sync_now:
            self.disk.vote = (term, vote)
            return 1
        self.disk.vote_pending = wanted = (term, vote)
        life = self.life

        def saved() -> None:
            if life is self.life and self.disk.vote_pending is wanted:
                self.disk.vote, self.disk.vote_pending = wanted, None
                self.call(lambda raft: raft.saved(self.sim.now))

        self.sim.after(self.sim.disk_delay(), saved)
        return 0

    def save_peers(self, data: bytes) -> int:
        self.disk.peers = data
        return 0

    def send(self, to: int, subject: bytes, data: bytes) -> None:
        sim, number = self.sim, self.number
        if to in (APPEND, VOTE):
            reply = b"%s.%d" % (b"RV"[to : to + 1], number)
            for other in range(len(sim.members)):
                if other != number:
                    sim.carry(number, other, b"AQ"[to : to + 1], data, reply)
            return
        if len(data) == VOTE_RESPONSE:
            sim.refused_votes += not data[16] & 1
        kind, receiver = subject.split(b".")[:2]
        reply = {ANSWER: b"", BEHIND: self.inbox, CATCHUP: b"R.%d" % number}[to]
        sim.carry(number, int(receiver), subject if kind == b"C" else kind, data, reply)

    def open_catchup(self) -> None:
        self.inbox = b"C.%d.%d" % (self.number, next(self.inboxes))

    def close_catchup(self) -> None:
        self.inbox = b""

    def commit(self, index: int, term: int, entries: list[Record]) -> None:
        if index != self.committed + 1 and index != self.base() + 1 and index != self.at + 1:
            raise Unsafe(f"{self.name!r} commits {index} after {self.committed}")
        self.committed = index
        self.sim.committed_by(self, index, term, entries)
        payload = b"".join(data for kind, data in entries if kind == NORMAL)
        self.to_apply.append((index, payload))
        life = self.life
        self.sim.after(self.sim.rng.randrange(3 * MS), lambda: self.apply_next(life))

    def apply_next(self, life: object) -> None:
        if life is not self.life or not self.raft or not self.to_apply:
            return
        index, payload = self.to_apply.pop(0)
        if index > self.at:
            self.at = index
            self.hash = hashlib.blake2b(
                self.hash + struct.pack("<Q", index) + payload, digest_size=8
            ).digest()
            self.sim.applied_by(self)
        self.call(lambda raft: raft.applied(index))

    def restore(self, snapshot: Snapshot) -> None:
        self.sim.restored += 1
        self.to_apply.clear()
        self.take(snapshot)
        life, index = self.life, snapshot[1]
        self.committed = index

        def restored() -> None:
            if life is self.life:
                self.call(lambda raft: raft.applied(index))

        self.sim.after(self.sim.rng.randrange(3 * MS), restored)

    def take(self, snapshot: Snapshot) -> None:
        self.at, self.hash = snapshot[1], snapshot[3]
        self.committed = snapshot[1]
        self.sim.applied_by(self)

    def lead_changed(self, leads: bool, term: int) -> None:
        self.leads = leads
        if leads:
            self.sim.elected(self, term)

    def trusted(self) -> None:
        self.disk.lost = self.disk.lost_term = 0

    def failed(self, why: int) -> None:
        raise Unsafe(f"{self.name!r} has stopped: {why}")


class Replaying:
    """What a Raft needs to replay the log of its files."""

    def __init__(self, probe: FilesProbe) -> None:
        self.load = probe.load
        self.load_snapshot = probe.load_snapshot
        self.save_peers = probe.save_peers

    def commit(self, index: int, term: int, entries: list[tuple[int, bytes]]) -> None:
        """Apply nothing."""


class FilesMember(Member):
    """A member whose disk is a directory with the files that a server would have."""

    def __init__(self, sim: Sim, number: int, peers: bytes) -> None:
        size, names, _ = messages.read_peer_state(peers)
        self.path = self.new_path(sim, number)
        self.always = sim.sync_always
        self.cuts = 0
        self.synced: dict[str, bytes] = {}
        """The log as it was last synced, by names of files."""
        bootstrap(self.path, size, names)
        super().__init__(sim, number, peers)

    def new_path(self, sim: Sim, number: int) -> Path:
        assert sim.directory
        return sim.directory / f"{number}-{next(sim.order)}"

    def recover(self, raft: RaftProbe) -> None:
        self.files = RaftFiles(self.path, GROUP, sync_always=self.always, block_size=2048)
        self.probe = FilesProbe(self.files)
        self.note_synced()
        self.probe.recover(raft)
        now = raft.now()
        if (now["term"], now["vote"]) < self.disk.vote:
            raise Unsafe(f"{self.name!r} has forgotten its vote {self.disk.vote}")
        snapshot = self.probe.load_snapshot()
        if snapshot:
            committed = max(self.committed, snapshot[1])
            self.take(snapshot)
            self.committed = committed
        self.disk.lost = now["doubted"]

    def crash(self, damaged: bool = False) -> None:
        """Copy what kill -9 leaves, or with sync_always what a loss of power may leave."""
        self.raft = None
        self.paused = None
        old, self.path = self.path, self.new_path(self.sim, self.number)
        shutil.copytree(old, self.path)
        if self.always and self.sim.rng.random() < 0.5:
            shutil.rmtree(self.path / "msgs")
            (self.path / "msgs").mkdir()
            for name, data in self.synced.items():
                (self.path / "msgs" / name).write_bytes(data)
        self.files.close()
        shutil.rmtree(old)
        if damaged and self.damage():
            self.sim.damaged += 1
            self.disk.lost = 1  # it may be

    def close(self) -> None:
        self.files.close()

    def damage(self) -> bool:
        """Change a byte of a snapshot, or of a block with records behind it: a crash may cost the end."""
        rng = self.sim.rng
        blocks = sorted(self.path.glob("msgs/*.blk"), key=lambda path: int(path.stem))
        blocks = [path for path in blocks if b"member-" in path.read_bytes()][:-1]
        found = blocks if rng.random() < 0.7 else list(self.path.glob("snapshots/*"))
        if not found:
            return False
        path = rng.choice(found)
        data = bytearray(path.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        return True

    def note_synced(self) -> None:
        self.synced = {path.name: path.read_bytes() for path in (self.path / "msgs").iterdir()}

    def base(self) -> int:
        found = self.probe.load_snapshot()
        return found[1] if found else 0

    def store(self, index: int, data: bytes) -> int:
        assert self.probe.store(index, data) == 0
        if self.sim.sync_now:
            assert self.probe.flush() == index
            self.sync()
            return 1
        self.write_later()
        return 0

    def sync(self) -> None:
        if self.always:
            assert self.probe.sync() == 0
            self.note_synced()

    def write_later(self) -> None:
        life = self.life

        def written() -> None:
            if life is self.life and self.raft:
                last, cuts = self.probe.flush(), self.cuts
                assert last >= 0
                self.sim.after(self.sim.disk_delay(), lambda: synced(last, cuts))

        def synced(last: int, cuts: int) -> None:
            if life is self.life and self.raft:
                self.sync()
                if cuts == self.cuts:
                    self.call(lambda raft: raft.stored(last))

        self.sim.after(self.sim.disk_delay(), written)

    def load(self, index: int) -> bytes | None:
        return self.probe.load(index)

    def truncate(self, index: int) -> int:
        self.sim.truncated += 1
        self.cuts += 1
        self.write_later()
        return self.probe.truncate(index)

    def save_snapshot(self, snapshot: Snapshot, everything: bool) -> int:
        self.cuts += everything
        self.write_later()
        return self.probe.save_snapshot(snapshot, everything)

    def load_snapshot(self) -> Snapshot | None:
        return self.probe.load_snapshot()

    def save_vote(self, term: int, vote: bytes) -> int:
        assert self.probe.save_vote(term, vote) == 0
        return super().save_vote(term, vote)

    def save_peers(self, data: bytes) -> int:
        return self.probe.save_peers(data)

    def trusted(self) -> None:
        super().trusted()
        assert self.probe.trusted() == 0


class Sim:
    """A group of `size` members, of which `begins` are peers at first.

    With `damage`, members lose durable records; fewer than a quorum lack something at any time.
    With a `directory`, members have their files there.
    """

    def __init__(
        self,
        seed: int,
        size: int = 3,
        begins: int = 0,
        *,
        damage: bool = False,
        directory: Path | None = None,
    ) -> None:
        self.rng = rng = random.Random(seed)
        self.seed = seed
        self.now = 0
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.sync_now = rng.random() < 0.3
        self.overtakes = rng.choice((0.0, 0.0, 0.01, 0.05))
        self.slow = rng.choice((1, 3, 10, 100))
        self.loss = rng.choice((0.0, 0.0, 0.01, 0.1))
        self.doubles = rng.choice((0.0, 0.01, 0.1))
        self.times = {"election": (400 * MS, 900 * MS), "heartbeat": 100 * MS, "lost_quorum": SECOND}
        self.cut: set[tuple[int, int]] = set()
        self.arrives: dict[tuple[int, int], int] = {}
        self.committed: dict[int, tuple[int, list[Record]]] = {}
        self.hashes: dict[int, bytes] = {}
        self.leaders: dict[int, int] = {}
        self.acked: set[bytes] = set()
        self.proposed = 0
        self.snapshots = rng.choice((5, 50, 10_000))
        self.faulty = True
        self.truncated = self.restored = self.refused_votes = self.transferred = self.changed = 0
        self.damaged = 0
        self.directory = directory
        self.sync_always = directory is not None and rng.random() < 0.6
        begins = begins or size
        self.most_doubted = begins // 2 if damage else 0
        names = [b"member-%d" % number for number in range(begins)]
        self.members: list[Member] = []
        for number in range(size):
            self.members.append(
                (FilesMember if directory else Member)(self, number, messages.write_peer_state(begins, names))
            )

    # -- time --

    def at(self, when: int, what: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(self.order), what))

    def after(self, delay: int, what: Callable[[], None]) -> None:
        self.at(self.now + delay, what)

    def run(self, until: int) -> None:
        """Let events happen until a time."""
        while self.events and self.events[0][0] <= until:
            self.now, _, what = heapq.heappop(self.events)
            what()
        self.now = until

    def disk_delay(self) -> int:
        return self.rng.randrange(1, 2 * MS * self.slow)

    # -- network --

    def carry(self, sender: int, receiver: int, kind: bytes, data: bytes, reply: bytes) -> None:
        if self.faulty and self.rng.random() < self.loss:
            return
        for _ in range(2 if self.faulty and self.rng.random() < self.doubles else 1):
            when = self.now + self.rng.randrange(50_000, 3 * MS)
            if self.faulty and self.rng.random() < self.overtakes:
                when += self.rng.randrange(20 * MS)  # those behind it overtake it
            else:
                when = max(when, self.arrives.get((sender, receiver), 0) + 1)
                self.arrives[sender, receiver] = when
            self.at(when, lambda: self.deliver(sender, receiver, kind, data, reply))

    def deliver(self, sender: int, receiver: int, kind: bytes, data: bytes, reply: bytes) -> None:
        if (sender, receiver) in self.cut:
            return
        member = self.members[receiver]
        if kind == b"A":
            member.call(lambda raft: raft.append_entry(False, data, reply, self.now))
        elif kind == b"Q":
            member.call(lambda raft: raft.vote_request(data, reply, self.now))
        elif kind == b"R":
            member.call(lambda raft: raft.response(data, reply, self.now))
        elif kind == b"V":
            member.call(lambda raft: raft.vote_response(data, self.now))
        elif kind == member.inbox:
            member.call(lambda raft: raft.append_entry(True, data, reply, self.now))

    # -- clients --

    def leading(self) -> list[Member]:
        """Return the members that say that they lead."""
        return [each for each in self.members if each.raft and each.leads and each.paused is None]

    def propose(self) -> None:
        """Propose something to a member that says that it leads, at random."""
        leading = [
            member for member in self.members if member.raft and member.leads and member.paused is None
        ]
        if not leading:
            return
        member = self.rng.choice(leading)
        for _ in range(self.rng.choice((1, 1, 3, 20))):
            self.proposed += 1
            data = b"<%d>" % self.proposed + b"x" * self.rng.choice((0, 10, 3000))
            member.call(lambda raft, data=data: raft.propose(data, self.now))  # type: ignore[misc]
        assert member.raft
        applied = member.raft.now()["applied"]
        if applied == member.at and applied - member.base() > self.snapshots:
            member.call(lambda raft: raft.save_snapshot(member.at, member.hash))

    def clients(self, until: int) -> None:
        """Keep proposing until a time."""
        if self.now < until:
            self.propose()
            self.after(self.rng.randrange(1, 150 * MS), lambda: self.clients(until))

    def snapshot_all(self) -> None:
        for member in self.members:
            if (
                member.raft
                and member.paused is None
                and member.raft.now()["applied"] == member.at > member.base()
            ):
                member.call(lambda raft, member=member: raft.save_snapshot(member.at, member.hash))  # type: ignore[misc]

    # -- faults --

    def harm(self) -> None:
        """Let something go wrong for a while."""
        rng, members = self.rng, self.members
        member = rng.choice(members)
        lasts = rng.randrange(1, rng.choice((50, 500, 3000)) * MS)
        kinds = ["crash", "crash", "pause", "alone", "one way", "slow", "transfer", "snapshot", "all"]
        what = rng.choice(kinds + ["damage"] * 2 if self.most_doubted else kinds)
        if what in ("crash", "all"):
            hit = [member] if what == "crash" else rng.sample(members, rng.randint(1, len(members)))
            for _ in range(rng.randrange(4)):
                self.propose()  # so that there is something to lose
            self.after(rng.randrange(8 * MS), lambda: self.crash(hit, lasts))
        elif what == "damage":
            self.after(rng.randrange(8 * MS), lambda: self.damage(member, lasts))
        elif what == "pause" and member.raft and member.paused is None:
            member.paused = []
            self.after(lasts, lambda: self.resume(member))
        elif what in ("alone", "one way"):
            others = [other for other in range(len(members)) if other != member.number]
            pairs = {(member.number, other) for other in others}
            if what == "alone" or rng.random() < 0.5:
                pairs |= {(b, a) for a, b in pairs}
            self.cut |= pairs
            self.after(lasts, lambda: self.cut.difference_update(pairs))
        elif what == "slow":
            self.slow = rng.choice((1, 10, 200))
        elif what == "transfer" and member.raft and member.leads:
            self.transferred += 1
            preferred = rng.choice((b"", rng.choice(members).name))
            member.call(lambda raft: raft.step_down(preferred, self.now))
        elif what == "snapshot":
            self.snapshot_all()

    def crash(self, hit: list[Member], lasts: int) -> None:
        for member in hit:
            if member.raft:
                member.crash()
                self.after(lasts, lambda member=member: None if member.raft else member.start())  # type: ignore[misc]

    def damage(self, member: Member, lasts: int) -> None:
        doubted = {each.number for each in self.members if each.disk.lost} | {member.number}
        if member.raft and len(doubted) <= self.most_doubted:
            member.crash(damaged=True)
            self.after(lasts, lambda: None if member.raft else member.start())

    def resume(self, member: Member) -> None:
        waiting, member.paused = member.paused, None
        for work in waiting or ():
            if member.raft:
                work()

    def faults(self, until: int) -> None:
        """Harm the group until a time."""
        if self.now < until:
            self.harm()
            self.after(self.rng.randrange(1, 1500 * MS), lambda: self.faults(until))

    def changes(self, until: int) -> None:
        """Add and remove peers until a time; three stay."""
        leading = [
            member for member in self.members if member.raft and member.leads and member.paused is None
        ]
        if leading and self.now < until:
            member, peer = leading[0], self.rng.choice(self.members)
            assert member.raft
            peers = member.raft.now()["peers"]
            removes = peer.name in peers
            if not removes or (len(peers) > 3 and peer is not member):
                member.call(lambda raft: self._change(raft, peer.name, removes))
        if self.now < until:
            self.after(self.rng.randrange(1, 1000 * MS), lambda: self.changes(until))

    def _change(self, raft: RaftProbe, peer: bytes, removes: bool) -> None:
        self.changed += raft.propose_peer(peer, removes, self.now)

    def heal(self) -> None:
        """Stop all faults."""
        self.faulty = False
        self.cut.clear()
        self.slow = 1
        for member in self.members:
            if member.raft is None:
                member.start()
            if member.paused is not None:
                self.resume(member)

    # -- what must hold --

    def check(self, member: Member) -> None:
        assert member.raft
        if member.raft.state == "leader":
            term = member.raft.now()["term"]
            if self.leaders.setdefault(term, member.number) != member.number:
                raise Unsafe(f"two leaders of term {term}")

    def elected(self, member: Member, term: int) -> None:
        """A leader has all that any member has ever committed, and has applied it."""
        missing = [
            index for index, (at, _) in self.committed.items() if at < term and index > member.committed
        ]
        if missing:
            raise Unsafe(f"the leader of term {term} lacks {missing[:5]}")

    def committed_by(self, member: Member, index: int, term: int, entries: list[Record]) -> None:
        known = self.committed.setdefault(index, (term, entries))
        if known != (term, entries):
            raise Unsafe(f"{member.name!r} commits another {index}: of term {term}, not {known[0]}")
        if member.leads:
            self.acked.update(data for kind, data in entries if kind == NORMAL)

    def applied_by(self, member: Member) -> None:
        if self.hashes.setdefault(member.at, member.hash) != member.hash:
            raise Unsafe(f"{member.name!r} has another state after {member.at}")

    def voters(self) -> list[Member]:
        """Return the members that are peers, as the leader sees it."""
        leading = [member for member in self.members if member.raft and member.leads]
        assert len(leading) == 1, f"{len(leading)} members lead"
        assert leading[0].raft
        peers: list[bytes] = leading[0].raft.now()["peers"]
        return [member for member in self.members if member.name in peers]

    def finish(self) -> None:
        """Stop the faults; the group must agree on everything, and go on."""
        self.heal()
        self.run(self.now + 20 * SECOND)
        before = max(self.committed, default=0)
        self.propose()
        self.run(self.now + 5 * SECOND)
        ends = {member.number: (member.at, member.hash) for member in self.voters()}
        assert len(set(ends.values())) == 1, f"seed {self.seed}: members differ: {ends}"
        doubted = [member.name for member in self.voters() if member.disk.lost]
        assert not doubted, f"seed {self.seed}: {doubted} are not trusted again"
        assert max(self.committed) > before, f"seed {self.seed}: nothing is committed any more"
        kept = {data for _, entries in self.committed.values() for _, data in entries}
        lost = self.acked - kept
        assert not lost, f"seed {self.seed}: lost {min(lost)!r}"


def simulate(seed: int, *, size: int = 3, seconds: int = 20, changes: bool = False, **options: Any) -> Sim:
    """Run a group under faults for some simulated seconds, and check that it recovers."""
    sim = Sim(seed, size, **options)
    end = seconds * SECOND
    sim.clients(end)
    sim.faults(end)
    if changes:
        sim.changes(end)
    sim.run(end)
    sim.finish()
    for member in sim.members:
        member.close()
    return sim
