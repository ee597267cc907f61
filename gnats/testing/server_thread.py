"""A server in a thread with its own event loop, for tests that are synchronous or use another loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import uvloop

from gnats.errors import OptionError, ServerError
from gnats.go.hostport import RANDOM_PORT
from gnats.options.options import Options
from gnats.options.values.jetstream import check_jetstream
from gnats.server.server import Server

if TYPE_CHECKING:
    from gnats.jetstream.engine.engine import Engine
    from gnats.log.logger import Logger
    from gnats.runtime.pollers import Pollers
    from gnats.testing.rest import Footprint

START_TIMEOUT = 30.0
STOP_TIMEOUT = 30.0
"""Seconds; a start and a stop take far less."""

T = TypeVar("T")


class ServerThread:
    """A server in a thread with its own event loop.

    Keywords set options by name; `opts` replaces them all. The default port is a free one of 127.0.0.1. With
    JetStream and no store directory, the server has a temporary directory, which is deleted when it stops.
    Use it as a context manager, or call start() and stop(). Raises OptionError for a wrong `jetstream`.
    """

    checks_rest: ClassVar[bool] = False
    """Whether stop() checks that the server rests, and afterwards that it is closed (gnats.testing.rest)."""

    def __init__(
        self,
        opts: Options | None = None,
        *,
        log: "Logger | None" = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
        **options: Any,
    ) -> None:
        defaults: dict[str, Any] = {"port": RANDOM_PORT}
        self._opts = opts or Options(**defaults | options)
        check_jetstream(self._opts.jetstream)
        self._log = log
        self._loop_factory = loop_factory
        self._started: Future[tuple[Server, asyncio.AbstractEventLoop]] = Future()
        self._thread = threading.Thread(target=self._run, name="gnats-server", daemon=True)
        self._pollers: Pollers | None = None
        self._port = 0
        self.reserved: frozenset[int] = frozenset()
        """Descriptors of others that keep the client port for this server."""
        self.before: Footprint | None = None
        """With `checks_rest`, while the server runs: the process's resources before its servers started."""

    def start(self) -> None:
        """Start the server; return when it accepts connections. Raises OptionError and ServerError."""
        if self.checks_rest:
            from gnats.testing.rest import Footprint

            self.before = Footprint.begin()
        try:
            self._thread.start()
            server, _ = self._started.result(START_TIMEOUT)
        except BaseException:
            self._end()
            raise
        self._pollers, self._port = server.pollers, server.port

    def wait_for_rest(self, *engines: "Engine") -> None:
        """Return when the server rests, and engines that were made outside it.

        Raises gnats.testing.rest.NotAtRest.
        """
        from gnats.testing.rest import EmbeddedServer, wait_for_rest

        server, native_id = self.server, self._thread.native_id
        assert native_id is not None
        if server.pollers:
            wait_for_rest(EmbeddedServer(server, native_id, *engines, before=self.before))

    def stop(self, *, check: bool | None = None) -> None:
        """Shut the server down and wait for its thread. Idempotent.

        `check` takes the place of `checks_rest`. Raises TimeoutError when the thread does not end in
        STOP_TIMEOUT; with `check` also gnats.testing.rest.NotAtRest.
        """
        check = self.checks_rest if check is None else check
        if self._pollers is None:  # it was never started, has failed to start, or has been stopped
            if self._thread.ident:
                self._thread.join(STOP_TIMEOUT)
            return
        _, loop = self._started.result()
        try:
            if check and self._thread.is_alive():
                self.wait_for_rest()
        finally:
            with suppress(RuntimeError):  # the loop is closed: the server shut down by itself
                loop.call_soon_threadsafe(self.server.begin_shutdown)
            self._thread.join(STOP_TIMEOUT)
            pollers, self._pollers = self._pollers, None
            if self.before:
                self.before.allow(self.server.js_engine)
            before = self._end()
        if self._thread.is_alive():
            raise TimeoutError(f"the server's thread still runs {STOP_TIMEOUT} s after its shutdown")
        if check:
            from gnats.testing.rest import require_closed, require_nothing_left

            require_closed(self._port, pollers, self.reserved)
            if before:
                require_nothing_left(before)

    def _end(self) -> "Footprint | None":
        """Return the process's resources before its servers started, if the last server has ended."""
        before, self.before = self.before, None
        return before if before and before.end() else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        self.stop(check=self.checks_rest and kind is None)

    @property
    def server(self) -> Server:
        """The server. Use it only in its own thread: see call()."""
        return self._started.result(START_TIMEOUT)[0]

    @property
    def client_url(self) -> str:
        """A URL that clients on this machine can connect to. Raises TimeoutError, as call() does."""
        return self.call(lambda server: server.client_url)

    @property
    def port(self) -> int:
        """The client port. Raises TimeoutError, as call() does."""
        return self.call(lambda server: server.port)

    @property
    def monitor_port(self) -> int:
        """The port of the monitoring endpoints; 0 when monitoring is off. Raises TimeoutError."""
        return self.call(lambda server: server.monitor_port)

    def call(self, func: Callable[[Server], T]) -> T:
        """Run `func(server)` in the server's thread; return its result.

        Raises the exception of `func`, or TimeoutError when the call does not end in STOP_TIMEOUT.
        """

        async def run() -> T:
            return func(self.server)

        return self.run(run())

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the server's loop; return its result. Raises the same exceptions as call().

        A coroutine that does not end in time is cancelled.
        """
        _, loop = self._started.result(START_TIMEOUT)
        future = asyncio.run_coroutine_threadsafe(coro, loop)
        try:
            return future.result(STOP_TIMEOUT)
        except TimeoutError:
            future.cancel()
            raise

    def _run(self) -> None:
        try:
            with (
                self._with_a_place_to_store() as opts,
                asyncio.Runner(loop_factory=self._loop_factory) as runner,
            ):
                runner.run(self._serve(opts))
        finally:
            if not self._started.done():
                self._started.set_exception(RuntimeError("the server's thread has failed, see its traceback"))

    @contextmanager
    def _with_a_place_to_store(self) -> Iterator[Options]:
        """Yield the options; add a temporary store directory when JetStream is enabled without one."""
        opts = self._opts
        if not opts.jetstream.enabled or opts.jetstream.store_dir:
            yield opts
            return
        with TemporaryDirectory(prefix="gnats-") as directory:
            yield replace(opts, jetstream=replace(opts.jetstream, store_dir=directory))

    async def _serve(self, opts: Options) -> None:
        server: Server | None = None
        try:
            server = Server(opts, self._log)
            await server.start()
        except (OptionError, ServerError) as exc:  # start() raises it again in the caller's thread
            if server and self.before:
                self.before.allow(server.js_engine)  # the error's traceback keeps it
            self._started.set_exception(exc)
            return
        self._started.set_result((server, asyncio.get_running_loop()))
        await server.wait_for_shutdown()
