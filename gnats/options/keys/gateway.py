"""The gateway block (parseGateway in opts.go), and the other clusters in it (parseGateways)."""

from dataclasses import replace
from typing import Any

from gnats.conf import Token
from gnats.go.url import URL
from gnats.options.keys.authorization import authorization
from gnats.options.keys.tls import link_tls
from gnats.options.keys.urls import server_url, server_urls
from gnats.options.keys.values import (
    ConfigError,
    Problems,
    array,
    boolean,
    integer,
    keys,
    listen,
    read_block,
    seconds,
    string,
    write_timeout,
)
from gnats.options.values.cluster import NO_CLUSTER, RESERVED
from gnats.options.values.gateway import GatewayOptions, RemoteGatewayOptions
from gnats.options.values.tls import TLSOptions


def gateway(key: str, token: Token, problems: Problems) -> GatewayOptions:
    """Read a gateway block; warn of gateways that are not dialled."""
    options = GatewayOptions(**read_block(_GATEWAY, key, token, problems))
    if options.gateways and not options.configured:
        problems.misuse(key, token, "gateways without a name and a port to listen on are not dialled")
    return options


def _name(key: str, token: Token, problems: Problems) -> str:
    name = string(key, token, problems)
    if " " in name:
        raise ConfigError(token, "gateway name cannot contain spaces")
    if name == NO_CLUSTER:
        raise ConfigError(token, RESERVED)
    return name


def _authorization(key: str, token: Token, problems: Problems) -> dict[str, Any]:
    auth = authorization(key, token, problems)
    for what, unwanted in (
        ("does not allow multiple users", auth.users is not None),
        ("does not support tokens", auth.secret),
        ("does not support callouts", auth.callout),
    ):
        if unwanted:
            raise ConfigError(token, f"Gateway authorization {what}")
    if auth.permissions:
        problems.misuse(key, token, "a gateway has no permissions")
    return {"username": auth.username, "password": auth.password, "auth_timeout": auth.timeout}


def _gateways(key: str, token: Token, problems: Problems) -> tuple[RemoteGatewayOptions, ...]:
    remotes = []
    for item in array(key, token):
        try:
            found: dict[str, Any] = read_block(_REMOTE, "a gateway", item, problems)
        except ConfigError as exc:
            problems.error(exc.token, str(exc))
            continue
        url: tuple[URL, ...] = found.pop("url", ())
        remotes.append(RemoteGatewayOptions(**found | {"urls": found.get("urls", ()) + url}))
    return tuple(remotes)


def _url(key: str, token: Token, problems: Problems) -> tuple[URL, ...]:
    return (server_url("gateway", string(key, token, problems), token),)


def _remote_tls(key: str, token: Token, problems: Problems) -> TLSOptions:
    tls = link_tls(key, token, problems)
    names = token.value if isinstance(token.value, dict) else ()
    return tls if any(name.lower() == "timeout" for name in names) else replace(tls, timeout=0.0)


_REMOTE = keys(
    ("name", string, "name"),
    ("url", _url, "url"),
    ("urls", server_urls("gateway"), "urls"),
    ("tls", _remote_tls, "tls"),
)
_GATEWAY = keys(
    ("name", _name, "name"),
    ("", listen("host", "port"), "listen"),
    ("host", string, "host net"),
    ("port", integer, "port"),
    ("", _authorization, "authorization"),
    ("tls", link_tls, "tls"),
    ("advertise", string, "advertise"),
    ("connect_retries", integer, "connect_retries"),
    ("connect_backoff", boolean, "connect_backoff"),
    ("gateways", _gateways, "gateways"),
    ("reject_unknown", boolean, "reject_unknown reject_unknown_cluster"),
    ("write_deadline", seconds, "write_deadline"),
    ("write_timeout", write_timeout, "write_timeout"),
)
