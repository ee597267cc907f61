"""The keys of operator mode: operators, trusted keys, the account resolver (opts.go)."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gnats.conf import Token
from gnats.go.text import os_error, quote
from gnats.options.keys.values import (
    ConfigError,
    Problems,
    block,
    boolean,
    duration,
    integer,
    is_public_nkey,
    keys,
    read_block,
    string,
    string_or_strings,
)
from gnats.options.values.auth import ResolverOptions
from gnats.system.paths import system_path

if TYPE_CHECKING:
    from gnats.jwt.claims import OperatorClaims

_JWT_PREFIX = "eyJ"
_MEMORY = re.compile(r"MEM", re.IGNORECASE)
_URL = re.compile(r'URL(?:\(\s*"?([^\s"]*)"?\s*\))?', re.IGNORECASE)
_FORMS = 'should be MEM, URL("url") or a map containing type (FULL or CACHE) and dir'


@dataclass(frozen=True, slots=True)
class Operators:
    """Operator JWTs; if there is only one, also its system account and the URL of its account server."""

    jwts: tuple[str, ...]
    system_account: str = ""
    resolver_url: str = ""


def resolver(key: str, token: Token, problems: Problems) -> ResolverOptions:
    """Read an account resolver: MEM, URL(...), or a block with type FULL or CACHE."""
    if isinstance(token.value, dict):
        return _resolver_block(key, token, problems)
    text = string(key, token, problems)
    if _MEMORY.search(text):
        return ResolverOptions("mem")
    if found := _URL.search(text):
        return ResolverOptions("url", url=_url(found[1] or "", token))
    raise ConfigError(token, f"error parsing account resolver, {_FORMS}")


def _resolver_block(key: str, token: Token, problems: Problems) -> ResolverOptions:
    found = read_block(_RESOLVER, key, token, problems, variables=False, strict=False)
    kind = _KINDS.get(found.pop("kind", "").upper())
    if kind is None:
        raise ConfigError(token, f"error parsing account resolver, {_FORMS}")
    if kind == "mem":
        return ResolverOptions("mem")
    if found.get("timeout", 1) <= 0:
        raise ConfigError(token, f"{key}: fetch timeout is too small")
    _check_directory(found.get("directory", ""), token)
    refused = {
        "cache": [option for option in ("interval", "allow_delete") if found.get(option)]
        + [option for option in ("hard_delete",) if option in found],
        "full": ["ttl"] if found.get("ttl") else [],
    }[kind]
    for option in refused:
        raise ConfigError(token, f"{kind.upper()} does not accept {option}")
    if "hard_delete" in found and not found.get("allow_delete"):
        raise ConfigError(token, "hard_delete has no effect without allow_delete")
    return ResolverOptions(kind, **found)


def _check_directory(directory: str, token: Token) -> None:
    import stat

    if not directory:
        raise ConfigError(token, "dir has no value and needs to point to a directory")
    try:
        system_path(directory)
    except OSError as exc:
        raise ConfigError(token, f"mkdir {directory}: {os_error(exc)}") from None
    try:
        mode = Path(directory).stat().st_mode
    except OSError:
        return  # the resolver creates it
    if not stat.S_ISDIR(mode) or not mode & stat.S_IWUSR:
        raise ConfigError(token, f"dir {quote(directory)} needs to point to an accessible directory")


def _url(text: str, token: Token) -> str:
    from urllib.parse import urlsplit

    try:
        _ = urlsplit(text).port
    except ValueError:
        raise ConfigError(token, f"error parsing account resolver url [{quote(text)}]") from None
    return text


def preload(key: str, token: Token, problems: Problems) -> dict[str, str]:
    """Read account JWTs by account; they are decoded, but may have expired."""
    from gnats.jwt.account import AccountClaims
    from gnats.jwt.token import JWTError, decode_as

    found: dict[str, str] = {}
    for account, each in block(key, token).items():
        found[account] = jwt = string(f"{key} of {account}", each, problems)
        try:
            decode_as(AccountClaims, jwt)
        except JWTError as exc:
            problems.error(each, f"invalid account JWT of {quote(account)}: {exc}")
    return found


def operators(key: str, token: Token, problems: Problems) -> Operators:
    """Read operator JWTs, each a file or the JWT itself."""
    found = [_operator(name, token) for name in string_or_strings(key, token, problems)]
    if len(found) != 1:
        return Operators(tuple(jwt for jwt, _ in found))
    ((jwt, claims),) = found
    url = claims.nats.account_server_url
    return Operators((jwt,), claims.nats.system_account, url and _url(url, token) + "/accounts")


def _operator(name: str, token: Token) -> "tuple[str, OperatorClaims]":
    from gnats.jwt.claims import OperatorClaims
    from gnats.jwt.decorated import parse_decorated_jwt
    from gnats.jwt.token import JWTError, decode_as

    try:
        name = Path(system_path(name)).read_text("utf-8", "surrogateescape")
    except OSError as exc:
        if not name.startswith(_JWT_PREFIX):
            raise ConfigError(token, f"error parsing operator JWT: open {name}: {os_error(exc)}") from None
    jwt = parse_decorated_jwt(name).strip()
    try:
        return jwt, decode_as(OperatorClaims, jwt)
    except JWTError as exc:
        raise ConfigError(token, f"error parsing operator JWT: {exc}") from None


def pinned_accounts(key: str, token: Token, problems: Problems) -> frozenset[str]:
    return frozenset(string_or_strings(key, token, problems))


def trusted_keys(key: str, token: Token, problems: Problems) -> tuple[str, ...]:
    nkeys = string_or_strings(key, token, problems)
    for nkey in nkeys:
        if not is_public_nkey(nkey, "O"):
            problems.error(token, f"trust key {quote(nkey)} required to be a valid public operator nkey")
    return nkeys


_KINDS = {"FULL": "full", "CACHE": "cache", "MEM": "mem", "MEMORY": "mem"}
_RESOLVER = keys(
    ("kind", string, "type"),
    ("directory", string, "dir"),
    ("limit", integer, "limit"),
    ("ttl", duration, "ttl"),
    ("interval", duration, "interval"),
    ("timeout", duration, "timeout"),
    ("allow_delete", boolean, "allow_delete"),
    ("hard_delete", boolean, "hard_delete"),
)
