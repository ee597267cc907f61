"""The top-level keys of a configuration and the options that they set (processConfigFileLine in opts.go)."""

from typing import Any

from gnats.conf import Token
from gnats.go.text import MAX_INT32, duration_of
from gnats.options.keys.accounts import accounts
from gnats.options.keys.authorization import authorization
from gnats.options.keys.cluster import cluster
from gnats.options.keys.gateway import gateway
from gnats.options.keys.jetstream import jetstream
from gnats.options.keys.leafnodes import leafnodes
from gnats.options.keys.mappings import mappings
from gnats.options.keys.resolver import operators, pinned_accounts, preload, resolver, trusted_keys
from gnats.options.keys.tls import tls
from gnats.options.keys.values import (
    ConfigError,
    Problems,
    Read,
    block,
    boolean,
    duration,
    integer,
    keys,
    listen,
    not_yet,
    not_yet_unless,
    read_block,
    seconds,
    show,
    string,
    string_or_strings,
    write_timeout,
)
from gnats.version import FEATURE_FLAGS, SETTABLE_FLAGS

_MIN_LAME_DUCK_DURATION = 30.0


def _store_dir(key: str, token: Token, problems: Problems) -> tuple[str, Token]:
    return string(key, token, problems), token


def _up_to(most: int, least: int | None = None) -> Read:
    def read(key: str, token: Token, problems: Problems) -> int:
        number = integer(key, token, problems)
        if number > most:
            raise ConfigError(token, f"{key} value is too big")
        if least is not None and number < least:
            raise ConfigError(token, f"{key} value is too small: at least {least}")
        return number

    return read


def _server_name(key: str, token: Token, problems: Problems) -> str:
    name = string(key, token, problems)
    if " " in name:
        raise ConfigError(token, f"{key}: server name cannot contain spaces")
    return name


def _trace(option: str) -> Read:
    def read(key: str, token: Token, problems: Problems) -> dict[str, bool]:
        on = boolean(key, token, problems)
        return {option: on, "trace": on}

    return read


def _max_connections(key: str, token: Token, problems: Problems) -> int:
    return integer(key, token, problems) or -1


def _lame_duck_duration(key: str, token: Token, problems: Problems) -> float:
    found = duration(key, token, problems)
    if found < _MIN_LAME_DUCK_DURATION:
        shown = duration_of(found)
        raise ConfigError(token, f"invalid {key} of {shown}, minimum is 30 seconds")
    return found


def _lame_duck_grace_period(key: str, token: Token, problems: Problems) -> float:
    found = duration(key, token, problems)
    if found < 0:
        raise ConfigError(token, f"invalid {key}, needs to be positive")
    return found


def _tags(key: str, token: Token, problems: Problems) -> tuple[str, ...]:
    tags = (tag.strip().lower() for tag in string_or_strings(key, token, problems))
    return tuple(dict.fromkeys(tag for tag in tags if tag))


def _names(key: str, token: Token, problems: Problems) -> dict[str, str]:
    return {name: string(f"{key} {name}", each, problems) for name, each in block(key, token).items()}


def _feature_flags(key: str, token: Token, problems: Problems) -> dict[str, bool]:
    flags = {name: boolean(f"{key} {name}", each, problems) for name, each in block(key, token).items()}
    for name, value in flags.items():
        if name not in SETTABLE_FLAGS and FEATURE_FLAGS.get(name, value) is not value:
            raise ConfigError(token, f"{key} {name}: {str(value).lower()} is not supported yet")
    return flags


def _io_threads(key: str, token: Token, problems: Problems) -> int | str:
    if token.value != "auto" and type(token.value) is not int:
        raise ConfigError(token, f'{key} takes a number or "auto", not {show(token.value)}')
    return token.value if isinstance(token.value, int) else "auto"


def _ocsp(key: str, token: Token, problems: Problems) -> dict[str, Any]:
    if isinstance(token.value, dict):
        off = keys(("", not_yet_unless("never"), "mode"), ("", not_yet_unless("none"), "type"))
        return read_block(off, key, token, problems) if token.value else not_yet(key, token, problems)
    return not_yet(key, token, problems) if token.value is not False else {}


SERVER = keys(
    ("", listen("host", "port"), "listen"),
    ("host", string, "host net"),
    ("port", integer, "port"),
    ("client_advertise", string, "client_advertise"),
    ("server_name", _server_name, "server_name"),
    ("debug", boolean, "debug"),
    ("trace", boolean, "trace"),
    ("", _trace("trace_verbose"), "trace_verbose"),
    ("", _trace("trace_headers"), "trace_headers"),
    ("max_traced_msg_len", integer, "max_traced_msg_len"),
    ("logtime", boolean, "logtime"),
    ("logtime_utc", boolean, "logtime_utc"),
    ("log_file", string, "log_file logfile"),
    ("log_size_limit", integer, "log_size_limit logfile_size_limit"),
    ("log_max_num", integer, "log_max_num logfile_max_num"),
    ("syslog", boolean, "syslog"),
    ("remote_syslog", string, "remote_syslog"),
    ("connect_error_reports", integer, "connect_error_reports"),
    ("reconnect_error_reports", integer, "reconnect_error_reports"),
    ("pid_file", string, "pid_file pidfile"),
    ("ports_file_dir", string, "ports_file_dir"),
    ("prof_port", integer, "prof_port"),
    ("prof_block_rate", integer, "prof_block_rate"),
    ("", listen("http_host", "http_port"), "http"),
    ("http_port", integer, "http_port monitor_port"),
    ("", listen("https_host", "https_port"), "https"),
    ("https_port", integer, "https_port"),
    ("http_base_path", string, "http_base_path"),
    ("tls", tls, "tls"),
    ("allow_non_tls", boolean, "allow_non_tls"),
    ("authorization", authorization, "authorization"),
    ("no_auth_user", string, "no_auth_user"),
    ("default_sentinel", string, "default_sentinel"),
    ("accounts", accounts, "accounts"),
    ("mappings", mappings, "mappings maps"),
    ("system_account", string, "system_account system"),
    ("no_system_account", boolean, "no_system_account no_system no_sys_acc"),
    ("operators", operators, "operator operators root roots root_operator root_operators"),
    ("trusted_keys", trusted_keys, "trusted_keys trusted"),
    ("resolver", resolver, "resolver account_resolver accounts_resolver"),
    ("resolver_tls", tls, "resolver_tls"),
    ("resolver_preload", preload, "resolver_preload"),
    ("resolver_pinned_accounts", pinned_accounts, "resolver_pinned_accounts"),
    ("max_conn", _max_connections, "max_connections max_conn"),
    ("max_subs", integer, "max_subscriptions max_subs"),
    ("max_sub_tokens", _up_to(255, 1), "max_sub_tokens max_subscription_tokens"),
    ("max_control_line", _up_to(MAX_INT32), "max_control_line"),
    ("max_payload", _up_to(MAX_INT32), "max_payload"),
    ("max_pending", integer, "max_pending"),
    ("max_closed_clients", integer, "max_closed_clients"),
    ("write_deadline", seconds, "write_deadline"),
    ("write_timeout", write_timeout, "write_timeout"),
    ("ping_interval", seconds, "ping_interval"),
    ("ping_max", integer, "ping_max"),
    ("no_sublist_cache", boolean, "no_sublist_cache disable_sublist_cache"),
    ("no_fast_producer_stall", boolean, "no_fast_producer_stall"),
    ("no_header_support", boolean, "no_header_support"),
    ("lame_duck_duration", _lame_duck_duration, "lame_duck_duration"),
    ("lame_duck_grace_period", _lame_duck_grace_period, "lame_duck_grace_period"),
    ("server_tags", _tags, "server_tags"),
    ("server_metadata", _names, "server_metadata"),
    ("feature_flags", _feature_flags, "feature_flags"),
    ("io_threads", _io_threads, "io_threads"),
    ("", _ocsp, "ocsp ocsp_cache"),
    ("", not_yet_unless(False), "proxy_protocol"),
    ("jetstream", jetstream, "jetstream"),
    ("store_dir", _store_dir, "store_dir storedir"),
    ("cluster", cluster, "cluster"),
    ("gateway", gateway, "gateway"),
    ("leafnodes", leafnodes, "leafnodes leaf"),
    ("default_js_domain", _names, "default_js_domain"),
    ("", not_yet, "websocket ws mqtt proxies"),
)
