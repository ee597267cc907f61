"""Reading the configuration again while the server runs (reload.go): the options, and the clients after it.

Clients are looked at little by little, so that others get their turn. Server.reload() puts the options into
force.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from gnats.auth.authenticator import Authenticator, Denied
from gnats.auth.connect import auth_violation, close_over_maximum, limits, permissions_of
from gnats.client.grant import Grant
from gnats.connection.closed_state import ClosedState
from gnats.errors import OptionError
from gnats.options.options import Options, read_config
from gnats.options.values.auth import GLOBAL_ACCOUNT

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.accounts.accounts import Accounts
    from gnats.client.session import Session
    from gnats.events.events import Events
    from gnats.log.logger import Logger
    from gnats.operator.mode import OperatorMode

_AUTH = frozenset(("Username", "Password", "Authorization", "Users", "Nkeys", "NoAuthUser", "Accounts"))
_LIMITS = frozenset(("MaxControlLine", "MaxPayload", "PingInterval", "MaxPingsOut", "Accounts"))

_SLICE = 256
"""Clients looked at at once, before others get their turn."""


class Host(Protocol):
    """The server, which has the new options."""

    @property
    def opts(self) -> Options: ...
    @property
    def auth(self) -> Authenticator: ...
    @property
    def log(self) -> "Logger": ...
    @property
    def clients(self) -> "dict[int, Session]": ...
    @property
    def accounts(self) -> "Accounts": ...
    @property
    def events(self) -> "Events | None":
        """None without a system account."""

    @property
    def operator_mode(self) -> "OperatorMode | None":
        """None: users are those of the configuration."""

    def lookup_account(self, name: str) -> "Account | None":
        """The account of that name."""


def read_options(was: Options, read: Callable[[], Options] | None) -> Options:
    """Return a server's options as they would be if it started now: by `read`, or from its file.

    An embedded server's host, port and threads are its own, and so is its store directory where the file
    names none. May be called in a thread. Raises OptionError.
    """
    if not (read or was.config_file):
        raise OptionError("can only reload config when a file is provided using -c or --config")
    with _no_collections():
        if read:
            return read()
        opts = Options()
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


def close_clients_over_maximum(server: Host) -> None:
    """Those that came last go."""
    log = server.log
    over = list(server.clients.values())[max(server.opts.max_conn, 0) :]
    for session in over:
        error = "maximum connections exceeded"
        session.close(log, ClosedState.MAX_CONNECTIONS_EXCEEDED, error)
        session.rate_limit(log, "ERR", error)
    if over:
        log.notice(f"Closed {len(over)} connections to fall within max_connections")


async def reload_clients(server: Host, changed: Set[str], before: Authenticator) -> None:
    """Clients that may not be here any more go, the others get the permissions and limits they have now."""
    if not changed & (_AUTH | _LIMITS | {"TLSPinnedCerts"}):
        return
    sessions, unpinned = list(server.clients.values()), 0
    for start in range(0, len(sessions), _SLICE):
        part = sessions[start : start + _SLICE]
        kept = await asyncio.gather(*(_reload_client(server, each, changed, before) for each in part))
        unpinned += kept.count(False)
    if unpinned:
        server.log.notice(f"Disconnect {unpinned} clients due to pinned certs reload")
    if "Accounts" in changed:  # of those that are still here
        for account in server.accounts.values():
            close_over_maximum(account, server.clients, server.log)


async def _reload_client(server: Host, session: "Session", changed: Set[str], before: Authenticator) -> bool:
    """False when its certificate is not one of those that are pinned, and it has to go."""
    if session.client is None:
        return True
    if "TLSPinnedCerts" in changed and not _is_pinned(server, session):
        session.close(server.log, ClosedState.TLS_HANDSHAKE_ERROR)
        return False
    if changed & _AUTH and not server.operator_mode:  # which has told its clients already
        await _reload_authorization(server, session, before)
    if changed & _LIMITS:
        _reload_limits(server, session)
    return True


async def _reload_authorization(server: Host, session: "Session", before: Authenticator) -> None:
    if not session.connected:
        if server.auth.required and not before.required:  # it was let do all without a CONNECT
            auth_violation(session, server.log, server.events)
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
            auth_violation(session, server.log, server.events, exc.state)
        return
    if session.grant is granted and session.client:  # still: a CONNECT in the meantime was checked by itself
        session.grant = grant
        if grant.permissions != granted.permissions:
            session.client.set_permissions(permissions_of(session, server.log))


def _has_moved(server: Host, session: "Session") -> bool:
    """Whether the client's user is another account's now, or no more (clientHasMovedToDifferentAccount)."""
    if server.lookup_account(session.account.name) is not session.account:
        return True
    user = session.grant.user
    if user is None:
        return False
    now = server.auth.user_like(user)
    return now is None or (now.account or GLOBAL_ACCOUNT) != session.account.name


def _reload_limits(server: Host, session: "Session") -> None:
    opts = server.opts
    if session.client:
        max_subs, max_payload = limits(session, server.opts)
        session.client.set_limits(
            max_control_line=opts.max_control_line,
            max_payload=max_payload,
            max_subs=max_subs,
            ping_interval=opts.ping_interval,
            ping_max=max(opts.ping_max, -1),
        )


def _is_pinned(server: Host, session: "Session") -> bool:
    tls = server.opts.tls
    if tls is None or not tls.pinned_certs:
        return True
    der = session.peer_certificate()
    if der is None:
        return False
    from gnats.tls.certs import PeerCertificate

    return PeerCertificate.from_der(der).spki_sha256 in tls.pinned_certs
