"""Reload the configuration of a running server (reload.go): read the options, then check the clients again.

Clients are checked in slices, so that the loop gets to other work in between. Server.reload() applies the
options themselves.
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
"""Clients that are checked before the loop gets to other work."""


class Host(Protocol):
    """The server; `opts` and `auth` are already the new ones."""

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
        """None when the configuration defines the users."""

    def lookup_account(self, name: str) -> "Account | None":
        """Return the account of that name, None for an unknown one."""


def read_options(was: Options, read: Callable[[], Options] | None) -> Options:
    """Return the options that a server would have if it started now: from `read`, or from its file.

    Host, port and I/O threads are kept from `was`, and so is the store directory when the file names none.
    May be called in any thread. Raises OptionError.
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
    """Disable garbage collection: reading a large configuration makes a million objects and no garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def close_clients_over_maximum(server: Host) -> None:
    """Close the clients beyond `max_connections`: those that connected last."""
    log = server.log
    over = list(server.clients.values())[max(server.opts.max_conn, 0) :]
    for session in over:
        error = "maximum connections exceeded"
        session.close(log, ClosedState.MAX_CONNECTIONS_EXCEEDED, error)
        session.rate_limit(log, "ERR", error)
    if over:
        log.notice(f"Closed {len(over)} connections to fall within max_connections")


async def reload_clients(server: Host, changed: Set[str], before: Authenticator) -> None:
    """Close the clients that are no longer allowed; give the others their new permissions and limits.

    `changed` names the options that changed, `before` is the authenticator of the old options.
    """
    if not changed & (_AUTH | _LIMITS | {"TLSPinnedCerts"}):
        return
    sessions, unpinned = list(server.clients.values()), 0
    for start in range(0, len(sessions), _SLICE):
        part = sessions[start : start + _SLICE]
        kept = await asyncio.gather(*(_reload_client(server, each, changed, before) for each in part))
        unpinned += kept.count(False)
    if unpinned:
        server.log.notice(f"Disconnect {unpinned} clients due to pinned certs reload")
    if "Accounts" in changed:  # counts only the clients that the checks above have kept
        for account in server.accounts.values():
            close_over_maximum(account, server.clients, server.log)


async def _reload_client(server: Host, session: "Session", changed: Set[str], before: Authenticator) -> bool:
    """Check one client; return False when it was closed because its certificate is not pinned."""
    if session.client is None:
        return True
    if "TLSPinnedCerts" in changed and not _is_pinned(server, session):
        session.close(server.log, ClosedState.TLS_HANDSHAKE_ERROR)
        return False
    try:
        if changed & _AUTH and not server.operator_mode:  # operator mode has updated its clients already
            await _reload_authorization(server, session, before)
        if changed & _LIMITS:
            _reload_limits(server, session)
    except MemoryError:
        # It must not keep what the new options take from it.
        server.log.error(f"{session} - Out of memory - Closing")
        session.close(server.log, ClosedState.READ_ERROR)
    return True


async def _reload_authorization(server: Host, session: "Session", before: Authenticator) -> None:
    if not session.connected:
        if server.auth.required and not before.required:  # until now it could do everything without CONNECT
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
    if session.grant is granted and session.client:  # another grant: a CONNECT was checked meanwhile
        session.grant = grant
        if grant.permissions != granted.permissions:
            session.client.set_permissions(permissions_of(session, server.log))


def _has_moved(server: Host, session: "Session") -> bool:
    """Whether the user is gone or in another account now (clientHasMovedToDifferentAccount)."""
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
