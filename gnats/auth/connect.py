"""Handle a client's CONNECT and INFO (processConnect and processInfo in client.go)."""

import re
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

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
    from gnats.accounts.accounts import Accounts
    from gnats.connection.info import Info
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


def trace_connect(connection: object, arg: bytes, log: "Logger") -> None:
    """Log a CONNECT without its secrets, if the protocol is traced. The text of `connection` is its name."""
    if log.trace_on:
        text = remove_secrets_from_trace(arg.decode("utf-8", "backslashreplace"))
        log.trace(f"{connection} - <<- [CONNECT {text}]")


class Connector:
    """Answers the CONNECT and INFO of a server's clients, and describes the server to them.

    A reload replaces `auth`; `options` returns the server's current options. `events` returns None without a
    system account. `spawn` runs a coroutine as a task, until the server shuts down.
    """

    def __init__(
        self,
        auth: Authenticator,
        info: "Info",
        accounts: "Accounts",
        log: "Logger",
        *,
        options: "Callable[[], Options]",
        events: "Callable[[], Events | None]",
        spawn: "Callable[[Coroutine[Any, Any, None]], Task[None]]",
    ) -> None:
        self.auth = auth
        self.accounts = accounts
        self.log = log
        self.options = options
        self.events = events
        self._info = info
        self.spawn = spawn

    def client_info(self, session: Session, **changes: object) -> bytes:
        """Return the INFO line for a client; `changes` override fields of the INFO."""
        return self._info.line(client_id=session.cid, client_ip=session.host, **changes)

    def connect_info(self, session: Session) -> bytes:
        """Return the INFO line that follows a client's first PONG."""
        return self.client_info(
            session,
            connect_info=True,
            remote_account=session.account.name,
            acc_is_sys=session.account is self.accounts.system_account,
            max_payload=limits(session, self.options())[1],
        )

    def process_connect(self, session: Session, arg: bytes) -> None:
        """Answer a CONNECT: resume the client with the options that it names, or close it.

        A second CONNECT changes the options that it names and authenticates again; the data plane then drops
        the client's subscriptions.
        """
        client, opts, log = session.client, session.opts, self.log
        if client is None:
            return
        trace_connect(session, arg, log)
        try:
            opts.merge(arg)
        except JSONError as exc:
            log.error(f"{session} - {exc}")
            session.close(log, ClosedState.PROTOCOL_VIOLATION)
            return
        if not self.auth.takes_jwts:
            opts.jwt = ""
        if session.connected:
            # The client may get another account: drop the grant of its first CONNECT.
            session.grant = Grant()
        self._decide(session)

    def _decide(self, session: Session) -> None:
        auth = self.auth
        try:
            decision = auth.check(session)
        except Denied as exc:
            self._denied(session, exc)
        else:
            if isinstance(decision, Grant):
                self._granted(session, decision)
            else:
                deciding = self.spawn(self._decide_later(session, auth, decision))
                deciding.add_done_callback(partial(self._decided, session))
                session.decide(deciding)

    def _decided(self, session: Session, deciding: "Task[None]") -> None:
        """Refuse the client when the check has raised an unexpected error: else it would wait for ever."""
        if not deciding.cancelled() and (exc := deciding.exception()):
            self.log.error(f"{session} - Authentication failed: {exc!r:.500}")
            self.refuse(session)

    async def _decide_later(
        self, session: Session, auth: Authenticator, decision: Coroutine[Any, Any, Grant]
    ) -> None:
        try:
            grant = await decision
        except Denied as exc:
            self._denied(session, exc)
        else:
            if self.auth is auth:
                self._granted(session, grant)
            else:  # a reload has replaced the users meanwhile
                self._decide(session)

    def refuse(self, session: Session, state: ClosedState = ClosedState.AUTHENTICATION_VIOLATION) -> None:
        """Refuse a client's credentials."""
        auth_violation(session, self.log, self.events(), state)

    def _denied(self, session: Session, why: Denied) -> None:
        if text := str(why):
            self.log.debug(f"{session} - {text}")
        self.refuse(session, why.state)
        account = self.accounts.get(why.account) if why.account else session.account
        events = self.events()
        if events and account:
            events.account_auth_error(session, account, why.reason)

    def _granted(self, session: Session, grant: Grant) -> None:
        """Register the client with its account, and resume it with the options of its CONNECT."""
        client, opts, log = session.client, session.opts, self.log
        if client is None:  # gone while its credentials were checked
            return
        # A client may not choose its account any more.
        if opts.new_account or opts.account:
            self.refuse(session)
            return
        account = self.accounts.get(grant.account)
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
        if events := self.events():
            for changed in {before, account}:
                events.conns_update(changed)
            events.connected(session)
        if grant.expires is not None:
            session.expire_after(grant.expires, log)
        if not session.connected:
            session.connected = True
            session.set_names()
        headers = opts.headers and not self.options().no_header_support
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
        max_subs, max_payload = limits(session, self.options())
        client.accept_connect(
            session.account,
            echo=opts.echo,
            verbose=opts.verbose,
            pedantic=opts.pedantic,
            headers=headers,
            no_responders=opts.no_responders,
            protocol=opts.protocol,
            connect_info=self.connect_info(session),
            greeting=b"+OK\r\n" if opts.verbose else b"",
            permissions=permissions_of(session, log),
            max_subs=max_subs,
            max_payload=max_payload,
        )

    def process_info(self, session: Session, arg: bytes) -> None:
        """Check a client's own INFO and ignore its contents; close the client when it is malformed."""
        if session.client is None:
            return
        try:
            unmarshal(arg, INFO_FIELDS, "Info")
        except JSONError as exc:
            self.log.error(f"{session} - {exc}")
            session.close(self.log, ClosedState.PROTOCOL_VIOLATION)
        else:
            session.client.resume()


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


def close_over_maximum(
    account: "Account", sessions: Mapping[int, Session], log: "Logger", *, elsewhere: int = 0
) -> list[Session]:
    """Close the connections beyond an account's limit, the latest ones; return the others, oldest first.

    `sessions` are all clients of the server, by id; `elsewhere` is the number of those on other servers, if
    these count.
    """
    here = [session for cid in account.clients if not (session := sessions[cid]).leaving]
    here.sort(key=lambda session: session.start)
    if not 0 <= account.max_connections < len(here) + elsewhere:
        return here
    allowed = max(account.max_connections - elsewhere, 0)
    for session in here[allowed:]:
        error = "maximum account active connections exceeded"
        session.rate_limit(log, "ERR", error)
        session.close(log, ClosedState.MAX_ACCOUNT_CONNECTIONS_EXCEEDED, error)
    return here[:allowed]


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
