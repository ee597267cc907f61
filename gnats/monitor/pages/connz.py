"""/connz: connections, open and closed (Connz in monitor.go, and monitor_sort_opts.go)."""

import base64
import heapq
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from gnats.client.session import Session
from gnats.clock import time_ns
from gnats.connection.closed_state import ClosedState
from gnats.connection.connect_options import ClientOptions
from gnats.core.accounts.listing import column
from gnats.core.subjects.subject import collide
from gnats.errors import RequestError
from gnats.go.json import Struct, unmarshal
from gnats.go.text import duration, rfc3339, uptime
from gnats.monitor.pages.options import ALL, CLOSED, DEFAULT_LIMIT, OPEN, ConnzOptions
from gnats.monitor.pages.render import SLICE, Named, Page, without_empty
from gnats.options.values.auth import GLOBAL_ACCOUNT
from gnats.runtime.steps import Steps, finish

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.core.tls.tlstransport import TLSInfo
    from gnats.leafnodes.leafnodes import LeafNodes

_COUNTERS = {
    # sort orders by a counter, the largest first
    "subs": "subscriptions",
    "pending": "pending_bytes",
    "msgs_to": "out_msgs",
    "msgs_from": "in_msgs",
    "bytes_to": "out_bytes",
    "bytes_from": "in_bytes",
    "last": "last_activity",
    "idle": "last_activity",
    "rtt": "rtt",
}
_SMALLEST_FIRST = frozenset(("cid", "start", "idle", "uptime", "reason"))
"""Sort orders with the smallest value first. "idle" sorts by the last activity: the oldest comes first."""

_SORTS = frozenset(("cid", "start", "uptime", "stop", "reason", *_COUNTERS))
_OMITTED = frozenset(
    (
        "type",
        "stop",
        "reason",
        "stalls",
        "name",
        "lang",
        "version",
        "tls_version",
        "tls_cipher_suite",
        "tls_peer_certs",
        "tls_first",
        "authorized_user",
        "account",
        "subscriptions_list",
        "subscriptions_list_detail",
        "jwt",
        "issuer_key",
        "name_tag",
        "tags",
    )
)

_BEARER: Struct = {"nats": {"bearer_token": "bool"}}

SubRow = tuple[bytes, bytes, bytes, int, int]
"""Subject, queue, sid, delivered, max."""


class ConnzServer(Named, Protocol):
    """The server as this page sees it: with its open and closed connections."""

    @property
    def clients(self) -> dict[int, Session]: ...
    @property
    def closed_clients(self) -> Iterable[Session]: ...
    @property
    def leafs(self) -> "LeafNodes | None": ...

    def lookup_account(self, name: str) -> "Account | None":
        """Return the account of that name, None for an unknown one."""


def connz(server: ConnzServer, options: ConnzOptions) -> Page:
    """List a page of connections.

    Raises RequestError.
    """
    return finish(connz_steps(server, options))


def connz_steps(server: ConnzServer, options: ConnzOptions) -> Steps[Page]:
    """Make the page of connz() in steps."""
    sort = options.sort or "cid"
    _check(options, sort)
    offset = max(options.offset, 0)
    limit = 1 if options.cid else options.limit if options.limit > 0 else DEFAULT_LIMIT
    now = time_ns()
    page: Page = {
        "server_id": server.id,
        "now": rfc3339(now),
        "num_connections": 0,
        "total": 0,
        "offset": offset,
        "limit": limit,
        "connections": [],
    }
    if options.acc and server.lookup_account(options.acc) is None:
        return page | {"server_id": "", "connections": None}
    opened, closed = _candidates(server, options)
    page["total"] = len(opened) + len(closed)
    sessions: Iterable[Session]
    if options.cid:
        sessions = _with_cid(options.cid, opened, closed)
    elif _filtered(options):
        sessions = yield from _filter(opened, closed, options)
    elif sort in ("cid", "start") and not closed:
        sessions = opened.values()  # already in this order, because connection ids grow
    else:
        sessions = [*opened.values(), *closed]
    last = min(offset + limit, sys.maxsize)
    if not isinstance(sessions, list) or len(sessions) < 2:
        chosen = list(islice(sessions, offset, last))
    else:
        chosen = yield from _sorted(sessions, sort, offset, last, now)
    infos = []
    lists = options.subscriptions or options.subscriptions_detail  # a connection may have many
    for index, session in enumerate(chosen):
        infos.append(connection_info(session, now, options))
        if lists or index % 64 == 63:
            yield
    return page | {"num_connections": len(infos), "connections": infos}


def _check(options: ConnzOptions, sort: str) -> None:
    if sort not in _SORTS:
        raise RequestError(f"invalid sorting option: {sort}")
    if sort in ("stop", "reason") and options.state != CLOSED:
        raise RequestError(f"sort by {sort} only valid on closed connections")
    if options.filter_subject not in ("", ">") and not options.acc:
        raise RequestError("filter by subject only valid with account filtering")


def _candidates(server: ConnzServer, options: ConnzOptions) -> tuple[dict[int, Session], list[Session]]:
    opened: dict[int, Session] = server.clients if options.state in (OPEN, ALL) else {}
    if opened is server.clients and server.leafs and len(server.leafs.table):
        opened = {**opened, **{leaf.cid: leaf for leaf in server.leafs.table}}
        opened = dict(sorted(opened.items()))
    closed = list(server.closed_clients) if options.state in (CLOSED, ALL) else []
    if options.acc:
        opened = {cid: session for cid, session in opened.items() if session.account.name == options.acc}
        closed = [session for session in closed if session.account.name == options.acc]
    return opened, closed


def _with_cid(cid: int, opened: dict[int, Session], closed: list[Session]) -> list[Session]:
    if session := opened.get(cid):
        return [session]
    return [session for session in closed if session.cid == cid][:1]


def _filtered(options: ConnzOptions) -> bool:
    return bool(options.user or options.mqtt_client or options.filter_subject not in ("", ">"))


def _filter(opened: dict[int, Session], closed: list[Session], options: ConnzOptions) -> Steps[list[Session]]:
    found = []
    subject = options.filter_subject if options.filter_subject != ">" else ""
    for index, session in enumerate([*opened.values(), *closed]):
        if index % SLICE == SLICE - 1:
            yield
        if options.mqtt_client or (options.user and session.raw_auth_user() != options.user):
            continue
        # As in nats-server, the subject filters open connections only.
        if subject and session.client and not any(collide(subject, sub[0]) for sub in subscriptions(session)):
            continue
        found.append(session)
    return found


def _sorted(sessions: list[Session], sort: str, first: int, last: int, now: int) -> Steps[list[Session]]:
    keys: list[Any] = []
    for start in range(0, len(sessions), SLICE * 8):
        keys += _keys(sessions[start : start + SLICE * 8], sort, now)
        yield
    ascending = sort in _SMALLEST_FIRST
    order: Iterable[int] = range(len(sessions))
    key: Callable[[int], Any] = keys.__getitem__
    if last * 8 < len(sessions):
        ordered = (heapq.nsmallest if ascending else heapq.nlargest)(last, order, key)
    else:
        ordered = sorted(order, key=key, reverse=not ascending)
    return [sessions[index] for index in ordered[first:last]]


def _keys(sessions: list[Session], sort: str, now: int) -> list[Any]:
    if sort in ("cid", "start"):
        return [session.cid for session in sessions]
    if sort == "uptime":
        return [(session.stop or now) - session.start for session in sessions]
    if sort == "stop":
        return [session.stop for session in sessions]
    if sort == "reason":
        return [str(session.reason) for session in sessions]
    name = _COUNTERS[sort]
    live = iter(column([session.client for session in sessions if session.client], name))
    return [next(live) if session.client else session.final[name] for session in sessions]


class Shown(Protocol):
    """An open or closed connection."""

    @property
    def cid(self) -> int: ...
    @property
    def kind_name(self) -> str: ...
    @property
    def client_type(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...
    @property
    def reason(self) -> ClosedState | None: ...
    @property
    def opts(self) -> ClientOptions: ...

    def snapshot(self) -> dict[str, int]: ...
    def tls_info(self) -> "TLSInfo | None": ...


def describe(connection: Shown, now: int, *, auth: bool = False) -> Page:
    """Describe what all kinds of connections have as of `now` (ns since 1970); `auth`: and certificates."""
    counters = connection.snapshot()
    last = counters["last_activity"] or connection.start
    end = connection.stop or now
    info: Page = {
        "cid": connection.cid,
        "kind": connection.kind_name,
        "type": connection.client_type,
        "ip": connection.host,
        "port": connection.port,
        "start": rfc3339(connection.start),
        "last_activity": rfc3339(last),
        "stop": rfc3339(connection.stop) if connection.stop else "",
        "reason": str(connection.reason) if connection.reason else "",
        "rtt": duration(round_trip(counters["rtt"])),
        "uptime": uptime(end - connection.start),
        "idle": uptime(end - last),
        "pending_bytes": counters["pending_bytes"],
        "in_msgs": counters["in_msgs"],
        "out_msgs": counters["out_msgs"],
        "in_bytes": counters["in_bytes"],
        "out_bytes": counters["out_bytes"],
        "stalls": counters["stalls"],
        "subscriptions": counters["subscriptions"],
        "name": connection.opts.name,
        "lang": connection.opts.lang,
        "version": connection.opts.version,
    }
    return without_empty(info | _tls_info(connection, auth), _OMITTED)


def connection_info(session: Session, now: int, options: ConnzOptions) -> Page:
    """Describe one client's or leaf node's connection."""
    info = describe(session, now, auth=options.auth)
    if options.auth:
        info["authorized_user"] = session.raw_auth_user()
        info["account"] = session.account.name if session.account.name != GLOBAL_ACCOUNT else ""
    if options.subscriptions_detail:
        details = [sub_detail(session.cid, sub) for sub in subscriptions(session)]
        if session.stop:
            tag: Page = {"account": session.account.name, "account_tag": session.account.name_tag}
            details = [tag | detail for detail in details]
        info["subscriptions_list_detail"] = details
    elif options.subscriptions:
        info["subscriptions_list"] = [text(sub[0]) for sub in subscriptions(session)]
    if options.auth:
        info["jwt"] = _without_bearer(session.opts.jwt)
        info["issuer_key"] = session.grant.issuer_key
        # A closed connection of the global account has no tag, as in nats-server.
        info["name_tag"] = session.account.name_tag if not session.stop or info["account"] else ""
        info["tags"] = list(session.grant.tags)
    return without_empty(info, _OMITTED)


def _tls_info(connection: Shown, auth: bool) -> Page:
    tls = connection.tls_info()
    if tls is None:
        return {}
    info: Page = {"tls_version": tls["version"], "tls_cipher_suite": tls["cipher_suite"]}
    if auth and tls["peer_certs"]:
        from gnats.monitor.pages.certs import peer_certs

        info["tls_peer_certs"] = peer_certs(tls["peer_certs"])
    return info | {"tls_first": tls["first"]}


def _without_bearer(jwt: str) -> str:
    """Return a user's JWT, "" for a bearer token, which would let anybody in."""
    try:
        payload = jwt.split(".")[1]
        data = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        claims: dict[str, Any] = unmarshal(data, _BEARER, "UserClaims")
    except (IndexError, ValueError):  # not a JWT: refused clients are listed, too
        return jwt
    return "" if claims.get("nats", {}).get("bearer_token") else jwt


def subscriptions(session: Session) -> Iterator[SubRow]:
    """Yield a connection's subscriptions; of a closed one those that it had at its end."""
    if session.client:
        yield from session.client.subscriptions()
        return
    for line in session.final_subs.splitlines():
        subject, queue, rest = line.split(b" ", 2)
        sid, delivered, _ = rest.rsplit(b" ", 2)  # a leaf node's sid is the subject and the group
        yield subject, queue, sid, int(delivered), 0  # the maximum no longer applies


def sub_detail(cid: int, sub: SubRow) -> Page:
    """Describe a subscription of the connection `cid` (SubDetail in monitor.go)."""
    subject, queue, sid, delivered, most = sub
    detail: Page = {
        "subject": text(subject),
        "qgroup": text(queue),
        "sid": text(sid),
        "msgs": delivered,
        "max": max(most, 0),
        "cid": cid,
    }
    return without_empty(detail, ("qgroup", "max"))


def text(raw: bytes) -> str:
    """Decode bytes of a client; invalid UTF-8 becomes U+FFFD."""
    return raw.decode("utf-8", "replace")


def round_trip(rtt: int) -> int:
    """Return a round trip time (ns) as it is shown: in whole microseconds, if it has some (getRTT)."""
    return rtt // 1000 * 1000 if 1000 < rtt < 1_000_000 else rtt
