"""Clusters that run: servers start, connect to each other, and all stop when one ends or at a signal."""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gnats.clock import timeout
from gnats.commands.cluster.output import Output
from gnats.commands.cluster.plan import Member
from gnats.commands.cluster.process import MemberProcess
from gnats.errors import ServerError
from gnats.go.text import os_error

START_TIMEOUT = 60.0
"""Seconds until all members must be connected to each other; then, until all leaf nodes must be to them."""
STOP_TIMEOUT = 20.0
"""Seconds that members may take to end; a server drops slow clients after half of that."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Running:
    """The members of clusters and their leaf nodes, as processes. `configs` are their configuration files.

    Leaf nodes start when the members are connected: so each finds the member that it dials first.
    """

    def __init__(
        self,
        clusters: Sequence[str],
        members: Sequence[Member],
        configs: Sequence[Path],
        sockets: Path,
        output: Output,
    ) -> None:
        self._clusters = clusters
        self._members = members
        self._configs = configs
        self._output = output
        self._changed = asyncio.Event()
        self._interrupted = False
        self._processes = [
            MemberProcess(member.name, sockets, self._show, self._changed.set) for member in members
        ]
        self._ends: dict[str, asyncio.Task[int]] = {}
        """By the name of each started member: its exit code, when it has ended."""

    async def run(self) -> None:
        """Run the cluster until a signal, or until the reader of the output has gone.

        Raises ServerError when it does not start, and when a member has ended. No member runs afterwards.
        """
        loop, pipe = asyncio.get_running_loop(), self._output.pipe()
        for signum in _SIGNALS:
            loop.add_signal_handler(signum, self._interrupt)
        if pipe is not None:
            loop.add_reader(pipe, self._hang_up)  # only the end of its reader makes it readable
        try:
            for leafs in False, True:
                if not (self._interrupted or self._output.error):
                    await self._start(leafs=leafs)
                    await self._wait_for_links()
            if not self._interrupted:
                self._output.print_table(self._clusters, self._members)
                await self._wait(lambda: False)
        finally:
            if pipe is not None:
                loop.remove_reader(pipe)
            await self._stop()
            for signum in _SIGNALS:
                loop.remove_signal_handler(signum)

    async def _start(self, *, leafs: bool) -> None:
        """Start the members, or the leaf nodes."""
        for member, process, conf in zip(self._members, self._processes, self._configs, strict=True):
            if member.is_leaf != leafs:
                continue
            try:
                await process.start(conf)
            except OSError as exc:
                reason = os_error(exc) if exc.errno else exc  # "AF_UNIX path too long" has no number
                raise ServerError(f"{process.name} does not start: {reason}") from None
            end = self._ends[process.name] = asyncio.create_task(process.follow())
            end.add_done_callback(lambda _: self._changed.set())

    async def _wait_for_links(self) -> None:
        """Return when the servers that were started are connected. Raises ServerError."""
        try:
            async with timeout(START_TIMEOUT):
                await self._wait(self._is_full)
        except TimeoutError:
            raise ServerError(f"gave up after {START_TIMEOUT:.0f} s: {next(self._missing())}") from None

    async def _wait(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, or the cluster is to stop.

        Raises ServerError when a member has ended.
        """
        while not (self._interrupted or self._output.error):
            for name, end in self._ends.items():
                if end.done():
                    raise ServerError(self._obituary(name, end.result()))
            if condition():
                return
            self._changed.clear()
            await self._changed.wait()

    def _show(self, name: str, lines: Sequence[str]) -> None:
        self._output.show(name, lines)
        if self._output.error:
            self._changed.set()

    def _hang_up(self) -> None:
        self._interrupted = True
        self._changed.set()

    def _interrupt(self) -> None:
        """Stop the members; kill them if they are being stopped."""
        if self._interrupted:
            for process in self._processes:
                process.send_signal(signal.SIGKILL)
        self._interrupted = True
        self._changed.set()

    async def _stop(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        ends = self._ends.values()
        try:
            async with timeout(STOP_TIMEOUT):
                await asyncio.gather(*map(asyncio.shield, ends))
        except TimeoutError:
            slow = [name for name, end in self._ends.items() if not end.done()]
            print(
                f"gnats cluster: killing {', '.join(slow)}, still there after {STOP_TIMEOUT:.0f} s",
                file=sys.stderr,
            )
            for process in self._processes:
                process.send_signal(signal.SIGKILL)
            await asyncio.gather(*ends)
        for process in self._processes:
            process.close()

    def _is_full(self) -> bool:
        return not any(self._missing())

    def _missing(self) -> Iterator[str]:
        """Yield in words what members still have to do."""
        for member, process in zip(self._members, self._processes, strict=True):
            if process.name not in self._ends:
                continue  # it is to be started later
            if not process.ready:
                yield f"{process.name} is not ready"
            elif member.is_leaf:
                if not process.hubs:
                    yield f"{process.name} is not connected to a server of the cluster"
            else:
                there = {process.name, *process.linked, member.cluster, *process.clusters}
                wanted = [*self._mates(member), *self._clusters]
                if others := [name for name in wanted if name not in there]:
                    yield f"{process.name} is not connected to {', '.join(others)}"

    def _mates(self, member: Member) -> list[str]:
        """Return the names of the servers of a member's cluster."""
        return [
            other.name for other in self._members if other.cluster == member.cluster and not other.is_leaf
        ]

    def _obituary(self, name: str, code: int) -> str:
        if code < 0:
            return f"{name} was ended by {signal.Signals(-code).name}"
        words = self._output.last_words(name)
        return f"{name}: {words}" if words else f"{name} has ended with exit code {code}"
