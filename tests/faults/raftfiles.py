"""Use the files of a Raft member while each call fails once, and look at what a crash leaves at each.

test_failing_calls runs this in its own process. Prints a line for each violation of these rules. A
directory that kill -9 or a loss of power has left opens, and has

* the vote, the peers and the snapshot that were saved last, or were being saved
* with sync_always each record for which flush() and sync() returned; without it, and after kill -9 alone,
  each for which flush() did; but those that were truncated, or are in the snapshot
* nothing else than a prefix of the log, as it was at some time since then

and none of that is taken for damage. A call that fails says so, and `failure` says why.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.failing import ERRORS, Failing, here
from support.raftsim import Replaying

from gnats.raft import messages
from gnats.raft.files import FilesError, RaftFiles, bootstrap
from gnats.raft.raft_probe import FilesProbe, RaftProbe

from .stores import Disk

GROUP = "S-R3F-abcdefgh"
ME, OTHER, THIRD = b"AAAAAAAA", b"BBBBBBBB", b"CCCCCCCC"
PEERS = [ME, OTHER, THIRD]
NORMAL = 0
KILL, POWER = "kill -9", "a loss of power"
SMALL = {"block_size": 1500}
USES: dict[str, dict[str, Any]] = {
    "written": SMALL,
    "synced": SMALL | {"sync_always": True},
    "encrypted": SMALL
    | {"sync_always": True, "cipher": "chacha", "key": b"a key of the server", "account": "A"},
}
STEPS = 60
CHANGES = ("write", "sync", "open", "rename", "unlink", "truncate", "mkdir")
"""Calls that may change a directory: a crash is tried before each of them."""
Log = dict[int, bytes]
Snapshot = tuple[int, int, bytes, bytes]


class Opened:
    """The files of a directory, opened and recovered. Raises OSError, FilesError, MemoryError."""

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        self.warnings: list[str] = []
        self.files = RaftFiles(directory, GROUP, warn=self.warnings.append, **settings)
        self.probe = FilesProbe(self.files)
        raft = RaftProbe(Replaying(self.probe), ME, 1)
        self.probe.recover(raft)
        self.now = raft.now()


class Use:
    """The files of a member in use, and what a crash may leave of them."""

    def __init__(self, home: Path, settings: dict[str, Any], seed: int) -> None:
        self.directory = home / "group"
        self.settings = settings
        self.always = bool(settings.get("sync_always"))
        self.rng = random.Random(seed)
        self.open: Opened | None = None
        self.killed: list[Opened] = []
        self.begun = False
        self.halted = False
        """A call of the log has failed: as a Raft does, store nothing more."""
        self.problems: list[str] = []
        self.votes: list[tuple[int, bytes]] = [(0, b"")]
        """The vote that was saved last, and those that were being saved since then."""
        self.peers: list[bytes] = []
        self.snapshots: list[Snapshot | None] = [None]
        self.replaces: set[int] = set()
        """Indexes of the snapshots being saved that replace the whole log."""
        self.log: Log = {}
        self.versions: dict[str, list[Log]] = {KILL: [self.log], POWER: [self.log]}
        self.kept: dict[str, Log] = {KILL: {}, POWER: {}}
        self.flushed: Log = {}
        self.terms: dict[int, int] = {0: 0}
        self.term = self.last = self.base = self.commit = 0

    # -- what it does --

    def run(self) -> None:
        state = messages.write_peer_state(3, PEERS)
        self.peers.append(state)
        try:
            bootstrap(self.directory, 3, PEERS)
        except OSError:
            return
        self.begun = True
        self.reopen()
        steps: dict[Callable[[], None], int] = {
            self.store: 12,
            self.flush: 6,
            self.sync: 6,
            self.truncate: 3,
            self.compact: 3,
            self.install: 1,
            self.vote: 3,
            self.save_peers: 1,
            self.maintain: 2,
            self.load: 2,
            self.reopen: 1,
            self.kill: 1,
        }
        if self.open is not None:
            self.vote()
        for step in self.rng.choices(list(steps), list(steps.values()), k=STEPS):
            if self.open is None:
                return
            step()
        if self.open is not None:
            self.flush()
            self.sync()

    def failed(self, name: str, result: int) -> bool:
        if result >= 0:
            return False
        if self.open is not None and not self.open.files.failure:
            self.problems.append(f"{name} fails, and nothing says why")
        return True

    def reopen(self) -> None:
        try:
            if self.open is not None:
                self.open.files.close()
                if not self.halted:
                    self.written()
                self.open = None
            self.open = Opened(self.directory, self.settings)
        except (OSError, MemoryError):
            self.open = None
            return
        except FilesError as error:
            self.problems.append(f"it does not open again: {error}")
            return
        self.look(self.open, "when it is opened again", KILL)
        # An open directory has the log as it is now, whatever a failure before that has left.
        now = self.open.now
        self.base, self.last, self.commit = (
            now["snapshot"],
            now["pindex"],
            max(now["commit"], now["snapshot"]),
        )
        self.terms[self.last] = now["pterm"]
        self.log = {index: self.log_at(index) for index in range(self.base + 1, self.last + 1)}
        self.versions[KILL] = [self.log]
        self.versions[POWER].append(self.log)
        self.kept[KILL] = self.flushed = dict(self.log)
        if self.always:  # the Raft says that it has what it has found
            self.kept[POWER] = dict(self.log)
            self.versions[POWER] = [self.log]
        self.votes = [(now["term"], now["vote"])]
        self.term = now["term"]
        self.snapshots = [each for each in self.snapshots if self.base == (each[1] if each else 0)]
        self.replaces.clear()
        self.halted = False

    def kill(self) -> None:
        """Open the directory again as after kill -9, which leaves what was written."""
        if self.open is not None:
            self.killed.append(self.open)
            self.open = None
        self.reopen()

    def log_at(self, index: int) -> bytes:
        assert self.open is not None
        return self.open.probe.load(index) or b""

    def written(self) -> None:
        """Note that the log was written."""
        self.flushed = dict(self.log)
        self.kept[KILL] = dict(self.log)
        self.versions[KILL] = [self.log]

    def probe(self) -> FilesProbe:
        assert self.open is not None
        return self.open.probe

    def store(self) -> None:
        for _ in range(0 if self.halted else self.rng.choice((1, 1, 4, 9))):
            if (self.term == 0 or self.rng.random() < 0.05) and not self.vote():
                return
            index = self.last + 1
            data = messages.write_append_entry(
                OTHER, self.term, self.commit, self.terms[self.last], self.last, 0,
                [(NORMAL, b"%d " % self.rng.getrandbits(40) + b"x" * self.rng.choice((0, 50, 400)))],
            )  # fmt: skip
            self.log[index] = data
            if self.failed("store", self.probe().store(index, data)):
                self.halted = True
                return
            self.last, self.terms[index] = index, self.term
        self.commit = self.rng.randint(self.commit, self.last)

    def flush(self) -> None:
        last = self.probe().flush()
        if self.failed("flush", last):
            self.halted = True
        elif not self.halted:
            if last != self.last:
                self.problems.append(f"flush() returns {last}, and the last record is {self.last}")
            self.written()

    def sync(self) -> None:
        flushed = self.flushed
        if self.failed("sync", self.probe().sync()):
            self.halted = True
        elif self.always and not self.halted:
            self.kept[POWER] = dict(flushed)
            self.versions[POWER] = [self.log]

    def cut(self, new: Log) -> None:
        for versions in self.versions.values():
            versions.append(new)
        self.log = new

    def truncate(self) -> None:
        if self.halted or self.commit == self.last:
            return
        index = self.rng.randint(self.commit, self.last - 1)
        for which in (KILL, POWER):
            self.kept[which] = {at: data for at, data in self.kept[which].items() if at <= index}
        self.flushed = {at: data for at, data in self.flushed.items() if at <= index}
        self.cut({at: data for at, data in self.log.items() if at <= index})
        if self.failed("truncate", self.probe().truncate(index)):
            self.halted = True
            return
        self.versions[KILL] = [self.log]
        self.last = index
        self.vote()  # only a leader of another term asks for it

    def snapshot(self, term: int, index: int, replaces: bool) -> None:
        what = (
            term,
            index,
            messages.write_peer_state(3, PEERS),
            self.rng.randbytes(self.rng.choice((0, 100))),
        )
        new = {} if replaces else {at: data for at, data in self.log.items() if at > index}
        self.snapshots.append(what)
        if replaces:
            self.replaces.add(index)
        self.cut(new)
        if self.failed("save_snapshot", self.probe().save_snapshot(what, replaces)):
            self.halted = True
            return
        self.terms[index] = term
        for which in (KILL, POWER):
            kept = self.kept[which].items()
            self.kept[which] = {at: data for at, data in kept if at > index and not replaces}
        self.flushed = {at: data for at, data in self.flushed.items() if at in new}
        self.snapshots = [what]
        self.replaces.clear()
        self.versions[KILL] = [self.log]
        self.base = index
        if replaces:
            self.last = self.commit = index

    def compact(self) -> None:
        """Take a snapshot of what is committed."""
        if not self.halted and self.commit > self.base:
            index = self.rng.randint(self.base + 1, self.commit)
            self.snapshot(self.terms[index], index, False)

    def install(self) -> None:
        """Take the leader's snapshot."""
        if not self.halted and self.vote():
            index = self.commit + self.rng.randint(1, 20)
            self.snapshot(self.term - self.rng.randint(0, 1), index, True)

    def vote(self) -> bool:
        vote = self.term + 1, self.rng.choice((b"", *PEERS))
        self.votes.append(vote)
        if self.failed("save_vote", self.probe().save_vote(*vote)):
            self.halted = True
            return False
        self.votes = [vote]
        self.term = vote[0]
        return True

    def save_peers(self) -> None:
        state = messages.write_peer_state(3, self.rng.sample(PEERS, self.rng.randint(1, 3)))
        self.peers.append(state)
        if not self.failed("save_peers", self.probe().save_peers(state)):
            self.peers = [state]

    def maintain(self) -> None:
        assert self.open is not None
        try:
            self.open.files.log.write_state(True)
            self.open.files.log.maintain(idle=0)
        except OSError:
            pass

    def load(self) -> None:
        if self.last > self.base and not self.halted:
            index = self.rng.randint(self.base + 1, self.last)
            found = self.probe().load(index)
            if found is not None and found != self.log[index]:
                self.problems.append(f"record {index} is another one")

    # -- what must hold --

    def look(self, found: Opened, when: str, after: str) -> None:
        """Compare what was found with what may be there `after` a crash of that kind."""
        now, problems = found.now, self.problems
        if (now["term"], now["vote"]) not in self.votes:
            problems.append(f"{when}: the vote is {now['term'], now['vote']}, not one of {self.votes}")
        if Path(found.files.directory, "peers.idx").read_bytes() not in self.peers:
            problems.append(f"{when}: the peers are others")
        # Without sync_always a loss of power costs records, and it is right to say so.
        if (after == KILL or self.always) and (
            now["doubted"] or any("lost to damage" in text for text in found.warnings)
        ):
            problems.append(f"{when}: it is taken for damage, doubted {now['doubted']}: {found.warnings}")
        snapshot = found.probe.load_snapshot()
        base, last = now["snapshot"], now["pindex"]
        log = {index: found.probe.load(index) for index in range(base + 1, last + 1)}
        if found.files.failure:
            return  # the call that fails was one of these loads
        if snapshot not in self.snapshots:
            problems.append(f"{when}: the snapshot is another one: {snapshot and snapshot[:2]}")
        for index, data in () if base in self.replaces else self.kept[after].items():
            if index > base and log.get(index) != data:
                problems.append(f"{when}: record {index} is {'another' if index in log else 'lost'}")
        if not any(
            all(version.get(at) == data for at, data in log.items()) for version in self.versions[after]
        ):
            problems.append(f"{when}: {base + 1} to {last} are no prefix of the log")

    def look_at(self, directory: Path, when: str, after: str) -> None:
        """Open a directory that a crash `after` has left, and store another record."""
        if not self.begun and not (directory / "peers.idx").exists():
            return
        try:
            found = Opened(directory, self.settings)
            self.look(found, when, after)
            self.go_on(found, when)
            found.files.close()
            last = found.now["pindex"]
            again = Opened(directory, self.settings)
            if again.now["pindex"] != last + 1:
                self.problems.append(f"{when}: the next record is not there")
            again.files.close()
        except (OSError, FilesError, MemoryError) as error:
            self.problems.append(f"{when}: it does not open: {error!r}")

    def go_on(self, found: Opened, when: str) -> None:
        last, term = found.now["pindex"], found.now["term"] + 1
        data = messages.write_append_entry(OTHER, term, 0, found.now["pterm"], last, 0, [(NORMAL, b"next")])
        probe = found.probe
        if probe.save_vote(term, b"") or probe.store(last + 1, data) or probe.flush() != last + 1:
            self.problems.append(f"{when}: it stores nothing: {found.files.failure}")


class TornDisk(Disk):
    """A disk that may also have written some of what was not synced, in any order."""

    def write_torn(self, path: Path, rng: random.Random) -> None:
        """Write to the new directory `path` the synced state, and some of what has changed since."""
        self._write_torn(path, self._root, self._root.stat().st_ino, rng)

    def _write_torn(self, path: Path, now: Path, inode: int, rng: random.Random) -> None:
        path.mkdir()
        names = self._directories.get(inode, {})
        if now.is_dir() and now.stat().st_ino == inode and rng.random() < 0.5:
            found = {each.name: (each.stat().st_ino, each.is_dir()) for each in now.iterdir()}
            names = found
        for name, (child, is_directory) in names.items():
            if is_directory:
                self._write_torn(path / name, now / name, child, rng)
                continue
            synced = self._files.get(child, b"")
            current = synced
            if (now / name).is_file() and (now / name).stat().st_ino == child:
                current = (now / name).read_bytes()
            if current.startswith(synced):
                current = current[
                    : rng.choice((len(synced), len(current), rng.randint(len(synced), len(current))))
                ]
            (path / name).write_bytes(current)


class Turn:
    """One use, in a directory of its own."""

    def __init__(self, failing: Failing, root: Path, name: str, seed: int) -> None:
        self.failing = failing
        self.root = root
        home = root / "home"
        home.mkdir(parents=True)
        self.use = Use(home, USES[name], seed)
        self.disk = TornDisk(home)
        self.rng = random.Random(seed)
        self.busy = False
        self.crashes = 0
        failing.on_sync(self.synced)

    def synced(self, fd: int) -> None:
        if not self.busy:
            self.disk.synced(fd)

    def crash(self, when: str) -> None:
        """Look at what a crash would leave now."""
        self.busy = True
        self.crashes += 1
        after = self.root / "after"
        shutil.copytree(self.use.directory.parent, after)
        self.use.look_at(after / "group", f"{when}, after {KILL}", KILL)
        shutil.rmtree(after)
        self.disk.write(after)
        self.use.look_at(after / "group", f"{when}, after {POWER}", POWER)
        shutil.rmtree(after)
        if self.use.always:
            self.disk.write_torn(after, self.rng)
            self.use.look_at(after / "group", f"{when}, after {POWER} that tears", POWER)
            shutil.rmtree(after)
        self.busy = False

    def called(self, kind: str) -> None:
        if not self.busy and kind in CHANGES:
            try:
                self.crash(f"before {kind} {self.failing.seen(kind)}")
            except Exception as error:
                self.use.problems.append(f"before {kind} {self.failing.seen(kind)}: {error!r}")
                raise

    def crash_at_each_call(self) -> None:
        self.failing.on_call(self.called)
        self.failing.count()
        self.use.run()
        self.failing.on_call(None)
        self.end()

    def count(self) -> dict[str, int]:
        """Count the calls of each kind."""
        self.failing.count()
        self.use.run()
        seen = {kind: self.failing.seen(kind) for kind in ERRORS}
        self.end()
        return seen

    def fail(self, kind: str, call: int, error: int) -> None:
        self.failing.arm(kind, call, error)
        self.use.run()
        self.failing.disarm()
        self.end()

    def end(self) -> None:
        self.crash("at the end")
        self.busy = True
        for opened in (*self.use.killed, self.use.open):
            if opened is not None:
                with contextlib.suppress(OSError):
                    opened.files.close()
        self.disk.close()
        shutil.rmtree(self.root)


def main(root: Path, name: str, seeds: int) -> None:
    failing = here()
    tried = crashes = 0

    def report(turn: Turn, what: str) -> None:
        for problem in dict.fromkeys(turn.use.problems):
            print(f"seed {seed}, {what}: {problem}")

    for seed in range(1, seeds + 1):
        turn = Turn(failing, root / "crashes", name, seed)
        turn.crash_at_each_call()
        report(turn, "nothing fails")
        crashes += turn.crashes
        turn = Turn(failing, root / "count", name, seed)
        counts = turn.count()
        report(turn, "nothing fails")
        for kind, errors in ERRORS.items():
            for call in range(1, counts[kind] + 1):
                turn = Turn(failing, root / "failing", name, seed)
                turn.fail(kind, call, errors[call % len(errors)])
                report(turn, f"{kind} {call} fails")
                tried += failing.hits
    print(f"{tried} calls failed, {crashes} crashes", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
