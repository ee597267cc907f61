"""What a client's CONNECT and INFO lead to (processConnect and processInfo in client.go)."""

import re
from typing import TYPE_CHECKING

from gnats.auth import auth_required, check_authentication
from gnats.core.permissions import Permissions, compile_permissions
from gnats.gojson import JSONError, unmarshal
from gnats.info import INFO_FIELDS
from gnats.opts import Options
from gnats.reasons import ClosedState
from gnats.session import Session

if TYPE_CHECKING:
    from gnats.server import Server

CLIENT_PROTO_INFO = 1
"""The protocol from which on a client takes INFO at any time."""

_SECRET = re.compile(
    r'("(?:(?:auth_token|pass)[^"]*|proxy_sig|nkey|sig)"\s*:\s*)(?:"(?:\\.|[^"\\])*"?|[^",\s}]+)',
    re.IGNORECASE,
)


def remove_secrets_from_trace(connect: str) -> str:
    """A CONNECT's argument without passwords, tokens, keys and signatures."""
    return _SECRET.sub(r'\1"[REDACTED]"', connect)


def process_connect(server: "Server", session: Session, arg: bytes) -> None:
    """Answer a CONNECT: the client goes on with the options it asked for, or is closed.

    A second CONNECT changes the options it names and authenticates again; the data plane then drops the
    subscriptions made so far.
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
    # Accounts are not for a client to choose any more: asking for one is refused.
    if not check_authentication(server.opts, opts) or opts.new_account or opts.account:
        auth_violation(server, session)
        return
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
    permissions = user_permissions(server.opts)
    if permissions is not None:
        for error in permissions.errors:
            log.error(f"{session} - {error}")
    client.connected(
        session.account,
        echo=opts.echo,
        verbose=opts.verbose,
        pedantic=opts.pedantic,
        headers=headers,
        no_responders=opts.no_responders,
        protocol=opts.protocol,
        connect_info=server.client_info(session, connect_info=True, remote_account=session.account.name),
        greeting=b"+OK\r\n" if opts.verbose else b"",
        permissions=permissions,
    )


def user_permissions(opts: Options) -> Permissions | None:
    """What the single user or the token's owner may do; None for everything."""
    if opts.permissions is None or not auth_required(opts):
        return None
    return compile_permissions(opts.permissions)


def auth_violation(server: "Server", session: Session) -> None:
    """Refuse a client's credentials."""
    user = session.auth_user()
    server.log.error(f"{session} - authentication error" + (f" - {user}" if user else ""))
    session.close(server.log, ClosedState.AUTHENTICATION_VIOLATION, "Authorization Violation")


def process_info(server: "Server", session: Session, arg: bytes) -> None:
    """A client's own INFO: it must be one, and is of no use otherwise."""
    if session.client is None:
        return
    try:
        unmarshal(arg, INFO_FIELDS, "Info")
    except JSONError as exc:
        server.log.error(f"{session} - {exc}")
        session.close(server.log, ClosedState.PROTOCOL_VIOLATION)
    else:
        session.client.resume()
