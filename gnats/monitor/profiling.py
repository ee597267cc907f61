"""The profiling endpoint (StartProfiler in server.go): shows where a running server spends time and memory.

Needs aiohttp: `pip install 'gnats[monitor]'`. The pages are under /debug/pprof/, as in Go. They are text,
about Python threads, asyncio tasks and pollers instead of goroutines.
"""

import asyncio
import html
import io
import json
import socket
import sys
import threading
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from gnats.errors import ServerError
from gnats.go.text import join_host_port, os_error
from gnats.runtime.accept import listen
from gnats.system.memory import memory_report
from gnats.system.sampling import BlockProfile, cpu_profile, thread_stacks

try:
    from aiohttp import web
except ImportError as missing:
    raise ServerError(
        "error starting profiler: it needs aiohttp; install it with: pip install 'gnats[monitor]'"
    ) from missing

if TYPE_CHECKING:
    from gnats.core.runtime.state import ServerState
    from gnats.log.logger import Logger
    from gnats.options.options import Options
    from gnats.runtime.pollers import Pollers

SHUTDOWN_TIMEOUT = 1.0
"""Seconds that a shutdown waits for requests in progress."""
DEFAULT_SECONDS = 30.0
MAX_SECONDS = 600.0
ALLOCATION_LINES = 50

Handler = Callable[[web.Request], Awaitable[web.Response]]


class Profiled(Protocol):
    """The server as its profiles see it."""

    @property
    def opts(self) -> "Options": ...
    @property
    def log(self) -> "Logger": ...
    @property
    def state(self) -> "ServerState": ...
    @property
    def pollers(self) -> "Pollers | None": ...


class Profiler:
    """The HTTP server of a Server's profiles. Made by listen()."""

    def __init__(self, server: Profiled, sock: socket.socket) -> None:
        self.sock = sock
        self.port: int = sock.getsockname()[1]
        self._server = server
        self._cancel = threading.Event()
        self._measuring = asyncio.Lock()
        self._block: BlockProfile | None = None
        app = web.Application()
        app.router.add_get("/debug/pprof/", self._index)
        for name, (_, handler) in self._pages().items():
            app.router.add_get(f"/debug/pprof/{name}", handler)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT, auto_decompress=False
        )

    @classmethod
    async def listen(cls, server: Profiled) -> "Profiler":
        """Serve at a server's host and its prof_port.

        Raises ServerError.
        """
        host, port = server.opts.host, max(server.opts.prof_port, 0)
        try:
            sock = await listen(host, port)
        except OSError as exc:
            where = join_host_port(host, port)
            raise ServerError(f"error starting profiler: listen tcp {where}: bind: {os_error(exc)}") from exc
        profiler = cls(server, sock)
        server.log.notice(f"profiling port: {profiler.port}")
        profiler.set_block_profile_rate(server.opts.prof_block_rate)
        await profiler._runner.setup()
        await web.SockSite(profiler._runner, sock).start()
        return profiler

    async def close(self) -> None:
        """Stop listening, and end requests in progress."""
        self._cancel.set()
        self.set_block_profile_rate(0)
        await self._runner.cleanup()
        self.sock.close()

    def set_block_profile_rate(self, rate: int) -> None:
        """Record work that blocks the event loop for `rate` nanoseconds or more; 0 or less: none."""
        if self._block:
            self._block.stop()
            self._block = None
        if rate > 0:
            self._server.log.warn(
                f"Block profiling is enabled (rate {rate}), this may have a performance impact"
            )
            self._block = BlockProfile(asyncio.get_running_loop(), rate)

    # -- pages -----------------------------------------------------------------------------------------------

    def _pages(self) -> dict[str, tuple[str, Handler]]:
        return {
            "profile": (
                "CPU of each thread in microseconds, by Python stack, over ?seconds=30: collapsed stacks, the"
                " input of flame graph tools",
                self._profile,
            ),
            "threads": ("the Python stack of every thread", self._threads),
            "tasks": ("the asyncio tasks and where they wait", self._tasks),
            "pollers": (
                "the pollers' counters and what they hold, the queue to the control plane",
                self._pollers,
            ),
            "heap": ("the process's memory as the kernel, malloc and Python see it", self._heap),
            "allocs": ("Python's allocations over ?seconds=30, by line", self._allocs),
            "block": ("what held up the event loop, by Python stack (needs prof_block_rate)", self._blocked),
            "cmdline": ("the command line", self._cmdline),
        }

    async def _index(self, request: web.Request) -> web.Response:
        rows = "\n".join(
            f'<dt><a href="{name}">{name}</a></dt><dd>{html.escape(text)}</dd>'
            for name, (text, _) in self._pages().items()
        )
        return web.Response(
            content_type="text/html",
            text="<!DOCTYPE html>\n<html lang=en><title>/debug/pprof/</title>\n"
            f"<h1>Profiles</h1>\n<dl>\n{rows}\n</dl>\n",
        )

    async def _profile(self, request: web.Request) -> web.Response:
        seconds = _seconds(request)
        async with self._exclusively():
            stacks = await asyncio.to_thread(cpu_profile, seconds, self._cancel)
        return _collapsed(stacks)

    async def _threads(self, request: web.Request) -> web.Response:
        return web.Response(text=thread_stacks())

    async def _tasks(self, request: web.Request) -> web.Response:
        out = io.StringIO()
        for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
            task.print_stack(file=out)
            out.write("\n")
        return web.Response(text=out.getvalue())

    async def _pollers(self, request: web.Request) -> web.Response:
        server = self._server
        state = server.state
        pollers = server.pollers.all if server.pollers else ()
        page = {
            "pending_events": server.pollers.pending_events if server.pollers else 0,
            "slow_consumers": state.slow_consumers,
            "stale_connections": state.stale_connections,
            "stalls": state.stalls,
            "pollers": [
                {
                    "index": index,
                    "runs_in": _runs_in(index, len(pollers)),
                    **poller.stats(),
                    **poller.state_now(),
                }
                for index, poller in enumerate(pollers)
            ],
        }
        return web.Response(content_type="application/json", text=json.dumps(page, indent=2) + "\n")

    async def _heap(self, request: web.Request) -> web.Response:
        return web.Response(text=memory_report())

    async def _allocs(self, request: web.Request) -> web.Response:
        seconds = _seconds(request)
        async with self._exclusively():
            ours = not tracemalloc.is_tracing()
            if ours:
                tracemalloc.start()
            try:
                before = tracemalloc.take_snapshot()
                await asyncio.to_thread(self._cancel.wait, seconds)
                after = tracemalloc.take_snapshot()
            finally:
                if ours:
                    tracemalloc.stop()
        found = await asyncio.to_thread(after.compare_to, before, "lineno")
        return web.Response(text="".join(f"{line}\n" for line in found[:ALLOCATION_LINES]))

    async def _blocked(self, request: web.Request) -> web.Response:
        if self._block is None:
            raise web.HTTPNotFound(text="block profiling is off: set prof_block_rate (nanoseconds)\n")
        return _collapsed(self._block.stacks())

    async def _cmdline(self, request: web.Request) -> web.Response:
        return web.Response(text="\0".join(sys.argv))

    def _exclusively(self) -> asyncio.Lock:
        if self._measuring.locked():
            raise web.HTTPServiceUnavailable(text="another profile is being taken, try again later\n")
        return self._measuring


def _runs_in(index: int, count: int) -> str:
    if index:
        return f"thread gnats-io-{index - 1}"
    return "event loop" if count == 1 else "event loop (the server's own clients)"


def _seconds(request: web.Request) -> float:
    text = request.query.get("seconds", "")
    try:
        seconds = float(text) if text else DEFAULT_SECONDS
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= MAX_SECONDS:
        raise web.HTTPBadRequest(text=f"seconds takes a number up to {MAX_SECONDS:.0f}\n")
    return seconds


def _collapsed(stacks: dict[str, int]) -> web.Response:
    lines = sorted(stacks.items(), key=lambda item: -item[1])
    return web.Response(text="".join(f"{stack} {weight}\n" for stack, weight in lines))
