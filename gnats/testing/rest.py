"""Check that an idle server rests. Test harnesses do so before they stop a server.

A server without work rests when each thread sleeps and wakes up only for a cause, no deadline has passed
unnoticed, and no descriptor is open on something that is gone. Clients may be connected and ping now and
then. A server that still has work gets time for it, measured in the CPU that it uses, because a busy machine
may not let it run.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from gnats.go.text import SECOND

if TYPE_CHECKING:
    from gnats.jetstream.engine.engine import Engine
    from gnats.runtime.pollers import Pollers
    from gnats.server.server import Server

WINDOW = 0.02
"""Seconds between the first two samples: the time that the check takes for a server at rest."""
LONGEST_WINDOW = 0.64
"""Seconds between two samples, at most; each window is twice as long as the one before."""
PATIENCE = 8.0
"""Seconds that a server may take to come to rest, in real time; five times as many under a sanitizer."""
WORK = 4.0
"""Seconds of CPU that it may use until it rests; five times as many under a sanitizer."""
WAKEUPS_PER_SECOND = 25
"""Wake-ups of a resting thread that are allowed: timers of clients and of JetStream cause them."""
KEPT_MEMORY = 1 << 30
"""Bytes by which a process's anonymous memory may have grown since the server was ready."""
KEPT_MEMORY_EMBEDDED = 256 << 20
"""Bytes by which it may have grown when the servers in it have ended: a test keeps things of its own."""

_CALLS = {0: "read", 1: "write", 46: "sendmsg", 202: "futex", 230: "clock_nanosleep", 232: "epoll_wait"}
_CALLS[281] = "epoll_pwait"  # numbers of x86-64; other calls are shown by number
_ESTABLISHED, _SYN_RECEIVED, _LISTEN = "01", "03", "0A"
_LIVE = (_ESTABLISHED, _SYN_RECEIVED, _LISTEN)
_STORED = re.compile(r"\.(blk|db|dat|inf|idx|fss)( \(deleted\))?$")
"""Matches the names of files that stores keep open."""


class NotAtRest(AssertionError):
    """A server works without a cause, or keeps something that is gone. The text names threads and calls."""


class ThreadSample(NamedTuple):
    """The state of a thread at one moment; the counters are since its start."""

    name: str
    state: str  # as in /proc: R runs or waits for a core, S sleeps
    cpu: int  # ns that it ran
    ready: int  # ns that it ran or waited for a core
    switches: int  # context switches, voluntary and not


def sample_threads(pid: int | str) -> dict[int, ThreadSample]:
    """Return the threads of a process ("self": this one), by thread id.

    Raises FileNotFoundError when the process has ended, or is a zombie.
    """
    found: dict[int, ThreadSample] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[int(task.name)] = _sample_thread(task)
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
    if all(thread.state in "ZX" for thread in found.values()):
        raise FileNotFoundError(f"process {pid} has ended")
    return found


def _sample_thread(task: Path) -> ThreadSample:
    fields = dict(
        line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line
    )
    ran, waited, _ = map(int, (task / "schedstat").read_text().split())
    switches = int(fields["voluntary_ctxt_switches"]) + int(fields["nonvoluntary_ctxt_switches"])
    return ThreadSample(fields["Name"], fields["State"][0], ran, ran + waited, switches)


@dataclass
class Sample:
    """The state of a server at one moment."""

    at: float  # monotonic seconds
    threads: dict[int, ThreadSample]
    wakeups: dict[str, int] = field(default_factory=dict)  # by poller, since its start
    overdue: list[str] = field(default_factory=list)  # deadlines that have passed, in words
    kept: list[str] = field(default_factory=list)  # things kept that should be gone, in words

    @property
    def cpu(self) -> float:
        """The CPU time of all threads, in seconds."""
        return sum(thread.cpu for thread in self.threads.values()) / SECOND


def restless(before: Sample, after: Sample, *, asking: int = 0) -> list[str]:
    """Describe what did not rest between two samples. `asking` is the calling thread, which may run."""
    seconds = after.at - before.at
    allowed = 1 + int(seconds * WAKEUPS_PER_SECOND)
    faults = []
    for tid, thread in after.threads.items():
        if (earlier := before.threads.get(tid)) is None:
            faults.append(f"thread {thread.name} ({tid}) has just begun")
            continue
        ready = (thread.ready - earlier.ready) / SECOND / seconds
        switches = thread.switches - earlier.switches
        runs = thread.state not in "SI" and tid != asking
        if ready > 0.5 or runs or (switches > allowed and tid != asking):
            faults.append(
                f"thread {thread.name} ({tid}) {'runs' if runs else 'sleeps'}: in {seconds * 1000:.0f} ms it"
                f" wanted to run for {ready:.0%} of the time and was switched {switches} times"
            )
    for name, wakeups in after.wakeups.items():
        if (times := wakeups - before.wakeups.get(name, 0)) > allowed:
            faults.append(f"{name} went round {times} times in {seconds * 1000:.0f} ms")
    return [*faults, *after.overdue, *after.kept]


class ServerProcess:
    """A server in a process of its own. Make this when it is ready: later samples compare with that state."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptors = descriptors(pid)
        self._memory = own_memory(pid)
        self.asking = 0

    def sample(self) -> Sample:
        kept = kept_descriptors(self.pid, self._descriptors)
        if (more := own_memory(self.pid) - self._memory) > KEPT_MEMORY:
            kept.append(f"it has {more >> 20} MiB more memory than at its start")
        return Sample(time.monotonic(), sample_threads(self.pid), overdue=_fired(self.pid), kept=kept)

    def what_it_does(self) -> list[str]:
        return _calls(self.pid, list(sample_threads(self.pid)))


class Footprint:
    """The process's descriptors, threads and memory before its servers start.

    Servers may run at the same time. All of them are compared with the state before the first one started.
    """

    _running: ClassVar[int] = 0
    _first: ClassVar[Footprint | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.descriptors = descriptors("self")
        self.threads = sample_threads("self").keys()
        self.memory = own_memory("self")

    def allow(self, engine: Engine | None) -> None:
        """Expect that this engine's timer is still open when the servers have ended.

        An engine closes it when it is freed, and a test may keep the engine, or the server that has it.
        """
        if engine:
            self.descriptors[engine.fileno()] = str(Path(f"/proc/self/fd/{engine.fileno()}").readlink())

    @classmethod
    def begin(cls) -> Footprint:
        """Note that a server is about to start. Call end() when it has ended, or has failed to start."""
        with cls._lock:
            if cls._first is None:
                cls._first = cls()
            cls._running += 1
            return cls._first

    @classmethod
    def end(cls) -> bool:
        """Note that a server has ended; return whether it was the last one."""
        with cls._lock:
            cls._running -= 1
            if cls._running:
                return False
            cls._first = None
            return True


class EmbeddedServer:
    """A running server in this process. `loop_thread` is the kernel's id of the thread of its loop.

    `engines` are engines that were made outside the server. With `before`, all new threads must rest.
    """

    def __init__(
        self, server: Server, loop_thread: int, *engines: Engine, before: Footprint | None = None
    ) -> None:
        assert server.pollers is not None, "the server does not run"
        self._server = server
        self._engines = engines
        self._pollers = server.pollers
        self._before = before
        self._ports = {server.port, server.monitor_port}
        self._threads = {loop_thread, *self._pollers.native_ids}
        self.asking = threading.get_native_id()

    def sample(self) -> Sample:
        threads = {tid: each for tid, each in sample_threads("self").items() if self._is_watched(tid)}
        now = Sample(time.monotonic(), threads)
        for index, poller in enumerate(self._pollers.all):
            name = f"poller {index}"
            now.wakeups[name] = poller.stats()["wakeups"]
            now.overdue += _late(name, poller.state_now())
        for engine in filter(None, (self._server.js_engine, *self._engines)):
            now.overdue += _late("JetStream", engine.stats())
        if pending := self._pollers.pending_events:
            now.kept.append(f"{pending} events wait for the control plane")
        if self._before:
            now.kept += kept_descriptors("self", self._before.descriptors, self._ports)
        return now

    def _is_watched(self, tid: int) -> bool:
        is_new = self._before is not None and tid not in self._before.threads and tid != self.asking
        return is_new or tid in self._threads

    def what_it_does(self) -> list[str]:
        return _calls("self", sorted(filter(self._is_watched, sample_threads("self"))))


Watched = ServerProcess | EmbeddedServer


def _windows(server: Watched) -> Iterator[float]:
    """Yield the seconds to wait before each next sample, until the server rests. Raises NotAtRest."""
    more = 5.0 if os.environ.get("GNATS_SANITIZED") else 1.0
    first = before = server.sample()
    window = WINDOW
    while True:
        yield window
        after = server.sample()
        if not (faults := restless(before, after, asking=server.asking)):
            return
        if after.cpu - first.cpu > WORK * more or after.at - first.at > PATIENCE * more:
            raise NotAtRest("the server does not rest:\n  " + "\n  ".join([*faults, *server.what_it_does()]))
        before = after
        window = min(window * 2, LONGEST_WINDOW)


def wait_for_rest(server: Watched) -> None:
    """Return when the server rests, at the earliest after WINDOW seconds. Raises NotAtRest."""
    for seconds in _windows(server):
        time.sleep(seconds)


async def wait_for_rest_in_loop(server: Server, before: Footprint | None = None) -> None:
    """Wait as wait_for_rest(), in the server's loop; other tasks must not keep the loop busy."""
    for seconds in _windows(EmbeddedServer(server, threading.get_native_id(), before=before)):
        await asyncio.sleep(seconds)


def require_closed(port: int, pollers: Pollers, reserved: Container[int] = ()) -> None:
    """Raise NotAtRest unless a server of this process, after its shutdown, has closed all it had open.

    `port` is its client port: sockets of connections to it are leaks. `reserved` has the descriptors of
    others that keep the port.
    """
    kept = [f"poller {index} is open" for index, poller in enumerate(pollers.all) if poller.fileno() >= 0]
    kept += [
        f"descriptor {fd} is of a connection to port {port}"
        for fd, target in descriptors("self").items()
        if target.startswith("socket:[") and fd not in reserved and _local_port(fd) == port
    ]
    _require_nothing(kept + _running(pollers.native_ids))


def require_nothing_left(before: Footprint) -> None:
    """Raise NotAtRest if this process has more than before its servers, which have all ended.

    It counts timers, eventfds, epoll sets, files of stores, and memory. A test's own count as well: it must
    close them before its server ends, or make them before it starts one. No server makes a pipe.
    """
    now = descriptors("self")
    kept = [
        f"it has {count} more of {kind} than before"
        for kind, count in (Counter(_kinds(now)) - Counter(_kinds(before.descriptors))).items()
        if kind != "pipe"
    ]
    kept += [
        f"descriptor {fd} is of {target}"
        for fd, target in now.items()
        if before.descriptors.get(fd) != target and _STORED.search(target)
    ]
    # A sanitizer keeps freed memory.
    if _growth(before) > KEPT_MEMORY_EMBEDDED and not os.environ.get("GNATS_SANITIZED"):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # freed memory that the process keeps is not a leak
        if (more := _growth(before)) > KEPT_MEMORY_EMBEDDED:
            kept.append(f"the process has {more >> 20} MiB more memory than before")
    _require_nothing(kept)


def _running(tids: Iterable[int]) -> list[str]:
    """Return in words which of these threads do not end.

    Python joins a thread a moment before the kernel ends it.
    """
    until = time.monotonic() + PATIENCE
    while True:
        running = sample_threads("self")
        left = [f"thread {running[tid].name} ({tid}) runs" for tid in tids if tid in running]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.001)


def _growth(before: Footprint) -> int:
    return own_memory("self") - before.memory


def _require_nothing(kept: list[str]) -> None:
    if kept:
        raise NotAtRest("the server was shut down, and still:\n  " + "\n  ".join(kept))


# -- what the kernel reports -----------------------------------------------------------------------------


def descriptors(pid: int | str) -> dict[int, str]:
    """Return /proc's name of each open descriptor of a process."""
    found = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found[int(link.name)] = str(link.readlink())
        except FileNotFoundError:
            continue  # closed meanwhile
    return found


def _kinds(found: dict[int, str]) -> Iterator[str]:
    """Yield the kinds of descriptors that a server's parts own: pipes, timers, eventfds and epoll sets."""
    for target in found.values():
        if target.startswith("anon_inode:"):
            yield target
        elif target.startswith("pipe:"):
            yield "pipe"


def sockets(pid: int | str) -> dict[int, tuple[int, str]]:
    """Return (local port, state) of each TCP socket in a process's network namespace, by inode."""
    found = {}
    for table in ("tcp", "tcp6"):
        path = Path(f"/proc/{pid}/net/{table}")
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            words = line.split()
            found[int(words[9])] = int(words[1].rpartition(":")[2], 16), words[3]
    return found


def _local_port(fd: int) -> int:
    """Return the local port of a descriptor; 0 unless it is an open TCP socket."""
    try:
        with socket.fromfd(fd, -1, -1, -1) as duplicate:
            if duplicate.family in (socket.AF_INET, socket.AF_INET6) and duplicate.type == socket.SOCK_STREAM:
                port: int = duplicate.getsockname()[1]
                return port
    except OSError:
        pass
    return 0


def kept_descriptors(
    pid: int | str, before: dict[int, str], ports: Container[int] | None = None
) -> list[str]:
    """Return in words the descriptors that a process should have closed.

    These are descriptors of deleted files and ended connections, and block files that are open twice. In a
    process with one server and nothing else, `ports` is None, and these are also more pipes, timers, eventfds
    or epoll sets than in `before`. Otherwise only connections to the `ports`, and stores, are the server's.
    """
    now = descriptors(pid)
    # Unchanged descriptors are the server's own from its start, or were inherited.
    new = {fd: target for fd, target in now.items() if before.get(fd) != target}
    is_connected = any(target.startswith("socket:[") for target in new.values())
    of_network = sockets(pid) if is_connected else {}  # the kernel's table of all sockets is slow to read
    kept = []
    for fd, target in new.items():
        if target.endswith(" (deleted)") and (ports is None or _STORED.search(target)):
            kept.append(f"descriptor {fd} is of a file that was removed: {target}")
        elif target.startswith("socket:[") and (found := of_network.get(int(target[8:-1]))):
            port, state = found
            if state not in _LIVE and (ports is None or port in ports):
                kept.append(
                    f"descriptor {fd} is of a connection to port {port} that has ended (state {state})"
                )
    more = Counter(_kinds(now)) - Counter(_kinds(before)) if ports is None else Counter()
    kept += [f"it has {count} more of {kind} than at its start" for kind, count in more.items()]
    for path, count in Counter(target for target in now.values() if target.endswith(".blk")).items():
        if count > 1:
            kept.append(f"it has {path} open {count} times")
    return kept


def own_memory(pid: int | str) -> int:
    """Return a process's resident anonymous memory, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def _fired(pid: int) -> list[str]:
    """Return in words the timerfds that have fired and that the process has not read."""
    fired = []
    for fd, target in descriptors(pid).items():
        if target == "anon_inode:[timerfd]":
            try:
                lines = Path(f"/proc/{pid}/fdinfo/{fd}").read_text().splitlines()
            except FileNotFoundError:
                continue
            if any(line.startswith("ticks:") and line.split()[1] != "0" for line in lines):
                fired.append(f"the timer of descriptor {fd} has fired, and nobody has looked")
    return fired


def _late(name: str, state: Mapping[str, object]) -> list[str]:
    late = []
    if overdue := state["overdue"]:
        late.append(f"the first deadline of {name} has passed {overdue} ns ago")
    if state["unwatched"]:
        late.append(f"the first deadline of {name} would pass unnoticed")
    return late


def _calls(pid: int | str, tids: list[int]) -> list[str]:
    """Sample a hundred times which system call each thread is in; return the counts in words."""
    seen: dict[int, Counter[str]] = {tid: Counter() for tid in tids}
    names = {tid: thread.name for tid, thread in sample_threads(pid).items()}
    for _ in range(100):
        for tid in tids:
            try:
                words = Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()
                if words[0] == "running":
                    seen[tid]["runs"] += 1
                    continue
                call = _CALLS.get(int(words[0]), f"system call {words[0]}")
                if call in ("read", "write", "epoll_wait", "epoll_pwait", "sendmsg"):
                    fd = int(words[1], 16)
                    call += f" of {fd} {descriptors(pid).get(fd, 'closed')}"
                seen[tid][call] += 1
            except (OSError, ValueError):
                continue  # the thread has ended, or the kernel hides its system call
        time.sleep(0.001)
    return [
        f"thread {names.get(tid, '?')} ({tid}): "
        + ", ".join(f"{call} {count}" for call, count in where.most_common(6))
        for tid, where in seen.items()
        if where
    ]
