"""What the monitoring endpoints say, as plain data (varz, connz and subsz in monitor.go).

Fields have nats-server's names and order; what this server does not have or know yet is left out.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gnats.account import Account
from gnats.gofmt import duration, quote, rfc3339, uptime
from gnats.session import Session
from gnats.version import NATS_VERSION, PROTO, RUNTIME, __version__

if TYPE_CHECKING:
    from gnats.server import Server

DEFAULT_LIMIT = 1024

_PAGE = os.sysconf("SC_PAGE_SIZE")
_CPU_INTERVAL = 1_000_000_000


class RequestError(Exception):
    """A query that cannot be answered; the text is for the one who asked."""


class Usage:
    """The processor time this process used lately."""

    def __init__(self) -> None:
        self._percent = 0.0
        self._since = time.monotonic_ns()
        self._spent = time.process_time_ns()

    def cpu(self) -> float:
        """Percent of a core, over the time since it was last asked, at least a second."""
        now = time.monotonic_ns()
        if now - self._since >= _CPU_INTERVAL:
            spent = time.process_time_ns()
            self._percent = round((spent - self._spent) * 100 / (now - self._since), 1)
            self._since, self._spent = now, spent
        return self._percent


_usage = Usage()


def resident_bytes() -> int:
    """The process's resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def varz(server: "Server") -> dict[str, object]:
    """The server's configuration and counters."""
    opts, now = server.opts, time.time_ns()
    traffic = server.pollers.stats() if server.pollers else {}
    page: dict[str, object] = {
        "server_id": server.id,
        "server_name": server.name,
        "version": NATS_VERSION,
        "gnats": __version__,
        "proto": PROTO,
        "go": RUNTIME,
        "host": opts.host,
        "port": server.port,
        "max_connections": opts.max_conn,
        "ping_interval": _ns(opts.ping_interval),
        "ping_max": opts.ping_max,
        "http_host": opts.http_host,
        "http_port": opts.http_port,
        "http_base_path": "",
        "https_port": 0,
        "auth_timeout": opts.auth_timeout,
        "max_control_line": opts.max_control_line,
        "max_payload": opts.max_payload,
        "max_pending": opts.max_pending,
        "cluster": {},
        "gateway": {},
        "leaf": {},
        "mqtt": {},
        "websocket": {},
        "jetstream": {},
        "write_deadline": _ns(opts.write_deadline),
        "start": rfc3339(server.start_time),
        "now": rfc3339(now),
        "uptime": uptime(now - server.start_time),
        "mem": resident_bytes(),
        "cores": os.cpu_count(),
        "cpu": _usage.cpu(),
        "connections": server.num_clients,
        "total_connections": server.total_clients,
        "routes": 0,
        "remotes": 0,
        "leafnodes": 0,
    }
    if server.auth.required:
        page["auth_required"] = True
    if opts.max_subs:
        page["max_subscriptions"] = opts.max_subs
    # Clients are the only connections there are, so what they did is all that was done.
    for name in ("in_msgs", "in_bytes", "out_msgs", "out_bytes"):
        direction, what = name.split("_")
        page[name] = page[f"{direction}_client_{what}"] = traffic.get(name, 0)
    page |= {
        "slow_consumers": server.state.slow_consumers,
        "stale_connections": server.state.stale_connections,
        "stalled_clients": server.state.stalls,
        "subscriptions": server.num_subscriptions,
        "http_req_stats": server.http_requests,
        "config_load_time": rfc3339(server.config_time),
        "slow_consumer_stats": _by_kind(server.state.slow_consumers),
        "stale_connection_stats": _by_kind(server.state.stale_connections),
    }
    return page


def _by_kind(clients: int) -> dict[str, int]:
    return {"clients": clients, "routes": 0, "gateways": 0, "leafs": 0}


@dataclass(slots=True)
class ConnzOptions:
    """What /connz is asked for; `subs` is "", "list" or "detail", `state` "open", "closed" or "any"."""

    sort: str = "cid"
    auth: bool = False
    subs: str = ""
    offset: int = 0
    limit: int = 0
    cid: int = 0
    state: str = "open"
    user: str = ""
    account: str = ""


_SORTS: dict[str, tuple[Callable[[Session], int | str], bool]] = {
    # what to sort by, and whether the largest comes first
    "cid": (lambda session: session.cid, False),
    "start": (lambda session: session.cid, False),
    "subs": (lambda session: session.snapshot()["subscriptions"], True),
    "pending": (lambda session: session.snapshot()["pending_bytes"], True),
    "msgs_to": (lambda session: session.snapshot()["out_msgs"], True),
    "msgs_from": (lambda session: session.snapshot()["in_msgs"], True),
    "bytes_to": (lambda session: session.snapshot()["out_bytes"], True),
    "bytes_from": (lambda session: session.snapshot()["in_bytes"], True),
    "last": (lambda session: session.snapshot()["last_activity"], True),
    "idle": (lambda session: session.snapshot()["last_activity"], False),
    "uptime": (lambda session: (session.stop or time.time_ns()) - session.start, False),
    "stop": (lambda session: session.stop, True),
    "reason": (lambda session: str(session.reason), False),
    "rtt": (lambda session: session.snapshot()["rtt"], True),
}


def connz(server: "Server", options: ConnzOptions) -> dict[str, object]:
    """A page of connections.

    Raises RequestError.
    """
    sort, state = options.sort, options.state
    if sort not in _SORTS:
        raise RequestError(f"invalid sorting option: {sort}")
    if sort in ("stop", "reason") and state != "closed":
        raise RequestError(f"sort by {sort} only valid on closed connections")
    sessions = [] if state == "closed" else list(server.clients.values())
    if state != "open":
        sessions += server.closed_clients
    if options.account:
        sessions = [session for session in sessions if session.account.name == options.account]
    total = len(sessions)
    if options.cid:
        sessions = [session for session in sessions if session.cid == options.cid]
    elif options.user:
        sessions = [session for session in sessions if session.raw_auth_user() == options.user]
    key, reverse = _SORTS[sort]
    sessions.sort(key=key, reverse=reverse)
    offset = max(options.offset, 0)
    limit = 1 if options.cid else options.limit if options.limit > 0 else DEFAULT_LIMIT
    now = time.time_ns()
    page = [_connection_info(session, now, options) for session in sessions[offset : offset + limit]]
    return {
        "server_id": server.id,
        "now": rfc3339(now),
        "num_connections": len(page),
        "total": total,
        "offset": offset,
        "limit": limit,
        "connections": page,
    }


def _connection_info(session: Session, now: int, options: ConnzOptions) -> dict[str, object]:
    counters = session.snapshot()
    end = session.stop or now
    last = counters["last_activity"]
    info: dict[str, object] = {
        "cid": session.cid,
        "kind": "Client",
        "type": "nats",
        "ip": session.host,
        "port": session.port,
        "start": rfc3339(session.start),
        "last_activity": rfc3339(last),
        "stop": rfc3339(session.stop) if session.stop else "",
        "reason": str(session.reason) if session.reason else "",
        "rtt": duration(_round_trip(counters["rtt"])),
        "uptime": uptime(end - session.start),
        "idle": uptime(end - last),
        "pending_bytes": counters["pending_bytes"],
        "in_msgs": counters["in_msgs"],
        "out_msgs": counters["out_msgs"],
        "in_bytes": counters["in_bytes"],
        "out_bytes": counters["out_bytes"],
        "stalls": counters["stalls"] or "",
        "subscriptions": counters["subscriptions"],
        "name": session.opts.name,
        "lang": session.opts.lang,
        "version": session.opts.version,
    }
    if options.auth:
        info["authorized_user"] = session.raw_auth_user()
        info["name_tag"] = session.account.name
    if options.subs and session.client:
        subs = session.client.subscriptions()
        if options.subs == "detail":
            info["subscriptions_list_detail"] = [_sub_detail(session, sub) for sub in subs] or ""
        else:
            info["subscriptions_list"] = [_text(sub[0]) for sub in subs] or ""
    return {name: value for name, value in info.items() if value != ""}


def _sub_detail(session: Session, sub: tuple[bytes, bytes, bytes, int, int]) -> dict[str, object]:
    subject, queue, sid, delivered, most = sub
    detail: dict[str, object] = {"subject": _text(subject)}
    if queue:
        detail["qgroup"] = _text(queue)
    detail |= {"sid": _text(sid), "msgs": delivered}
    if most > 0:
        detail["max"] = most
    return detail | {"cid": session.cid}


@dataclass(slots=True)
class SubszOptions:
    """What /subsz is asked for."""

    subs: bool = False
    offset: int = 0
    limit: int = 0
    account: str = ""


def subsz(server: "Server", options: SubszOptions) -> dict[str, object]:
    """The state of the subscription table and, if asked for, a page of the clients' subscriptions."""
    offset = max(options.offset, 0)
    limit = options.limit if options.limit > 0 else DEFAULT_LIMIT
    accounts: list[Account] = [server.global_account]
    if options.account:
        accounts = [account for account in accounts if account.name == options.account]
    page: dict[str, object] = {"server_id": server.id, "now": rfc3339(time.time_ns())}
    for account in accounts:
        page |= account.sublist.stats()
    page |= {"total": 0, "offset": offset, "limit": limit}
    if options.subs:
        details = [
            {"account": session.account.name, "account_tag": session.account.name} | _sub_detail(session, sub)
            for session in server.clients.values()
            if session.account in accounts and session.client
            for sub in session.client.subscriptions()
        ]
        page["total"] = len(details)
        if chosen := details[offset : offset + limit]:
            page["subscriptions_list"] = chosen
    return page


def parse_bool(name: str, text: str) -> bool:
    """A boolean of a query; empty is false.

    Raises RequestError.
    """
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("", "0", "f", "F", "false", "FALSE", "False"):
        return False
    raise RequestError(f"Error decoding boolean for '{name}': {quote(text)} is not one")


def parse_int(name: str, text: str) -> int:
    """An integer of a query; empty is 0.

    Raises RequestError.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not text:
        return 0
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise RequestError(f"Error decoding int for '{name}': {quote(text)} is not one")
    return int(text)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _round_trip(rtt: int) -> int:
    return rtt // 1000 * 1000 if 1000 < rtt < 1_000_000 else rtt
