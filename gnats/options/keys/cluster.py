"""The cluster block (parseCluster in opts.go), and the compression between servers (parseCompression)."""

from typing import Any

from gnats.conf import Token
from gnats.errors import OptionError
from gnats.go.text import SECOND, parse_duration
from gnats.options.keys.authorization import authorization
from gnats.options.keys.permissions import permissions
from gnats.options.keys.tls import link_tls
from gnats.options.keys.urls import server_urls
from gnats.options.keys.values import (
    ConfigError,
    Problems,
    Read,
    array,
    boolean,
    integer,
    keys,
    listen,
    read_block,
    seconds,
    show,
    string,
    string_or_strings,
    strings,
    write_timeout,
)
from gnats.options.values.auth import Permissions
from gnats.options.values.cluster import (
    MAX_PING_INTERVAL,
    OFF,
    S2_FAST,
    ClusterOptions,
    Compression,
    RoutePermissions,
    check_route_permissions,
    name_fault,
)


def cluster(key: str, token: Token, problems: Problems) -> ClusterOptions:
    """Read the cluster block of a server; warn of routes that are not dialled."""
    options = cluster_options(key, token, problems)
    if options.routes and not options.port:
        problems.misuse(key, token, "routes without a port to listen on are not dialled")
    return options


def cluster_options(key: str, token: Token, problems: Problems) -> ClusterOptions:
    """Read a cluster block."""
    found: dict[str, Any] = read_block(_CLUSTER, key, token, problems)
    if old := found.pop("old_permissions", None):
        found.setdefault("permissions", old)  # those of the block itself come before them
    return ClusterOptions(**found)


def _name(key: str, token: Token, problems: Problems) -> str:
    name = string(key, token, problems)
    if fault := name_fault(name):
        raise ConfigError(token, fault)
    return name


def _authorization(key: str, token: Token, problems: Problems) -> dict[str, Any]:
    auth = authorization(key, token, problems)
    for what, unwanted in (
        ("does not allow multiple users", auth.users is not None),
        ("does not support tokens", auth.secret),
        ("does not support callouts", auth.callout),
    ):
        if unwanted:
            raise ConfigError(token, f"Cluster authorization {what}")
    found = {"username": auth.username, "password": auth.password, "auth_timeout": auth.timeout}
    if not auth.permissions:
        return found
    old = _checked(auth.permissions, token)
    problems.misuse(key, token, 'setting "permissions" within cluster authorization block is deprecated')
    return found | {"old_permissions": old}


def _permissions(key: str, token: Token, problems: Problems) -> RoutePermissions:
    found = permissions(key, token, problems)
    if found.response:
        raise ConfigError(token, "Cluster permissions do not support dynamic responses")
    return _checked(found, token)


def _checked(found: Permissions, token: Token) -> RoutePermissions:
    of_routes = RoutePermissions(found.publish, found.subscribe)
    try:
        check_route_permissions(of_routes)
    except OptionError as exc:
        raise ConfigError(token, str(exc)) from None
    return of_routes


def compression(on: str) -> Read:
    """Make a reader of a mode, a switch (`on` is its mode), or a block with a mode and round trip times.

    The start checks the mode.
    """

    def read(key: str, token: Token, problems: Problems) -> Compression:
        value = token.value
        if isinstance(value, str):
            return Compression(value)
        if isinstance(value, bool):
            return Compression(on if value else OFF)
        if not isinstance(value, dict):
            raise ConfigError(token, f"{key} takes true, false, a mode or a block, not {show(value)}")
        return Compression(**read_block(_COMPRESSION, key, token, problems))

    return read


def _thresholds(key: str, token: Token, problems: Problems) -> tuple[float, ...]:
    found = []
    for text, item in zip(strings(key, token, problems), array(key, token), strict=True):
        try:
            found.append(parse_duration(text) / SECOND)
        except ValueError as exc:
            raise ConfigError(item, str(exc)) from None
    return tuple(found)


def _ping_interval(key: str, token: Token, problems: Problems) -> float:
    interval = seconds(key, token, problems)
    if interval > MAX_PING_INTERVAL:
        problems.warning(token, "Cluster 'ping_interval' will reset to 30s which is the max for routes")
    return interval


_COMPRESSION = keys(
    ("mode", string, "mode"),
    ("rtt_thresholds", _thresholds, "rtt_thresholds thresholds rtts rtt"),
)
_CLUSTER = keys(
    ("name", _name, "name"),
    ("", listen("host", "port"), "listen"),
    ("host", string, "host net"),
    ("port", integer, "port"),
    ("", _authorization, "authorization"),
    ("routes", server_urls("route"), "routes"),
    ("tls", link_tls, "tls"),
    ("advertise", string, "cluster_advertise advertise"),
    ("no_advertise", boolean, "no_advertise"),
    ("connect_retries", integer, "connect_retries"),
    ("connect_backoff", boolean, "connect_backoff"),
    ("permissions", _permissions, "permissions"),
    ("pool_size", integer, "pool_size"),
    ("accounts", string_or_strings, "accounts"),
    ("compression", compression(S2_FAST), "compression"),
    ("ping_interval", _ping_interval, "ping_interval"),
    ("ping_max", integer, "ping_max"),
    ("write_deadline", seconds, "write_deadline"),
    ("write_timeout", write_timeout, "write_timeout"),
)
