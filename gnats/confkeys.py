"""The keys of the configuration file and the options they set (processConfigFileLine in opts.go)."""

from collections.abc import Callable

from gnats.conf import Token
from gnats.errors import OptionError
from gnats.gofmt import parse_duration, quote
from gnats.opts import Options, split_host_port

_MAX_AUTH_TIMEOUT = 60.0

Scalar = bool | int | float | str

_Setter = Callable[[Options, Scalar, list[str]], None]


def apply_config(opts: Options, entries: dict[str, Token], path: str) -> list[str]:
    """Set the options that the entries name; return warnings.

    Raises OptionError, one line with file and line.
    """
    warnings: list[str] = []
    if not entries:
        warnings.append(f"{path}: config has no values or is empty")
    for key, token in entries.items():
        _apply(opts, key, token, _KEYS, warnings)
    return warnings


def _apply(opts: Options, key: str, token: Token, keys: dict[str, _Setter], warnings: list[str]) -> None:
    name, where = key.lower(), f"{token.file}:{token.line}:{token.pos}"
    try:
        if keys is _KEYS and name == "authorization":
            if not isinstance(token.value, dict):
                raise ValueError("expected a block: authorization { ... }")
            for inner, value in token.value.items():
                _apply(opts, inner, value, _AUTHORIZATION, warnings)
            if (opts.username or opts.password) and opts.authorization:
                raise ValueError("Cannot have a user/pass and token")
        elif name in (_NOT_YET if keys is _KEYS else _AUTHORIZATION_NOT_YET):
            raise ValueError(f"key {quote(key)} is not supported yet")
        elif name not in keys:
            if not token.used_variable:
                raise ValueError(f"unknown field {quote(key)}")
        elif not isinstance(token.value, Scalar):
            raise ValueError(f"{key} takes a value, not {_KINDS[type(token.value).__name__]}")
        else:
            noted: list[str] = []
            keys[name](opts, token.value, noted)
            warnings += [f"{where}: invalid use of field {quote(key)}: {note}" for note in noted]
    except ValueError as exc:
        raise OptionError(f"{where}: {exc}") from None


def _typed(option: str, kind: type, what: str) -> _Setter:
    def set_option(opts: Options, value: Scalar, warnings: list[str]) -> None:
        if type(value) is not kind:
            raise ValueError(f"{option} takes {what}, not {_show(value)}")
        setattr(opts, option, value)

    return set_option


def _string(option: str) -> _Setter:
    return _typed(option, str, "a string")


def _boolean(option: str) -> _Setter:
    return _typed(option, bool, "true or false")


def _integer(option: str) -> _Setter:
    return _typed(option, int, "a number")


def _duration(option: str) -> _Setter:
    def set_option(opts: Options, value: Scalar, warnings: list[str]) -> None:
        if isinstance(value, str):
            setattr(opts, option, parse_duration(value) / 1e9)
        elif isinstance(value, int) and not isinstance(value, bool):
            warnings.append(f"{option} should be converted to a duration")
            setattr(opts, option, float(value))
        else:
            raise ValueError(f'{option} takes a duration like "10s", not {_show(value)}')

    return set_option


def _listen(host: str, port: str) -> _Setter:
    def set_options(opts: Options, value: Scalar, warnings: list[str]) -> None:
        if isinstance(value, int) and not isinstance(value, bool):
            setattr(opts, port, value)
            return
        try:
            name, number = split_host_port(value if isinstance(value, str) else "")
            setattr(opts, port, int(number))
        except (OptionError, ValueError):
            raise ValueError(f"expected a port or host:port, got {_show(value)}") from None
        setattr(opts, host, name)

    return set_options


def _max_connections(opts: Options, value: Scalar, warnings: list[str]) -> None:
    _integer("max_conn")(opts, value, warnings)
    opts.max_conn = opts.max_conn or -1


def _auth_timeout(opts: Options, value: Scalar, warnings: list[str]) -> None:
    if isinstance(value, bool):
        raise ValueError(f"timeout takes seconds or a duration, not {_show(value)}")
    opts.auth_timeout = parse_duration(value) / 1e9 if isinstance(value, str) else float(value)
    if opts.auth_timeout > _MAX_AUTH_TIMEOUT:
        warnings.append(
            f"timeout of {value} ({opts.auth_timeout:f} seconds) is high, consider less than 60 seconds"
            " (a bare 1m is a million: quote durations)"
        )


def _io_threads(opts: Options, value: Scalar, warnings: list[str]) -> None:
    if value != "auto" and type(value) is not int:
        raise ValueError(f'io_threads takes a number or "auto", not {_show(value)}')
    opts.io_threads = value


_KINDS = {"dict": "a block", "list": "an array", "datetime": "a date"}


def _show(value: Scalar) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return quote(value) if isinstance(value, str) else str(value)


_KEYS: dict[str, _Setter] = {
    "listen": _listen("host", "port"),
    "host": _string("host"),
    "net": _string("host"),
    "port": _integer("port"),
    "client_advertise": _string("client_advertise"),
    "server_name": _string("server_name"),
    "debug": _boolean("debug"),
    "trace": _boolean("trace"),
    "logtime": _boolean("logtime"),
    "logtime_utc": _boolean("logtime_utc"),
    "log_file": _string("log_file"),
    "logfile": _string("log_file"),
    "pid_file": _string("pid_file"),
    "pidfile": _string("pid_file"),
    "ports_file_dir": _string("ports_file_dir"),
    "http": _listen("http_host", "http_port"),
    "http_port": _integer("http_port"),
    "monitor_port": _integer("http_port"),
    "max_connections": _max_connections,
    "max_conn": _max_connections,
    "max_subscriptions": _integer("max_subs"),
    "max_subs": _integer("max_subs"),
    "max_control_line": _integer("max_control_line"),
    "max_payload": _integer("max_payload"),
    "max_pending": _integer("max_pending"),
    "max_closed_clients": _integer("max_closed_clients"),
    "write_deadline": _duration("write_deadline"),
    "ping_interval": _duration("ping_interval"),
    "ping_max": _integer("ping_max"),
    "no_fast_producer_stall": _boolean("no_fast_producer_stall"),
    "no_header_support": _boolean("no_header_support"),
    "io_threads": _io_threads,
}

_AUTHORIZATION: dict[str, _Setter] = {
    "user": _string("username"),
    "username": _string("username"),
    "pass": _string("password"),
    "password": _string("password"),
    "token": _string("authorization"),
    "timeout": _auth_timeout,
}

_AUTHORIZATION_NOT_YET_NAMES = """
    users default_permission default_permissions permissions auth_callout auth_hook proxy_required
"""
_AUTHORIZATION_NOT_YET = frozenset(_AUTHORIZATION_NOT_YET_NAMES.split())

_NOT_YET_NAMES = """
    trace_verbose trace_headers log_size_limit logfile_size_limit log_max_num logfile_max_num
    max_traced_msg_len syslog remote_syslog prof_port prof_block_rate https_port https http_base_path
    max_sub_tokens max_subscription_tokens write_timeout lame_duck_duration lame_duck_grace_period
    connect_error_reports reconnect_error_reports disable_sublist_cache no_sublist_cache proxy_protocol
    proxies no_auth_user default_sentinel accounts mappings maps system_account system no_system_account
    no_system no_sys_acc operator operators root roots root_operator root_operators trusted trusted_keys
    resolver account_resolver accounts_resolver resolver_tls resolver_preload resolver_pinned_accounts
    tls allow_non_tls ocsp ocsp_cache cluster gateway leafnodes leaf jetstream websocket ws mqtt
    store_dir storedir default_js_domain server_tags server_metadata feature_flags
"""
_NOT_YET = frozenset(_NOT_YET_NAMES.split())
