"""The leafnodes block (parseLeafNodes in opts.go), and its remotes (parseRemoteLeafNodes)."""

import os
import re
from typing import Any

from gnats.conf import Token
from gnats.errors import OptionError
from gnats.go.text import quote
from gnats.go.url import URL
from gnats.options.keys.authorization import auth_timeout
from gnats.options.keys.cluster import compression
from gnats.options.keys.tls import proxy_tls, tls
from gnats.options.keys.urls import server_url, server_urls
from gnats.options.keys.values import (
    ConfigError,
    Problems,
    Read,
    array,
    boolean,
    integer,
    is_public_nkey,
    keys,
    listen,
    not_yet_unless,
    read_block,
    seconds,
    show,
    string,
    string_or_strings,
    write_timeout,
)
from gnats.options.values.auth import User, check_permission_subjects
from gnats.options.values.cluster import S2_AUTO
from gnats.options.values.leafnodes import (
    NO_WEBSOCKET,
    LeafNodeOptions,
    ProxyOptions,
    RemoteLeafOptions,
    check_min_version,
    is_websocket,
)

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))", re.ASCII)


def leafnodes(key: str, token: Token, problems: Problems) -> LeafNodeOptions:
    """Read a leafnodes block."""
    return LeafNodeOptions(**read_block(_LEAFNODES, key, token, problems))


def _authorization(key: str, token: Token, problems: Problems) -> dict[str, Any]:
    found: dict[str, Any] = read_block(_AUTHORIZATION, key, token, problems)
    try:
        LeafNodeOptions(**found).check_authorization()
    except OptionError as exc:
        raise ConfigError(token, str(exc)) from None
    return found


def _nkey(key: str, token: Token, problems: Problems) -> str:
    nkey = string(key, token, problems)
    if not is_public_nkey(nkey, "U"):
        raise ConfigError(token, "Not a valid public nkey for leafnode authorization")
    return nkey


def _users(key: str, token: Token, problems: Problems) -> tuple[User, ...]:
    found = []
    for item in array(key, token):
        try:
            user = {"username": ""} | read_block(_USER, "a user", item, problems)
        except ConfigError as exc:
            problems.error(exc.token, str(exc))
            continue
        found.append(User(**user))
    return tuple(found)


def _min_version(key: str, token: Token, problems: Problems) -> str:
    version = string(key, token, problems)
    try:
        check_min_version(version or "none")
    except OptionError as exc:
        raise ConfigError(token, str(exc)) from None
    return version


def _reconnect(key: str, token: Token, problems: Problems) -> float:
    return seconds("reconnect", token, problems)


def _remotes(key: str, token: Token, problems: Problems) -> tuple[RemoteLeafOptions, ...]:
    remotes: dict[object, RemoteLeafOptions] = {}
    for item in array(key, token):
        before = len(problems.errors)
        try:
            remote = _remote(item, problems)
        except ConfigError as exc:
            problems.error(exc.token, str(exc))
            continue
        if len(problems.errors) > before:
            continue
        if remote.key in remotes:
            problems.error(item, f"duplicate remote {remote}")
        if not remote.urls:
            problems.misuse(key, item, "a remote without URLs is not dialled")
        remotes[remote.key] = remote
    return tuple(remotes.values())


def _remote(token: Token, problems: Problems) -> RemoteLeafOptions:
    found: dict[str, Any] = read_block(_REMOTE, "a remote", token, problems)
    proxy_token: Token = found.pop("proxy_token", token)
    remote = RemoteLeafOptions(**found)
    if remote.credentials and remote.nkey:
        raise ConfigError(token, "Remote leafnode can not have both creds and nkey defined")
    try:
        for warning in remote.proxy_warnings():
            problems.warning(proxy_token, warning)
    except OptionError as exc:
        raise ConfigError(proxy_token, str(exc)) from None
    return remote


def _urls(key: str, token: Token, problems: Problems) -> tuple[URL, ...]:
    urls: tuple[URL, ...]
    if isinstance(token.value, str):
        urls = (server_url("leafnode", token.value, token),)
    elif isinstance(token.value, list):
        urls = _URLS(key, token, problems)
    else:
        raise ConfigError(token, f"{key} takes a URL or an array of URLs, not {show(token.value)}")
    for url in urls:
        if is_websocket(url):
            raise ConfigError(token, f"{key} {url.redacted()}: {NO_WEBSOCKET}")
        if not url.host:
            problems.misuse(key, token, f"the URL {quote(url.redacted())} has no host: nats://host:port")
    return urls


def _credentials(key: str, token: Token, problems: Problems) -> str:
    """Read a path; ~ and variables of the environment are replaced (expandPath)."""
    path = _VARIABLE.sub(lambda found: os.environ.get(found[1] or found[2], ""), string(key, token, problems))
    if not path.startswith("~"):
        return path
    home = os.environ.get("HOME", "")
    if not home:
        raise ConfigError(token, f"{key}: failed to get home dir: HOME is not set")
    return os.path.normpath(f"{home}/{path[1:]}")


def _seed(key: str, token: Token, problems: Problems) -> str:
    from gnats.nkeys.nkeys import NkeyError, Prefix, decode_seed

    seed = string(key, token, problems)
    try:
        prefix, _ = decode_seed(seed)
    except NkeyError:
        prefix = None
    if prefix != Prefix.USER:  # the text may be nearly a seed: it is not shown
        raise ConfigError(token, "Remote leafnode nkey is not a valid seed")
    return seed


def _subjects(key: str, token: Token, problems: Problems) -> tuple[str, ...]:
    subjects = string_or_strings(key, token, problems)
    try:
        check_permission_subjects(subjects, queues=False)
    except ValueError as exc:
        raise ConfigError(token, str(exc)) from None
    return subjects


def _proxy(key: str, token: Token, problems: Problems) -> dict[str, Any]:
    return {"proxy": ProxyOptions(**read_block(_PROXY, key, token, problems)), "proxy_token": token}


def _proxy_timeout(key: str, token: Token, problems: Problems) -> float:
    return seconds("proxy timeout", token, problems)


_URLS: Read = server_urls("leafnode")
_USER = keys(
    ("username", string, "user username"),
    ("password", string, "pass password"),
    ("account", string, "account"),
    ("", not_yet_unless(False), "proxy_required"),
)
_AUTHORIZATION = keys(
    ("username", string, "user username"),
    ("password", string, "pass password"),
    ("nkey", _nkey, "nkey"),
    ("auth_timeout", auth_timeout, "timeout"),
    ("users", _users, "users"),
    ("account", string, "account"),
    ("", not_yet_unless(False), "proxy_required"),
)
_PROXY = keys(
    ("url", string, "url"),
    ("username", string, "username"),
    ("password", string, "password"),
    ("timeout", _proxy_timeout, "timeout"),
    ("tls", proxy_tls, "tls"),
)
_REMOTE = keys(
    ("urls", _urls, "url urls"),
    ("account", string, "account local"),
    ("credentials", _credentials, "creds credentials"),
    ("nkey", _seed, "nkey seed"),
    ("tls", tls, "tls"),
    ("hub", boolean, "hub"),
    ("deny_imports", _subjects, "deny_imports deny_import"),
    ("deny_exports", _subjects, "deny_exports deny_export"),
    ("no_randomize", boolean, "no_randomize dont_randomize"),
    ("first_info_timeout", seconds, "first_info_timeout"),
    ("dial_timeout", seconds, "dial_timeout"),
    ("compression", compression(S2_AUTO), "compression"),
    (
        "websocket_compression",
        boolean,
        "ws_compress ws_compression websocket_compress websocket_compression",
    ),
    ("websocket_no_masking", boolean, "ws_no_masking websocket_no_masking"),
    ("", _proxy, "proxy"),
    ("", not_yet_unless(False), "jetstream_cluster_migrate js_cluster_migrate"),
    ("local_isolation", boolean, "isolate_leafnode_interest isolate"),
    ("request_isolation", boolean, "request_isolation"),
    ("disabled", boolean, "disabled"),
    ("ignore_discovered_servers", boolean, "ignore_discovered_servers"),
)
_LEAFNODES = keys(
    ("", listen("host", "port"), "listen"),
    ("host", string, "host net"),
    ("port", integer, "port"),
    ("", _authorization, "authorization"),
    ("tls", tls, "tls"),
    ("advertise", string, "leafnode_advertise advertise"),
    ("no_advertise", boolean, "no_advertise"),
    ("reconnect_interval", _reconnect, "reconnect reconnect_delay reconnect_interval"),
    ("dial_timeout", seconds, "dial_timeout"),
    ("min_version", _min_version, "min_version minimum_version"),
    ("compression", compression(S2_AUTO), "compression"),
    ("isolate_leafnode_interest", boolean, "isolate_leafnode_interest isolate"),
    ("write_deadline", seconds, "write_deadline"),
    ("write_timeout", write_timeout, "write_timeout"),
    ("remotes", _remotes, "remotes"),
)
