"""Reading the configuration again while the server runs (reload.go).

What the new options change is either put into force, and logged, or refused; then nothing changes at all. All
that can fail is done before anything is put into force.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from gnats.auth import Denied, Grant, configure_authorization
from gnats.connect import auth_violation, limits, permissions_of
from gnats.errors import OptionError, ServerError
from gnats.gofmt import duration
from gnats.logger import Logger, configure_logger
from gnats.opts import Options, parse_host_port
from gnats.reasons import ClosedState

if TYPE_CHECKING:
    from gnats.server import Server
    from gnats.session import Session

_LOG = ("debug", "trace", "logtime", "logtime_utc", "log_file", "syslog", "remote_syslog")
_AUTH = (
    "username",
    "password",
    "authorization",
    "permissions",
    "users",
    "nkeys",
    "no_auth_user",
    "auth_callout",
    "accounts",
    "mappings",
    "tls",
)
_LIMITS = ("max_control_line", "max_payload", "ping_interval", "ping_max")
_SILENT = frozenset(
    ("config_digest", "config_file", "resolver_preload", "permissions", "auth_callout", "mappings")
)

_SLICE = 256
"""Clients looked at before others get their turn."""

_SECONDS = frozenset(("write_deadline", "ping_interval", "lame_duck_duration", "lame_duck_grace_period"))

_WORDS: dict[str, Callable[[Any], str]] = {
    "username": lambda value: "authorization username",
    "password": lambda value: "authorization password",
    "authorization": lambda value: "authorization token",
    "auth_timeout": lambda value: f"authorization timeout = {value:g}",
    "users": lambda value: "authorization users",
    "nkeys": lambda value: "authorization nkey users",
    "accounts": lambda value: "accounts",
    "server_tags": lambda value: "tags",
    "server_metadata": lambda value: "metadata",
    "tls": lambda value: f"tls = {'enabled' if value else 'disabled'}",
    "max_conn": lambda value: f"max_connections = {value}",
    "no_fast_producer_stall": lambda value: f"fast producers will {'not ' if value else ''}be stalled",
}
"""What the log says about an option when it is not just its name and value."""

RELOADABLE = frozenset(
    (
        *_LOG,
        *_AUTH,
        *_LIMITS,
        *_SILENT,
        "trace_verbose",
        "trace_headers",
        "max_traced_msg_len",
        "auth_timeout",
        "server_tags",
        "server_metadata",
        "max_conn",
        "write_deadline",
        "pid_file",
        "ports_file_dir",
        "client_advertise",
        "connect_error_reports",
        "reconnect_error_reports",
        "default_sentinel",
        "resolver_tls",
        "prof_block_rate",
        "no_fast_producer_stall",
    )
)

_GO_NAMES = {
    "http_host": "HTTPHost",
    "http_port": "HTTPPort",
    "https_host": "HTTPSHost",
    "https_port": "HTTPSPort",
    "http_base_path": "HTTPBasePath",
    "allow_non_tls": "AllowNonTLS",
    "resolver": "AccountResolver",
    "no_sublist_cache": "NoSublistCache",
}


def go_name(option: str) -> str:
    """An option's name in nats-server's errors."""
    return _GO_NAMES.get(option) or "".join(word.capitalize() for word in option.split("_"))


def diff_options(old: Options, new: Options) -> list[str]:
    """The names of the options that differ.

    Raises OptionError when one of them cannot change while the server runs.
    """
    changed = [
        option.name for option in fields(old) if getattr(old, option.name) != getattr(new, option.name)
    ]
    for name in changed:
        before, after = getattr(old, name), getattr(new, name)
        refused = name not in RELOADABLE
        if name == "no_auth_user":  # it may only go, and with its user
            refused = bool(after) or any(user.username == before for user in new.users)
        elif name == "system_account":  # the default may be named or not
            refused = {before, after} != {"", "$SYS"}
        if refused:
            was, will = _show(name, before), _show(name, after)
            raise OptionError(f"config reload not supported for {go_name(name)}: old={was}, new={will}")
    return changed


def _show(name: str, value: object) -> str:
    if name in _SECONDS and isinstance(value, float):
        return duration(round(value * 1e9))
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else "..."


def read_options(server: "Server") -> Options:
    """A server's options as they would be if it started now.

    Raises OptionError.
    """
    if server.read_options:
        return server.read_options()
    if not server.opts.config_file:
        raise OptionError("can only reload config when a file is provided using -c or --config")
    from gnats.flags import configure_options

    opts = configure_options(["-c", server.opts.config_file]).options
    return replace(opts, host=server.opts.host, port=server.opts.port, io_threads=server.opts.io_threads)


async def reload(server: "Server", new: Options) -> None:
    """Put these options, which are a baseline(), into force.

    Raises OptionError or ServerError, and the old ones stay.
    """
    old = server.opts
    if not new.port:
        new = replace(new, port=old.port)
    changed = diff_options(old, new)
    if new.client_advertise:
        parse_host_port(new.client_advertise, server.port)
    log = _new_log(server, new, changed)
    auth = configure_authorization(server, new)
    if "tls" in changed:
        server.replace_tls(new)
    try:
        server.accounts.configure(new)
    except OptionError:
        if "tls" in changed:
            server.replace_tls(old)
        raise
    if server.trust:
        await server.trust.reload(new)
    server.opts = new
    _apply(server, changed)
    if log:
        server.log.become(log)
    for name in changed:
        if name not in _SILENT:
            words = _WORDS.get(name)
            value = getattr(new, name)
            text = words(value) if words else f"{name} = {_show(name, value)}"
            server.log.notice(f"Reloaded: {text}")
    if not set(changed).isdisjoint(_AUTH):
        server.auth = auth
        if not server.trust:  # who has told the clients already
            await _reload_authorization(server)
    server.update_info()
    _reload_limits(server, changed)
    server.config_time = time.time_ns()
    digest = f"({new.config_digest})" if new.config_digest else ""
    server.log.notice(f"Reloaded server configuration {digest}")


def _new_log(server: "Server", new: Options, changed: list[str]) -> Logger | None:
    if not server.owns_log or set(changed).isdisjoint(_LOG):
        return None
    return configure_logger(new)


def _apply(server: "Server", changed: list[str]) -> None:
    """What has no further part than to be told to somebody."""
    opts, state, log = server.opts, server.state, server.log
    log.debug_on, log.trace_on = opts.debug, opts.trace
    state.debug, state.trace = opts.debug, opts.trace
    state.trace_verbose, state.trace_headers = opts.trace_verbose, opts.trace_headers
    state.max_traced_msg_len = opts.max_traced_msg_len
    state.no_fast_producer_stall = opts.no_fast_producer_stall
    if "pid_file" in changed and opts.pid_file:
        from gnats.server import write_pid_file

        try:
            write_pid_file(opts.pid_file)
        except ServerError as exc:  # the new file is no reason to stop
            log.error(str(exc))
    if "ports_file_dir" in changed:
        server.update_ports_file()
    try:
        server.reload_endpoints()
    except ServerError as exc:
        log.error(str(exc))
    if ("server_tags" in changed or "server_metadata" in changed) and server.events:
        server.events.statsz_update()
    if "max_conn" in changed:
        for session in list(server.clients.values())[max(opts.max_conn, 0) :]:
            error = "maximum connections exceeded"
            session.close(log, ClosedState.MAX_CONNECTIONS_EXCEEDED, error)
            session.rate_limit(log, "ERR", error)


def _reload_limits(server: "Server", changed: list[str]) -> None:
    if set(changed).isdisjoint((*_LIMITS, "accounts")):
        return
    opts = server.opts
    for session in server.clients.values():
        if session.client:
            max_subs, max_payload = limits(server, session)
            session.client.set_limits(
                max_control_line=opts.max_control_line,
                max_payload=max_payload,
                max_subs=max_subs,
                ping_interval=opts.ping_interval,
                ping_max=opts.ping_max,
            )


async def _reload_authorization(server: "Server") -> None:
    """Clients that may not be here any more go, the others get the permissions they have now."""
    for number, session in enumerate(list(server.clients.values())):
        if session.connected and not session.grant.pub_key:
            await _recheck(server, session)
        if number % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)


async def _recheck(server: "Server", session: "Session") -> None:
    if _has_moved(server, session):
        session.close(server.log, ClosedState.CLIENT_CLOSED)
        return
    try:
        decision = server.auth.recheck(session)
        grant = decision if isinstance(decision, Grant) else await decision
    except Denied as exc:
        auth_violation(server, session, exc.state)
        return
    before, session.grant = session.grant.permissions, grant
    if grant.permissions != before and session.client:
        session.client.set_permissions(permissions_of(server, session))


def _has_moved(server: "Server", session: "Session") -> bool:
    """Whether the client's user is another account's now, or no more (clientHasMovedToDifferentAccount)."""
    user = session.grant.user
    if server.lookup_account(session.account.name) is not session.account:
        return True
    if user is None:
        return False
    now = server.auth.user_like(user)
    return now is None or (now.account or "$G") != session.account.name
