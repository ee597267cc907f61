"""Use a store while each of its calls fails once. test_failing_calls runs this in its own process.

Prints a line for each violation of these rules:

* An acknowledged message is in the store while the store runs, and after kill -9. With sync_always it is also
  there after all unsynced data was lost.
* A message that the store reports as stored is stored. A message that it reports as removed is removed.
* A message with a TTL expires at the end of its TTL. A schedule is due at its time.
* A store that could not write is frozen, and serves the messages that it has. The next store that opens the
  directory works.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.failing import ERRORS, Failing, here
from support.failing_server import Call
from support.failing_server import Failing as Once

from gnats.store.store import FileStore, StoreFailure

KEY = b"a key of the server"
AT = b"@at 2124-02-20T00:00:00Z"
FAR = 2**63 - 1
"""A time in ns since 1970: by then every TTL has passed and every schedule is due."""
Contents = dict[int, tuple[bytes, bytes]]


class Disk:
    """The synced state of a directory: the contents of files and the entries of directories, by inode."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[int, bytes] = {}
        self._held: dict[int, int] = {}
        """Descriptors by inode: the kernel does not reuse the number of an inode that is open."""
        self._directories: dict[int, dict[str, tuple[int, bool]]] = {}
        self.synced(os.open(root, os.O_RDONLY | os.O_CLOEXEC), close=True)

    def synced(self, fd: int, *, close: bool = False) -> None:
        """Note the state of a file or directory, whose descriptor was just synced."""
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.is_relative_to(self._root):
            found = os.fstat(fd)
            if stat.S_ISDIR(found.st_mode):
                names = {}
                for name in os.listdir(fd):
                    each = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    self._hold(each.st_ino, name, fd)
                    names[name] = each.st_ino, stat.S_ISDIR(each.st_mode)
                self._directories[found.st_ino] = names
            else:
                self._hold(found.st_ino, f"/proc/self/fd/{fd}", None)
                self._files[found.st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()
        if close:
            os.close(fd)

    def _hold(self, inode: int, name: str, fd: int | None) -> None:
        if inode not in self._held:
            self._held[inode] = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=fd)

    def write(self, path: Path) -> None:
        """Write the synced state to the new directory `path`."""
        self._write(path, self._root.stat().st_ino)

    def _write(self, path: Path, inode: int) -> None:
        path.mkdir()
        for name, (child, is_directory) in self._directories.get(inode, {}).items():
            if is_directory:
                self._write(path / name, child)
            else:
                (path / name).write_bytes(self._files.get(child, b""))

    def close(self) -> None:
        for fd in self._held.values():
            os.close(fd)


class Use:
    """A store in use, with the messages that it acknowledged and those that it may have removed."""

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        self.store: FileStore | None = None
        self.directory = directory
        self.settings = settings
        self.acked: Contents = {}
        self.doubtful: set[int] = set()
        """Sequences of the messages that a test has tried to remove."""
        self.removed: set[int] = set()
        """Those of `doubtful` that the store reported as removed."""
        self.always = bool(settings.get("sync_always"))
        self.problems: list[str] = []
        self.waiting: Contents = {}
        self.mortal: set[int] = set()
        """Sequences of the messages that expire."""
        self.scheduled: set[int] = set()
        """Sequences of the messages that are schedules."""
        self._numbers = itertools.count()

    def open(self) -> None:
        with contextlib.suppress(OSError, MemoryError):
            self.store = FileStore(str(self.directory), "S", **self.settings)

    def call(self, work: Callable[[FileStore], Any]) -> Any:
        """Return the result of `work`; None when the store raises OSError or MemoryError."""
        try:
            return work(self.store) if self.store is not None else None
        except (OSError, MemoryError):
            return None

    def publish(self, subject: bytes, size: int, hdr: bytes = b"") -> int | None:
        """Store a message, which flush() acknowledges. Return its sequence; None: the store refused it."""
        payload = b"%d " % next(self._numbers) + b"x" * size
        seq = self.call(lambda store: store.store_msg(subject, payload, hdr, flush=False))
        if seq is not None:
            if seq in self.acked or (seq in self.waiting and self.store and not self.store.failure()):
                self.problems.append(f"sequence {seq} was given out twice")
            self.waiting[seq] = subject, payload
        return seq

    def publish_schedule(self, subject: bytes, hdr: bytes) -> None:
        if (seq := self.publish(subject, 10, hdr)) is not None:
            self.scheduled.add(seq)

    def waiting_ttl(self, subject: bytes, seconds: int) -> None:
        """Store a message with a TTL of `seconds`, which flush() acknowledges."""
        hdr = b"NATS/1.0\r\nNats-TTL: %d\r\n\r\n" % seconds
        seq = self.call(lambda store: store.store_msg(subject, b"lives", hdr, ttl=seconds, flush=False))
        if seq is not None:
            self.mortal.add(seq)
            self.waiting[seq] = subject, b"lives"

    def flush(self) -> None:
        """Flush the stored messages, with `always` also sync them; acknowledge them if that succeeds."""

        def work(store: FileStore) -> bool:
            store.flush_pending()
            if self.always:
                store.sync_flushed()
            return True

        if self.call(work):
            self.acked |= self.waiting
        self.waiting = {}

    def remove(self, seq: int, erase: bool = False) -> None:
        known = seq in self.acked and seq not in self.doubtful
        self.doubtful.add(seq)
        done = self.call(lambda store: store.remove_msg(seq, erase))
        if done:
            self.removed.add(seq)
        elif known and done is False:
            self.problems.append(f"sequence {seq} is not there to be removed")

    def purge(self, **what: Any) -> None:
        seqs = set(self.acked)
        self.doubtful |= seqs
        if self.call(lambda store: store.purge_msgs(**what)) is not None and not what:
            self.removed |= seqs

    def check(self, store: FileStore, when: str, *, lost_removals: bool = False) -> None:
        """Compare the store with the acknowledged messages; add differences to `problems`.

        `lost_removals`: removed messages may have come back.
        """
        found: Contents = {}
        message = store.get_next()
        while message:
            found[message[0]] = message[2], message[4]
            message = store.get_next((), message[0] + 1)
        for seq, each in self.acked.items():
            if seq in found and found[seq] != each:
                self.problems.append(f"{when}: sequence {seq} is another message")
            if seq not in found and seq not in self.doubtful:
                self.problems.append(f"{when}: sequence {seq} is lost")
            if seq in found and seq in self.removed and not lost_removals:
                self.problems.append(f"{when}: sequence {seq} is removed, and there")
        state = store.state()
        if state.msgs != len(found):
            self.problems.append(f"{when}: {state.msgs} messages are counted, {len(found)} are there")
        if state.lost_msgs:
            self.problems.append(f"{when}: {state.lost_msgs} messages count as lost")
        if found and (state.first_seq, state.last_seq < max(found)) != (min(found), False):
            self.problems.append(f"{when}: first is {state.first_seq} and last {state.last_seq}")

    def check_late(self, store: FileStore, when: str) -> None:
        """Check that every schedule is due at FAR, and that every message with a TTL has expired then."""
        if self.scheduled:
            due = store.schedules_due(FAR)
            late = self.scheduled & self.acked.keys() - self.doubtful - set(due)
            if late:
                self.problems.append(f"{when}: the schedules {sorted(late)} are never due")
        if self.mortal:
            store.expire_msgs(FAR)
            message = store.get_next()
            while message:
                if message[0] in self.mortal:
                    self.problems.append(f"{when}: sequence {message[0]} never expires")
                message = store.get_next((), message[0] + 1)

    def check_next(self, directory: Path, when: str, *, lost_removals: bool = False) -> None:
        """Open the directory with a new store, check it, and store another message."""
        try:
            store = FileStore(str(directory), "S", **self.settings)
        except OSError as exc:
            self.problems.append(f"{when}: it does not open: {exc}")
            return
        self.check(store, when, lost_removals=lost_removals)
        seq = store.store_msg(b"next", b"message")
        if seq <= max(self.acked, default=0):
            self.problems.append(f"{when}: sequence {seq} is given out twice")
        if store.get(seq)[4] != b"message":
            self.problems.append(f"{when}: it stores nothing")
        self.check_late(store, when)
        store.close()


def append(use: Use) -> None:
    use.open()
    for round_ in range(5):
        for number in range(6):
            use.publish(b"a.%d" % (number % 3), 100 * (number % 4))
        use.flush()
        use.call(lambda store: store.write_state(True))
        if round_ % 2:
            use.call(lambda store: store.maintain(idle=0))
    use.call(lambda store: store.get(2))
    use.publish(b"a.large", 5000)
    use.flush()


def remove(use: Use) -> None:
    use.open()
    for number in range(24):
        use.publish(b"a.%d" % (number % 3), 150)
        use.flush()
    use.call(lambda store: store.write_state(True))
    for seq in (3, 1, 2, 9, 10, 11, 12, 13, 24):
        use.remove(seq, erase=seq in (3, 11))
    use.call(lambda store: store.maintain(idle=0))
    use.publish(b"a.next", 100)
    use.flush()
    use.purge(subject=b"a.1", keep=1)
    use.publish(b"a.next", 100)
    use.flush()


def purge(use: Use) -> None:
    use.open()
    for _ in range(2):
        for number in range(9):
            use.publish(b"a.%d" % (number % 3), 300)
        use.flush()
        use.call(lambda store: store.write_state(True))
        use.purge()
        use.publish(b"a.after", 100)
        use.flush()


def keep_last(use: Use) -> None:
    """Keep the last message of each subject: the last acknowledged one stays, or a later one."""
    use.open()
    for number in range(40):
        subject = b"k.%d" % (number % 4)
        use.doubtful |= {seq for seq, (other, _) in use.acked.items() if other == subject}
        use.publish(subject, 150)
        if number % 2:
            use.flush()
    use.flush()
    use.call(lambda store: store.maintain(idle=0))


MOST = 12


def limit(use: Use) -> None:
    """Keep the last MOST messages."""
    use.open()
    for number in range(50):
        # messages that are not acknowledged may be stored, and push out others
        use.doubtful |= set(sorted({**use.acked, **use.waiting})[: -MOST + 1])
        use.publish(b"a.%d" % (number % 4), 100)
        if number % 2:
            use.flush()
    use.flush()


def reopen(use: Use) -> None:
    """Open a store again: first with its files as they are, then without index.db."""
    use.open()
    for number in range(300):
        use.publish(b"a.%d" % (number % 5), 40)
    use.flush()
    for seq in range(50, 90, 3):
        use.remove(seq)
    use.call(lambda store: store.skip(n=2000))
    for number in range(20):
        use.publish(b"b.%d" % (number % 5), 4)
    use.flush()
    use.call(lambda store: store.maintain(idle=0))
    use.call(lambda store: store.maintain(idle=0))
    for index in (False, True):
        use.call(lambda store: store.close())
        use.store = None
        if index:
            (use.directory / "msgs" / "index.db").unlink(missing_ok=True)
        use.open()
        use.call(lambda store: store.get(2))
        use.call(lambda store: store.deleted())
        use.call(lambda store: store.last_seqs([b"a.>"]))
        use.call(lambda store: store.subjects_page([b"a.>"], most=3))


def live(use: Use) -> None:
    """Store messages with TTLs of an hour and more."""
    use.open()
    for number in range(200):
        use.waiting_ttl(b"t.%d" % number, 3600 + number)
    use.flush()
    use.call(lambda store: store.write_state(True))


def expire(use: Use) -> None:
    live(use)
    use.call(lambda store: store.close())
    use.store = None
    use.open()
    use.call(lambda store: store.expire_msgs())


def plan(use: Use) -> None:
    """Store schedules that are not due yet."""
    use.open()
    hdr = b"NATS/1.0\r\nNats-Schedule: %s\r\nNats-Schedule-Target: target\r\n\r\n"
    for number in range(40):
        when = b"0 0 5 * * *\r\nNats-Schedule-Time-Zone: Europe/Amsterdam" if number % 9 == 1 else AT
        use.publish_schedule(b"s.%d" % number, hdr % when)
    use.flush()
    use.call(lambda store: store.write_state(True))
    use.remove(2)


def schedule(use: Use) -> None:
    plan(use)
    use.call(lambda store: store.close())
    use.store = None
    use.open()


def truncate(use: Use) -> None:
    """Truncate a store whose removed end contains tombstones of earlier messages."""
    use.open()
    for number in range(200):
        use.publish(b"a.%d" % (number % 5), 40)
    use.flush()
    for seq in range(10, 60):
        use.remove(seq)
    for number in range(60):
        use.publish(b"b.%d" % (number % 5), 40)
    use.flush()
    use.doubtful |= {seq for seq in use.acked if seq > 190}
    use.call(lambda store: store.truncate_to(190))
    use.acked = {seq: each for seq, each in use.acked.items() if seq <= 190}


def ask(use: Use) -> None:
    """Query many subjects, and remove many messages."""
    use.open()
    for number in range(400):
        use.publish(b"a.%d.%s" % (number % 60, b"long" * (number % 90)), 10)
    use.flush()
    for number in range(1, 50):
        use.publish(b"d" * number, 10)
    use.publish(b"1.1.1.1.1.1.1", 10)
    use.flush()
    filters = [b"a.*.longlong", b"*.7.>", b"a.>"]
    # The filters that a subject matches so far are followed apart: here 128 at the end of b"1.1.1.1.1.1.1".
    many = [b".".join(tokens) for tokens in itertools.product((b"*", b"1"), repeat=7)]
    use.call(lambda store: store.subjects_totals(many))
    use.call(lambda store: store.subjects_totals([b">"]))
    use.call(lambda store: store.last_seqs(filters, up_to=300))
    use.call(lambda store: store.last_seqs([b"a.>"]))
    use.call(lambda store: store.subjects_page([b"a.>"], most=3))
    use.call(lambda store: store.subjects_totals(filters))
    use.purge(subject=b"a.7.>")
    use.purge(seq=100)
    for seq in range(200, 380, 3):
        use.remove(seq)
    use.doubtful |= set(use.acked)
    use.call(lambda store: store.compact_to(150))
    use.call(lambda store: store.update_config(max_msgs_per_subject=1))
    use.call(lambda store: store.write_state(True))
    use.call(lambda store: store.maintain(idle=0))


def leave_gaps(use: Use) -> None:
    """Leave a large gap between the messages of one block."""
    use.open()
    use.publish(b"a.0", 10)
    use.flush()
    use.call(lambda store: store.skip(n=5000))
    for number in range(150):
        use.publish(b"a.%d" % number, 10)
        use.flush()
    use.call(lambda store: store.write_state(True))


def cut_gap(use: Use) -> None:
    """Cut a gap in the middle, and store messages with sequences that were a part of it."""
    use.open()
    use.publish(b"a.0", 10)
    use.flush()
    use.call(lambda store: store.skip(n=5000))
    use.publish(b"a.1", 10)
    use.flush()
    use.doubtful.add(5002)
    if use.call(lambda store: store.truncate_to(3000)) is not None:
        use.acked.pop(5002, None)
        use.doubtful.clear()
    for number in range(20):
        use.publish(b"b.%d" % number, 10)
    use.flush()
    for seq in range(3001, 3011):
        use.remove(seq)


SMALL = {"block_size": 1500}
USES: dict[str, tuple[Callable[[Use], None], dict[str, Any]]] = {
    "append": (append, SMALL),
    "append, sync": (append, SMALL | {"sync_always": True}),
    "append, encrypted": (
        append,
        SMALL | {"sync_always": True, "cipher": "chacha", "key": KEY, "account": "A"},
    ),
    "append, compressed": (append, SMALL | {"compression": "s2"}),
    "remove": (remove, SMALL),
    "remove, sync": (remove, SMALL | {"sync_always": True}),
    "purge": (purge, SMALL),
    "purge, sync": (purge, SMALL | {"sync_always": True}),
    "limit": (limit, SMALL | {"max_msgs": MOST}),
    "limit, sync": (limit, SMALL | {"max_msgs": MOST, "sync_always": True}),
    "last": (keep_last, SMALL | {"max_msgs_per_subject": 1}),
    "last, sync": (keep_last, SMALL | {"max_msgs_per_subject": 1, "sync_always": True}),
}
MORE: dict[str, tuple[Callable[[Use], None], dict[str, Any]]] = {
    "reopen": (reopen, SMALL),
    "reopen, compressed": (reopen, SMALL | {"compression": "s2"}),
    "reopen, encrypted": (reopen, SMALL | {"cipher": "chacha", "key": KEY, "account": "A"}),
    "live": (live, SMALL | {"allow_msg_ttl": True}),
    "expire": (expire, SMALL | {"allow_msg_ttl": True}),
    "remove, encrypted": (remove, SMALL | {"cipher": "chacha", "key": KEY, "account": "A"}),
    "gaps": (leave_gaps, {}),
    "cut gap": (cut_gap, {}),
    "ask": (ask, SMALL),
    "plan": (plan, SMALL | {"allow_msg_schedules": True}),
    "schedule": (schedule, SMALL | {"allow_msg_schedules": True}),
    "truncate": (truncate, SMALL),
}
"""Uses in which only allocations fail, no other calls."""


def latest_are_there(use: Use, store: FileStore, when: str) -> None:
    """Check that each subject has its last acknowledged message, or a later one."""
    newest: dict[bytes, int] = {}
    for seq, (subject, _) in use.acked.items():
        newest[subject] = max(newest.get(subject, 0), seq)
    for subject, seq in newest.items():
        last = store.get_last(subject)
        if last is None or last[0] < seq or (last[0] == seq and (last[2], last[4]) != use.acked[seq]):
            use.problems.append(
                f"{when}: the last message of {subject!r} was {seq}, and is {last and last[0]}"
            )


class Turn:
    """One use of a store, in a directory of its own, during which one call fails."""

    def __init__(self, failing: Failing | Once, directory: Path, name: str) -> None:
        self._failing = failing
        self._root = directory
        self._work, settings = (USES | MORE)[name]
        home = directory / "home"
        home.mkdir(parents=True)
        self.use = Use(home, settings)
        self._disk = Disk(home)
        if isinstance(failing, Failing):
            failing.on_sync(self._disk.synced)

    def run(self, kind: str, call: int, error: int) -> None:
        assert isinstance(self._failing, Failing)
        self._failing.arm(kind, call, error)
        self._work(self.use)
        self._failing.disarm()

    def run_once(self) -> str:
        """Fail an allocation at a new place; return that place, "" when no new place was reached."""
        assert isinstance(self._failing, Once)
        self._failing.fail_next(Call.MEMORY)
        self._work(self.use)
        return self._failing.stop()

    def count(self) -> Failing:
        """Use the store with no call failing, and count its calls of each kind."""
        assert isinstance(self._failing, Failing)
        self._failing.count()
        self._work(self.use)
        return self._failing

    def check(self) -> None:
        use, root = self.use, self._root
        shutil.copytree(use.directory, root / "killed")
        sees_syncs = use.always and isinstance(self._failing, Failing)
        if sees_syncs:
            self._disk.write(root / "power")
        if use.store is not None:
            self._check(use.store, "while it runs")
        self._check_next(root / "killed", "after kill -9")
        if sees_syncs:
            self._check_next(root / "power", "after the loss of what was not synced", lost_removals=True)
        if use.store is not None:
            use.check_late(use.store, "while it runs")
            use.doubtful |= use.mortal
            use.call(lambda store: store.close())
        self._check_next(use.directory, "after its end")

    def _check(self, store: FileStore, when: str) -> None:
        self.use.check(store, when)
        if self._work is keep_last:
            latest_are_there(self.use, store, when)

    def _check_next(self, directory: Path, when: str, *, lost_removals: bool = False) -> None:
        if self._work is keep_last:
            with contextlib.suppress(StoreFailure):
                store = FileStore(str(directory), "S", **self.use.settings)
                latest_are_there(self.use, store, when)
                store.close()
        self.use.check_next(directory, when, lost_removals=lost_removals)

    def close(self) -> None:
        self._disk.close()
        shutil.rmtree(self._root)


def turns(failing: Failing, root: Path, name: str) -> Iterator[tuple[str, int, int]]:
    """Every call that there is to fail: its kind, its number and an errno."""
    turn = Turn(failing, root / "count", name)
    turn.count()
    counts = {kind: failing.seen(kind) for kind in ERRORS}
    turn.check()
    assert not turn.use.problems, turn.use.problems
    assert turn.use.acked
    turn.close()
    for kind, errors in ERRORS.items():
        for call, error in itertools.product(range(1, counts[kind] + 1), errors):
            yield kind, call, error


def main(root: Path, name: str) -> None:
    failing = here()
    tried = 0
    for kind, call, error in turns(failing, root, name):
        turn = Turn(failing, root / f"{kind}{call}", name)
        turn.run(kind, call, error)
        tried += failing.hits
        turn.check()
        for problem in dict.fromkeys(turn.use.problems):
            print(f"{kind} {call} ({os.strerror(error)}): {problem}")
        turn.close()
    print(f"{tried} calls failed", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
