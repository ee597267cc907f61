"""Reading the configuration again while the server runs (reload.go).

First all that can fail is done: then either nothing at all has changed, or everything changes at once. The
clients that are there are looked at after that, little by little, so that others get their turn.
"""

import asyncio
import gc
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from gnats.auth import Authenticator, Denied, Grant
from gnats.authopts import GLOBAL_ACCOUNT
from gnats.authorization import configure_authorization
from gnats.clock import time_ns
from gnats.connect import auth_violation, close_over_maximum, limits, permissions_of
from gnats.errors import OptionError, ServerError
from gnats.opts import Options, read_config
from gnats.reasons import ClosedState
from gnats.reloadable import diff_options

if TYPE_CHECKING:
    from gnats.server import Server
    from gnats.session import Session

_LOG = frozenset(("Logtime", "LogtimeUTC", "LogFile", "Syslog", "RemoteSyslog"))
_AUTH = frozenset(("Username", "Password", "Authorization", "Users", "Nkeys", "NoAuthUser", "Accounts"))
_LIMITS = frozenset(("MaxControlLine", "MaxPayload", "PingInterval", "MaxPingsOut", "Accounts"))

_SLICE = 256
"""Clients looked at at once, before others get their turn."""


def read_options(server: "Server") -> Options:
    """A server's options as they would be if it started now.

    An embedded one's host, port and threads are its own, and so is its store directory where the file names
    none. May be called in a thread. Raises OptionError.
    """
    if not (server.read_options or server.opts.config_file):
        raise OptionError("can only reload config when a file is provided using -c or --config")
    with _no_collections():
        if server.read_options:
            return server.read_options()
        was, opts = server.opts, Options()
        read_config(opts, was.config_file)
        opts.host, opts.port, opts.io_threads = was.host, was.port, was.io_threads
        if not opts.jetstream.store_dir:
            opts.jetstream = replace(opts.jetstream, store_dir=was.jetstream.store_dir)
        return opts.baseline()


@contextmanager
def _no_collections() -> Iterator[None]:
    """A large configuration is a million objects, all to be kept: there is no garbage to look for."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


async def reload(server: "Server", new: Options) -> None:
    """Put these options, which are a baseline(), into force.

    Raises OptionError or ServerError, and the old ones stay.
    """
    _require_running(server)
    old, before = replace(server.opts, port=server.port), server.auth
    if new.port <= 0:  # any port: the one that was taken
        new = replace(new, port=old.port)
    changed = diff_options(old, new)
    auth = configure_authorization(server, new)
    tls = server.make_tls(new)
    if "TLSConfig" not in changed and tls and server.tls and tls.digest != server.tls.digest:
        changed["TLSConfig"] = "Reloaded: tls = enabled"  # other certificates of the same names
    server.check_endpoints(new)
    log = server.make_log(new) if server.make_log and changed.keys() & _LOG else None
    try:
        if server.trust:
            await server.trust.reload(new)
            _require_running(server)
        if changed.keys() & {"Accounts", "JetStream"}:
            server.accounts.configure(new)
    except (OptionError, ServerError):
        if log:
            log.close()
        raise

    server.opts, server.auth = new, auth
    server.use_tls(tls)
    server.update_info()
    _apply(server, changed.keys())
    for notice in filter(None, changed.values()):
        server.log.notice(notice)
    if log:
        server.log.become(log)
    server.config_time = time_ns()
    if old.jetstream.enabled or new.jetstream.enabled:
        await _reload_jetstream(server, changed.keys())

    if changed.keys() & (_AUTH | _LIMITS | {"TLSPinnedCerts"}):
        await _reload_clients(server, changed.keys(), before)
    digest = f"({new.config_digest})" if new.config_digest else ""
    server.log.notice(f"Reloaded server configuration {digest}")


async def _reload_jetstream(server: "Server", changed: Set[str]) -> None:
    """JetStream begins, ends, or has other limits and accounts."""
    from gnats.jetstream.jetstream import disable, restart

    js, opts = server.jetstream, server.opts.jetstream
    if not opts.enabled:
        await disable(server)
    elif js is None:
        await restart(server)
    else:
        if changed & {"JetStreamMaxMemory", "JetStreamMaxStore"}:
            js.set_limits(
                opts.max_memory if "JetStreamMaxMemory" in changed else js.max_memory,
                opts.max_store if "JetStreamMaxStore" in changed else js.max_store,
            )
        if "JetStreamLimits" in changed:
            js.set_stream_limits(opts.limits)
        await js.configure_accounts()


def _require_running(server: "Server") -> None:
    if not server.running:
        raise ServerError("the server is not running")


def _apply(server: "Server", changed: Set[str]) -> None:
    """What has no further part than to be told to somebody; what goes wrong with a file is logged."""
    opts, state, log = server.opts, server.state, server.log
    if "Debug" in changed:
        log.debug_on = state.debug = opts.debug
    if "Trace" in changed:
        log.trace_on = state.trace = opts.trace
    state.trace_verbose, state.trace_headers = opts.trace_verbose, opts.trace_headers
    state.max_traced_msg_len = max(opts.max_traced_msg_len, 0)
    state.no_fast_producer_stall = opts.no_fast_producer_stall
    if "PidFile" in changed and opts.pid_file:
        server.update_pid_file()
    if "PortsFileDir" in changed:
        server.update_ports_file()
    server.reload_endpoints()
    if "MaxConn" in changed:
        _close_clients_over_maximum(server)
    if changed & {"Tags", "Metadata"} and server.events:
        server.events.statsz_update()


def _close_clients_over_maximum(server: "Server") -> None:
    """Those that came last go."""
    log = server.log
    over = list(server.clients.values())[max(server.opts.max_conn, 0) :]
    for session in over:
        error = "maximum connections exceeded"
        session.close(log, ClosedState.MAX_CONNECTIONS_EXCEEDED, error)
        session.rate_limit(log, "ERR", error)
    if over:
        log.notice(f"Closed {len(over)} connections to fall within max_connections")


async def _reload_clients(server: "Server", changed: Set[str], before: Authenticator) -> None:
    """Clients that may not be here any more go, the others get the permissions and limits they have now."""
    sessions, unpinned = list(server.clients.values()), 0
    for start in range(0, len(sessions), _SLICE):
        part = sessions[start : start + _SLICE]
        kept = await asyncio.gather(*(_reload_client(server, each, changed, before) for each in part))
        unpinned += kept.count(False)
    if unpinned:
        server.log.notice(f"Disconnect {unpinned} clients due to pinned certs reload")
    if "Accounts" in changed:  # of those that are still here
        for account in server.accounts.values():
            close_over_maximum(server, account)


async def _reload_client(
    server: "Server", session: "Session", changed: Set[str], before: Authenticator
) -> bool:
    """False when its certificate is not one of those that are pinned, and it has to go."""
    if session.client is None:
        return True
    if "TLSPinnedCerts" in changed and not _is_pinned(server, session):
        session.close(server.log, ClosedState.TLS_HANDSHAKE_ERROR)
        return False
    if changed & _AUTH and not server.trust:  # which has told its clients already
        await _reload_authorization(server, session, before)
    if changed & _LIMITS:
        _reload_limits(server, session)
    return True


async def _reload_authorization(server: "Server", session: "Session", before: Authenticator) -> None:
    if not session.connected:
        if server.auth.required and not before.required:  # it was let do all without a CONNECT
            auth_violation(server, session)
        return
    if _has_moved(server, session):
        session.close(server.log, ClosedState.CLIENT_CLOSED)
        return
    granted = session.grant
    try:
        decision = server.auth.recheck(session, before)
        grant = decision if isinstance(decision, Grant) else await decision
    except Denied as exc:
        if session.grant is granted and session.client:
            auth_violation(server, session, exc.state)
        return
    if session.grant is granted and session.client:  # still: a CONNECT in the meantime was checked by itself
        session.grant = grant
        if grant.permissions != granted.permissions:
            session.client.set_permissions(permissions_of(server, session))


def _has_moved(server: "Server", session: "Session") -> bool:
    """Whether the client's user is another account's now, or no more (clientHasMovedToDifferentAccount)."""
    if server.lookup_account(session.account.name) is not session.account:
        return True
    user = session.grant.user
    if user is None:
        return False
    now = server.auth.user_like(user)
    return now is None or (now.account or GLOBAL_ACCOUNT) != session.account.name


def _reload_limits(server: "Server", session: "Session") -> None:
    opts = server.opts
    if session.client:
        max_subs, max_payload = limits(server, session)
        session.client.set_limits(
            max_control_line=opts.max_control_line,
            max_payload=max_payload,
            max_subs=max_subs,
            ping_interval=opts.ping_interval,
            ping_max=max(opts.ping_max, -1),
        )


def _is_pinned(server: "Server", session: "Session") -> bool:
    tls = server.opts.tls
    if tls is None or not tls.pinned_certs:
        return True
    der = session.peer_certificate()
    if der is None:
        return False
    from gnats.certs import PeerCertificate

    return PeerCertificate.from_der(der).spki_sha256 in tls.pinned_certs
