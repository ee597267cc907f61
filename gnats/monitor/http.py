"""The monitoring endpoints over HTTP (StartMonitoring in server.go). Needs `pip install 'gnats[monitor]'`."""

import asyncio
import logging
import posixpath
import re
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from gnats.clock import Timer, call_later
from gnats.errors import RequestError, ServerError
from gnats.go.json import marshal
from gnats.go.text import join_host_port, os_error, quote
from gnats.monitor.dashboard import FILES, POLICY, index_page, static_file
from gnats.monitor.pages.accountz import account_statz, accountz
from gnats.monitor.pages.connz import connz_steps
from gnats.monitor.pages.debugz import expvarz, ipqueuesz, stacksz
from gnats.monitor.pages.gatewayz import gatewayz
from gnats.monitor.pages.healthz import healthz
from gnats.monitor.pages.jsz import jsz
from gnats.monitor.pages.leafz import leafz
from gnats.monitor.pages.linkz import linkz
from gnats.monitor.pages.options import (
    AccountStatzOptions,
    AccountzOptions,
    ConnzOptions,
    GatewayzOptions,
    HealthzOptions,
    IpqueueszOptions,
    JszOptions,
    LeafzOptions,
    Query,
    RaftzOptions,
    RoutezOptions,
    SubszOptions,
)
from gnats.monitor.pages.raftz import NotFoundError, raftz
from gnats.monitor.pages.render import Page, chunks
from gnats.monitor.pages.routez import routez
from gnats.monitor.pages.subsz import subsz_steps
from gnats.monitor.pages.varz import varz
from gnats.monitor.services import PagesServer
from gnats.options.values.tls import TLSOptions
from gnats.runtime.accept import listen
from gnats.runtime.steps import Steps, at_once

try:
    from aiohttp import web
    from aiohttp.http_exceptions import HttpProcessingError
except ImportError as missing:
    raise ServerError(
        "Can't start monitoring: it needs aiohttp; install it with: pip install 'gnats[monitor]'"
    ) from missing

if TYPE_CHECKING:
    import ssl

    from gnats.log.logger import Logger

SHUTDOWN_TIMEOUT = 1.0
"""Seconds that a shutdown waits for requests in progress."""

HEADER_TIMEOUT = 5.0
"""Seconds that a new connection has for its TLS handshake, and for the header of its first request."""

LONGEST_LINE = 64 * 1024
"""Most bytes of a URL, or of a header line."""

BACKLOG = 128

SLICE = 0.002
"""Seconds of work on a page before the loop does other work."""

_PAGE_LOCK = web.AppKey("page lock", asyncio.Lock)
"""Held by the page in progress: pages take turns, so that many pages delay other work no more than one."""

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_CALLBACK = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*", re.ASCII)
_LONGEST_CALLBACK = 128


class MonitoredServer(PagesServer, Protocol):
    """The server as the endpoints see it; `http_requests` counts requests by path."""

    http_requests: dict[str, int]

    @property
    def log(self) -> "Logger": ...


class _OneLine(logging.Handler):
    """Logs aiohttp's errors about malformed requests as one line each in the server's log."""

    def __init__(self, server: MonitoredServer) -> None:
        super().__init__()
        self._server = server

    def emit(self, record: logging.LogRecord) -> None:
        why = record.exc_info[1] if record.exc_info else None
        say = self._server.log.error  # a page that could not be made
        if why is None or isinstance(why, (HttpProcessingError, OSError)):  # the client's doing
            say = self._server.log.debug
        say(f"Monitoring: {record.getMessage()}" + (f": {why!r:.200}" if why else ""))


def _quiet(server: MonitoredServer) -> logging.Logger:
    logger = logging.Logger("gnats.monitor")
    logger.addHandler(_OneLine(server))
    return logger


class Monitor:
    """The HTTP server of a Server's monitoring endpoints. Made by listen()."""

    def __init__(self, server: MonitoredServer, sock: socket.socket) -> None:
        self.sock = sock
        self.port: int = sock.getsockname()[1]
        self._server = server
        self._base = posixpath.normpath("/" + server.opts.http_base_path.strip("/"))
        self._context: ssl.SSLContext | None = None
        self._listener: asyncio.Server | None = None
        self._silent: dict[web.RequestHandler, Timer] = {}
        """By connection without a complete request so far: the timer that closes it."""
        app = web.Application(middlewares=[self._heard, _errors])
        app[_PAGE_LOCK] = asyncio.Lock()
        app.on_response_prepare.append(_hide_library)
        for path, (counted, handler) in self._endpoints().items():
            where = posixpath.normpath(posixpath.join(self._base, path.lstrip("/")))
            app.router.add_route("*", where, self._counted(counted, handler))
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_quiet(server),
            shutdown_timeout=SHUTDOWN_TIMEOUT,
            handler_cancellation=True,  # stop making a page when its client has gone
            auto_decompress=False,  # bodies are not read, and a small one could become very large
            max_line_size=LONGEST_LINE,
            max_field_size=LONGEST_LINE,
        )

    @classmethod
    async def listen(cls, server: MonitoredServer) -> "Monitor":
        """Serve a server's endpoints at the host and port of its options.

        Raises ServerError.
        """
        opts = server.opts
        secure = opts.https_port != 0
        host = (opts.https_host if secure else "") or opts.http_host
        port = max(opts.https_port or opts.http_port, 0)
        try:
            sock = await listen(host, port)
        except OSError as exc:
            where = join_host_port(host, port)
            reason = f"can't listen to the monitor port: listen tcp {where}: {os_error(exc)}"
            raise ServerError(f"Can't start monitoring: {reason}") from exc
        monitor = cls(server, sock)
        try:
            if opts.tls and secure:
                from gnats.monitor.https import server_context

                monitor._context = server_context(opts.tls)
                if opts.tls.curve_preferences:
                    server.log.warn("curve_preferences are not supported yet for https: OpenSSL's own apply")
            scheme = "https" if secure else "http"
            server.log.notice(f"Starting {scheme} monitor on {join_host_port(host, monitor.port)}")
            await monitor._serve()
        except BaseException:
            await monitor.close()
            raise
        return monitor

    async def _serve(self) -> None:
        await self._runner.setup()
        self._listener = await asyncio.get_running_loop().create_server(
            self._connection,
            sock=self.sock,
            ssl=self._context,
            backlog=BACKLOG,
            ssl_handshake_timeout=HEADER_TIMEOUT if self._context else None,
        )

    def _connection(self) -> web.RequestHandler:
        assert self._runner.server
        connection = self._runner.server()
        self._silent[connection] = call_later(HEADER_TIMEOUT, self._give_up, connection)
        return connection

    def _give_up(self, connection: web.RequestHandler) -> None:
        del self._silent[connection]
        connection.force_close()

    @web.middleware
    async def _heard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if timer := self._silent.pop(request.protocol, None):
            timer.cancel()
        return await handler(request)

    def check_tls(self, tls: TLSOptions) -> None:
        """Raise ServerError for certificates that reload_tls() could not load."""
        if self._context:
            from gnats.monitor.https import server_context

            server_context(tls)

    def reload_tls(self) -> None:
        """Load the certificates of the server's present options, for new connections. Logs errors."""
        if self._context and self._server.opts.tls:
            from gnats.monitor.https import load_certificates

            try:
                load_certificates(self._context, self._server.opts.tls)
            except ServerError as exc:  # the files have changed since check_tls()
                self._server.log.error(str(exc))

    async def close(self) -> None:
        """Stop listening, and end requests in progress."""
        if self._listener:
            self._listener.close()
        for timer in self._silent.values():
            timer.cancel()
        self._silent.clear()
        await self._runner.cleanup()
        self.sock.close()

    # -- endpoints -------------------------------------------------------------------------------------------

    def _endpoints(self) -> dict[str, tuple[str, Handler]]:
        """Return by path: (the name to count requests under, "" not to count them here; the handler)."""
        server = self._server
        pages: dict[str, Callable[[Query], Page]] = {
            "/varz": lambda query: varz(server),
            "/gatewayz": lambda query: gatewayz(server, GatewayzOptions.from_query(query)),
            "/leafz": lambda query: leafz(server, LeafzOptions.from_query(query)),
            "/linkz": lambda query: linkz(server),
            "/accountz": lambda query: accountz(server, AccountzOptions.from_query(query)),
            "/accstatz": lambda query: account_statz(server, AccountStatzOptions.from_query(query)),
            "/jsz": lambda query: jsz(server, JszOptions.from_query(query)),
        }
        uncounted: dict[str, Callable[[Query], Page]] = {
            "/ipqueuesz": lambda query: ipqueuesz(server, IpqueueszOptions.from_query(query)),
            "/raftz": lambda query: raftz(server, RaftzOptions.from_query(query)),
        }
        endpoints: dict[str, tuple[str, Handler]] = {
            "/": ("/", self._index),
            "/connz": ("", self._connz),
            "/routez": ("", self._routez),
            "/subsz": ("/subsz", self._subsz),
            "/subscriptionsz": ("/subsz", self._subsz),
            "/healthz": ("/healthz", self._healthz),
            "/stacksz": ("", self._stacksz),
            "/debug/vars": ("", self._expvarz),
            "/metrics": ("/metrics", self._metrics),
            "/dashboard": ("/dashboard", _static("index.html")),
        }
        endpoints |= {path: (path, _page(page, 2)) for path, page in pages.items()}
        endpoints |= {path: ("", _page(page, 3)) for path, page in uncounted.items()}
        return endpoints | {f"/dashboard/{name}": ("", _static(name)) for name in FILES}

    def _counted(self, name: str, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if name:
                self._count(name)
            return await handler(request)

        return handle

    def _count(self, name: str) -> None:
        requests = self._server.http_requests
        requests[name] = requests.get(name, 0) + 1

    async def _index(self, request: web.Request) -> web.Response:
        return web.Response(
            content_type="text/html", charset="utf-8", headers=POLICY, text=index_page(self._base)
        )

    async def _routez(self, request: web.Request) -> web.Response:
        options = RoutezOptions.from_query(Query(request.query))
        self._count("/routez")  # as for /connz, only when the query is valid
        return await _json(request, routez(self._server, options))

    async def _connz(self, request: web.Request) -> web.Response:
        options = ConnzOptions.from_query(Query(request.query))
        self._count("/connz")
        return await _json(request, await _drive(request, connz_steps(self._server, options)))

    async def _subsz(self, request: web.Request) -> web.Response:
        options = SubszOptions.from_query(Query(request.query))
        return await _json(request, await _drive(request, subsz_steps(self._server, options)))

    async def _healthz(self, request: web.Request) -> web.Response:
        query, log = Query(request.query), self._server.log
        options = HealthzOptions.from_query(query)
        if options.js_enabled:
            log.warn("Healthcheck: js-enabled deprecated, use js-enabled-only instead")
        page = await _drive(request, at_once(lambda: healthz(self._server, options)))
        code = page.pop("status_code")
        assert isinstance(code, int)
        if error := page.get("error"):
            log.warn(f"Healthcheck failed: {quote(str(error))}")
        elif isinstance(errors := page.get("errors"), list):
            log.warn(f"Healthcheck failed: {len(errors)} errors")
        return await _json(request, page, indent=None, status=code)

    async def _stacksz(self, request: web.Request) -> web.Response:
        return _answer(request, stacksz())

    async def _expvarz(self, request: web.Request) -> web.Response:
        variables = expvarz()
        lines = ",\n".join(f'"{name}": {marshal(value).decode()}' for name, value in variables.items())
        return web.Response(text=f"{{\n{lines}\n}}\n", content_type="application/json", charset="utf-8")

    async def _metrics(self, request: web.Request) -> web.Response:
        from gnats.monitor.metrics import exposition, process_metrics

        process = await asyncio.to_thread(process_metrics)
        accept = request.headers.get("Accept", "")
        steps = at_once(lambda: exposition(self._server, process, accept))
        body, content_type = await _drive(request, steps)
        return web.Response(body=body, headers={"Content-Type": content_type})


def _page(page: Callable[[Query], Page], indent: int) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        made = await _drive(request, at_once(lambda: page(Query(request.query))))
        return await _json(request, made, indent=indent)

    return handle


def _static(name: str) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        body, content_type = static_file(name)
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=POLICY)

    return handle


async def _drive(request: web.Request, steps: Steps[T]) -> T:
    """Run work in steps and return its result; between slices, the loop does other work."""
    page_lock = request.app[_PAGE_LOCK]
    while True:
        async with page_lock:
            until = time.monotonic() + SLICE
            while True:
                try:
                    next(steps)
                except StopIteration as done:
                    result: T = done.value
                    return result
                if time.monotonic() > until:
                    break
            await asyncio.sleep(0)


async def _json(request: web.Request, page: Page, indent: int | None = 2, status: int = 200) -> web.Response:
    return _answer(request, await _drive(request, _text(page, indent)), status)


def _text(page: Page, indent: int | None) -> Steps[str]:
    parts = []
    for index, chunk in enumerate(chunks(page, indent)):
        parts.append(chunk)
        if index % 256 == 255:
            yield
    return "".join(parts)


def _answer(request: web.Request, text: str, status: int = 200) -> web.Response:
    """Return JSON, or with a `callback` parameter a script that calls that function with it (JSONP)."""
    callback = request.query.get("callback", "")
    if callback:
        if len(callback) > _LONGEST_CALLBACK or not _CALLBACK.fullmatch(callback):
            raise RequestError("Error decoding callback: it must be the name of a JavaScript function")
        return web.Response(
            status=status,
            body=f"{callback}({text})".encode("utf-8", "replace"),
            headers={"Content-Type": "application/javascript", "X-Content-Type-Options": "nosniff"},
        )
    return web.Response(
        status=status,
        body=text.encode("utf-8", "replace"),
        headers={"Content-Type": "application/json", "Access-Control-Allow-Origin": "*"},
    )


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestError as exc:
        return web.Response(status=400, text=str(exc))
    except NotFoundError as exc:
        return web.Response(status=404, text=str(exc))
    except web.HTTPNotFound:
        headers = {"X-Content-Type-Options": "nosniff"}
        return web.Response(status=404, text="404 page not found\n", headers=headers)


async def _hide_library(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.pop("Server", None)
