"""The monitoring endpoints over HTTP (monitor.go). Needs aiohttp: `pip install 'gnats[monitor]'`."""

import json
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gnats.accept import listen
from gnats.errors import ServerError
from gnats.gofmt import join_host_port, os_error
from gnats.version import NATS_VERSION, __version__
from gnats.zpages import (
    ConnzOptions,
    RequestError,
    SubszOptions,
    connz,
    parse_bool,
    parse_int,
    subsz,
    varz,
)

try:
    from aiohttp import web
except ImportError as missing:
    raise ServerError(
        "Can't start monitoring: it needs aiohttp; install it with: pip install 'gnats[monitor]'"
    ) from missing

if TYPE_CHECKING:
    from gnats.server import Server

SHUTDOWN_TIMEOUT = 1.0
"""Seconds that a request in progress has at a shutdown."""

NOT_YET = (
    "/routez",
    "/gatewayz",
    "/leafz",
    "/stacksz",
    "/accountz",
    "/accstatz",
    "/jsz",
    "/ipqueuesz",
    "/raftz",
    "/debug/vars",
)
"""nats-server's endpoints that gnats has not."""

_STATES = {"": "open", "open": "open", "closed": "closed", "any": "any", "all": "any"}

Handler = Callable[[web.Request], Awaitable[web.Response]]


class Monitor:
    """The HTTP server of a Server."""

    def __init__(self, server: "Server", sock: socket.socket) -> None:
        self.sock = sock
        self.port: int = sock.getsockname()[1]
        self._server = server
        app = web.Application()
        app.router.add_get("/", self._counted("/", self._root))
        app.router.add_get("/varz", self._counted("/varz", self._varz))
        app.router.add_get("/connz", self._counted("/connz", self._connz))
        app.router.add_get("/subsz", self._counted("/subsz", self._subsz))
        app.router.add_get("/subscriptionsz", self._counted("/subsz", self._subsz))
        app.router.add_get("/healthz", self._counted("/healthz", self._healthz))
        for path in NOT_YET:
            app.router.add_get(path, _not_yet)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT)

    @classmethod
    async def listen(cls, server: "Server") -> "Monitor":
        """Serve a server's endpoints at its http_host and http_port.

        Raises ServerError.
        """
        host, port = server.opts.http_host, max(server.opts.http_port, 0)
        try:
            sock = await listen(host, port)
        except OSError as exc:
            where = join_host_port(host, port)
            reason = f"can't listen to the monitor port: listen tcp {where}: {os_error(exc)}"
            raise ServerError(f"Can't start monitoring: {reason}") from exc
        monitor = cls(server, sock)
        server.log.notice(f"Starting http monitor on {join_host_port(host, monitor.port)}")
        await monitor._runner.setup()
        await web.SockSite(monitor._runner, sock).start()
        return monitor

    async def close(self) -> None:
        """Stop listening, and end what is in progress."""
        await self._runner.cleanup()
        self.sock.close()

    def _counted(self, path: str, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            requests = self._server.http_requests
            requests[path] = requests.get(path, 0) + 1
            try:
                return await handler(request)
            except RequestError as exc:
                return web.Response(status=400, text=str(exc))

        return handle

    async def _root(self, request: web.Request) -> web.Response:
        pages = ("varz", "connz", "subsz", "healthz")
        links = "\n".join(f'<li><a href="./{page}">{page}</a></li>' for page in pages)
        return web.Response(
            content_type="text/html",
            text="<!DOCTYPE html>\n<html lang=en><title>gnats</title>\n"
            f"<h1>gnats {__version__}</h1>\n<p>as nats-server {NATS_VERSION}</p>\n<ul>\n{links}\n</ul>\n",
        )

    async def _varz(self, request: web.Request) -> web.Response:
        return _json(varz(self._server))

    async def _connz(self, request: web.Request) -> web.Response:
        query = request.query
        state = query.get("state", "")
        if state.lower() not in _STATES:
            raise RequestError(f"Error decoding state for {state}")
        subs = query.get("subs", "").lower()
        if subs != "detail":
            subs = "list" if parse_bool("subs", query.get("subs", "")) else ""
        options = ConnzOptions(
            sort=query.get("sort", "") or "cid",
            auth=parse_bool("auth", query.get("auth", "")),
            subs=subs,
            offset=parse_int("offset", query.get("offset", "")),
            limit=parse_int("limit", query.get("limit", "")),
            cid=parse_int("cid", query.get("cid", "")),
            state=_STATES[state.lower()],
            user=query.get("user", ""),
            account=query.get("acc", ""),
        )
        return _json(connz(self._server, options))

    async def _subsz(self, request: web.Request) -> web.Response:
        query = request.query
        options = SubszOptions(
            subs=parse_bool("subs", query.get("subs", "")),
            offset=parse_int("offset", query.get("offset", "")),
            limit=parse_int("limit", query.get("limit", "")),
            account=query.get("acc", ""),
        )
        return _json(subsz(self._server, options))

    async def _healthz(self, request: web.Request) -> web.Response:
        return _json({"status": "ok"}, indent=None)


async def _not_yet(request: web.Request) -> web.Response:
    return web.Response(status=404, text=f"{request.path} is not supported yet\n")


def _json(data: dict[str, object], indent: int | None = 2) -> web.Response:
    separators = (",", ": ") if indent else (",", ":")
    text = json.dumps(data, indent=indent, separators=separators, ensure_ascii=False)
    return web.Response(
        body=text.encode("utf-8", "replace"),
        content_type="application/json",
        headers={"Access-Control-Allow-Origin": "*"},
    )
