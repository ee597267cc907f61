"""Handle a client's CONNECT and INFO (processConnect and processInfo in client.go)."""

import re
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gnats.accounts.account import NO_LIMIT, lowest
from gnats.auth.authenticator import Authenticator, Denied
from gnats.client.grant import Grant
from gnats.client.session import Session
from gnats.connection.closed_state import ClosedState
from gnats.connection.connect_options import CLIENT_PROTO_INFO
from gnats.connection.info import INFO_FIELDS
from gnats.core.auth.permissions import Permissions, compile_permissions
from gnats.go.json import JSONError, unmarshal
from gnats.go.text import quote

if TYPE_CHECKING:
    from asyncio import Task

    from gnats.accounts.account import Account
    from gnats.events.events import Events
    from gnats.log.logger import Logger
    from gnats.options.options import Options

_SECRET = re.compile(
    r'("(?:(?:auth_token|pass)[^"]*|proxy_sig|nkey|sig)"\s*:\s*)(?:"(?:\\.|[^"\\])*"?|[^",\s}]+)',
    re.IGNORECASE,
)


def remove_secrets_from_trace(connect: str) -> str:
    """Replace passwords, tokens, keys and signatures in a CONNECT's argument by "[REDACTED]"."""
    return _SECRET.sub(r'\1"[REDACTED]"', connect)


class Host(Protocol):
    """The server that a client connects to. A reload replaces `opts` and `auth`."""

    @property
    def opts(self) -> "Options": ...
    @property
    def auth(self) -> Authenticator: ...
    @property
    def log(self) -> "Logger": ...
    @property
    def events(self) -> "Events | None":
        """None without a system account."""

    @property
    def system_account(self) -> "Account | None": ...

    def lookup_account(self, name: str) -> "Account | None":
        """Return the account of that name, None for an unknown one."""

    def client_info(self, session: Session, **changes: object) -> bytes:
        """Return the INFO line for a client; `changes` override fields of the INFO."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> "Task[None]":
        """Run a coroutine as a task, until the server shuts down."""


def process_connect(server: Host, session: Session, arg: bytes) -> None:
    """Answer a CONNECT: resume the client with the options that it names, or close it.

    A second CONNECT changes the options that it names and authenticates again; the data plane then drops the
    client's subscriptions.
    """
    client, opts, log = session.client, session.opts, server.log
    if client is None:
        return
    if log.trace_on:
        text = remove_secrets_from_trace(arg.decode("utf-8", "backslashreplace"))
        log.trace(f"{session} - <<- [CONNECT {text}]")
    try:
        opts.merge(arg)
    except JSONError as exc:
        log.error(f"{session} - {exc}")
        session.close(log, ClosedState.PROTOCOL_VIOLATION)
        return
    if not server.auth.takes_jwts:
        opts.jwt = ""
    if session.connected:
        # The client may get another account: drop the grant of its first CONNECT.
        session.grant = Grant()
    _decide(server, session)


def _decide(server: Host, session: Session) -> None:
    auth = server.auth
    try:
        decision = auth.check(session)
    except Denied as exc:
        _denied(server, session, exc)
    else:
        if isinstance(decision, Grant):
            _granted(server, session, decision)
        else:
            deciding = server.spawn(_decide_later(server, session, auth, decision))
            deciding.add_done_callback(partial(_decided, server, session))
            session.decide(deciding)


def _decided(server: Host, session: Session, deciding: "Task[None]") -> None:
    """Refuse the client when the check has raised an unexpected error: else it would wait for ever."""
    if not deciding.cancelled() and (exc := deciding.exception()):
        server.log.error(f"{session} - Authentication failed: {exc!r:.500}")
        auth_violation(session, server.log, server.events)


async def _decide_later(
    server: Host, session: Session, auth: Authenticator, decision: Coroutine[Any, Any, Grant]
) -> None:
    try:
        grant = await decision
    except Denied as exc:
        _denied(server, session, exc)
    else:
        if server.auth is auth:
            _granted(server, session, grant)
        else:  # a reload has replaced the users meanwhile
            _decide(server, session)


def _denied(server: Host, session: Session, why: Denied) -> None:
    if text := str(why):
        server.log.debug(f"{session} - {text}")
    auth_violation(session, server.log, server.events, why.state)
    account = server.lookup_account(why.account) if why.account else session.account
    if server.events and account:
        server.events.account_auth_error(session, account, why.reason)


def _granted(server: Host, session: Session, grant: Grant) -> None:
    """Register the client with its account, and resume it with the options of its CONNECT."""
    client, opts, log = session.client, session.opts, server.log
    if client is None:  # gone while its credentials were checked
        return
    # A client may not choose its account any more.
    if opts.new_account or opts.account:
        auth_violation(session, server.log, server.events)
        return
    account = server.lookup_account(grant.account)
    if account is None:
        log.error(f"{session} - Problem registering with account {quote(grant.account)}: bad account")
        session.close(log, ClosedState.AUTHENTICATION_VIOLATION, "Failed Account Registration")
        return
    session.grant = grant
    before = session.account
    if not session.register_with_account(account):
        error = "maximum account active connections exceeded"
        session.rate_limit(log, "ERR", error)
        session.close(log, ClosedState.MAX_ACCOUNT_CONNECTIONS_EXCEEDED, error)
        return
    if server.events:
        for changed in {before, account}:
            server.events.conns_update(changed)
        server.events.connected(session)
    if grant.expires is not None:
        session.expire_after(grant.expires, log)
    if not session.connected:
        session.connected = True
        session.set_names()
    headers = opts.headers and not server.opts.no_header_support
    refused: tuple[ClosedState, str] | None = None
    if not 0 <= opts.protocol <= CLIENT_PROTO_INFO:
        refused = ClosedState.BAD_CLIENT_PROTOCOL_VERSION, "invalid client protocol"
    elif opts.no_responders and not headers:
        refused = ClosedState.NO_RESPONDERS_REQUIRES_HEADERS, "no responders requires headers support"
    if refused:
        session.close(log, *refused)
        log.error(f"{session} - {refused[1]}")
        return
    if opts.verbose:
        log.trace(f"{session} - ->> [OK]")
    if session.account.shares_details:
        session.share_details()
    max_subs, max_payload = limits(session, server.opts)
    client.connected(
        session.account,
        echo=opts.echo,
        verbose=opts.verbose,
        pedantic=opts.pedantic,
        headers=headers,
        no_responders=opts.no_responders,
        protocol=opts.protocol,
        connect_info=server.client_info(
            session,
            connect_info=True,
            remote_account=session.account.name,
            acc_is_sys=session.account is server.system_account,
            max_payload=max_payload,
        ),
        greeting=b"+OK\r\n" if opts.verbose else b"",
        permissions=permissions_of(session, log),
        max_subs=max_subs,
        max_payload=max_payload,
    )


def permissions_of(session: Session, log: "Logger") -> Permissions | None:
    """Compile a client's permissions; None when it has none. Logs invalid subjects."""
    granted = session.grant.permissions
    permissions = compile_permissions(granted) if granted else None
    if permissions is not None:
        for error in permissions.errors:
            log.error(f"{session} - {error}")
    return permissions


def limits(session: Session, opts: "Options") -> tuple[int, int]:
    """Return a client's limits (max_subs, max_payload in bytes), -1 for no limit."""
    grant, account = session.grant, session.account
    max_subs = lowest(grant.max_subs, account.max_subscriptions, opts.max_subs or NO_LIMIT)
    return max_subs, lowest(grant.max_payload, account.max_payload, opts.max_payload)


def close_over_maximum(account: "Account", sessions: Mapping[int, Session], log: "Logger") -> list[Session]:
    """Close the connections beyond an account's limit, the latest ones; return the others, oldest first.

    `sessions` are all clients of the server, by id.
    """
    here = [session for cid in account.clients if not (session := sessions[cid]).leaving]
    here.sort(key=lambda session: session.start)
    if not 0 <= account.max_connections < len(here):
        return here
    for session in here[account.max_connections :]:
        error = "maximum account active connections exceeded"
        session.rate_limit(log, "ERR", error)
        session.close(log, ClosedState.MAX_ACCOUNT_CONNECTIONS_EXCEEDED, error)
    return here[: account.max_connections]


def auth_violation(
    session: Session,
    log: "Logger",
    events: "Events | None",
    state: ClosedState = ClosedState.AUTHENTICATION_VIOLATION,
) -> None:
    """Refuse a client's credentials."""
    user = session.auth_user()
    log.error(f"{session} - authentication error" + (f" - {user}" if user else ""))
    session.close(log, state, "Authorization Violation")
    if events:
        events.auth_error(session, state)


def process_info(session: Session, arg: bytes, log: "Logger") -> None:
    """Check a client's own INFO and ignore its contents; close the client when it is malformed."""
    if session.client is None:
        return
    try:
        unmarshal(arg, INFO_FIELDS, "Info")
    except JSONError as exc:
        log.error(f"{session} - {exc}")
        session.close(log, ClosedState.PROTOCOL_VIOLATION)
    else:
        session.client.resume()
