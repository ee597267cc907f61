"""The exports and imports of an account (parseAccountExports, parseAccountImports in opts.go)."""

from collections import Counter
from typing import Any

from gnats.conf import Token
from gnats.go.text import quote
from gnats.options.keys.values import (
    ConfigError,
    Problems,
    array,
    block,
    boolean,
    duration,
    integer,
    keys,
    percentage,
    read_block,
    string,
    strings,
)
from gnats.options.values.accounts import (
    ServiceExport,
    ServiceImport,
    ServiceLatency,
    StreamExport,
    StreamImport,
)

Export = StreamExport | ServiceExport
Import = StreamImport | ServiceImport

_HEADERS_DECIDE = 0
_RESPONSE_TYPES = {
    "single": "singleton",
    "singleton": "singleton",
    "stream": "stream",
    "chunk": "chunked",
    "chunked": "chunked",
}
_OF_SERVICES = {
    "response_type": "response",
    "threshold": "response",
    "latency": "latency",
    "allow_trace": "allow_trace",
}


def exports(key: str, token: Token, problems: Problems) -> list[tuple[Token, Export]]:
    """Read the exports of an account, each with its place."""
    found: list[tuple[Token, Export]] = []
    for item in array(key, token):
        try:
            export = _export(item, problems)
        except ConfigError as exc:
            problems.error(exc.token, str(exc))
        else:
            found += [(item, export)] if export else []
    return found


def imports(key: str, token: Token, problems: Problems) -> list[tuple[Token, Import]]:
    """Read the imports of an account, each with its place."""
    found: list[tuple[Token, Import]] = []
    services: dict[tuple[str, str], str] = {}
    for item in array(key, token):
        try:
            each = _import(item, problems)
            if isinstance(each, ServiceImport):
                subject = each.to or each.subject
                if used := services.get((each.account, subject)):
                    raise ConfigError(
                        item,
                        f"Duplicate service import subject {quote(subject)}, previously used in import for"
                        f" account {quote(each.account)}, subject {quote(used)}",
                    )
                services[each.account, subject] = each.subject
        except ConfigError as exc:
            problems.error(exc.token, str(exc))
        else:
            found += [(item, each)] if each else []
    return found


def _export(token: Token, problems: Problems) -> Export | None:
    found = read_block(_EXPORT, "an export", token, problems)
    options = Counter(_EXPORT[name.lower()][0] for name in block("", token) if name.lower() in _EXPORT)
    for option, what in ("response_type", "type"), ("threshold", "threshold"):
        if options[option] > 1:
            raise ConfigError(token, f"Duplicate response {what} definition")
    stream, service = found.pop("stream", None), found.pop("service", None)
    if options["stream"] and options["service"]:
        raise ConfigError(token, f"Detected stream {quote(stream or '')} but already saw a service")
    accounts = found.get("accounts") or None  # no names: all accounts may import
    if service is not None:
        return ServiceExport(service, **found | {"accounts": accounts})
    if stream is not None:
        for option, what in _OF_SERVICES.items():
            if option in found:
                raise ConfigError(token, f"Detected {what} directive on non-service")
        return StreamExport(stream, **found | {"accounts": accounts})
    if not (options["stream"] or options["service"]):
        problems.warning(token, "an export without a stream or service is ignored")
    return None


def _import(token: Token, problems: Problems) -> Import | None:
    found = read_block(_IMPORT, "an import", token, problems)
    options = {_IMPORT[name.lower()][0] for name in block("", token) if name.lower() in _IMPORT}
    stream, service = found.pop("stream", None), found.pop("service", None)
    if {"stream", "service"} <= options:
        raise ConfigError(token, "Detected service but already saw a stream")
    if service:
        if "allow_trace" in found:
            raise ConfigError(token, "Detected allow_trace directive on a non-stream")
        _ignore(found, "prefix", token, problems)
        return ServiceImport(**service, **found)
    if stream:
        if found.get("prefix") and "to" in found:
            raise ConfigError(token, "Stream import can not have a 'prefix' and a 'to' property")
        _ignore(found, "share", token, problems)
        return StreamImport(**stream, **found)
    if not options & {"stream", "service"}:
        problems.warning(token, "an import without a stream or service is ignored")
    return None


def _ignore(found: dict[str, Any], option: str, token: Token, problems: Problems) -> None:
    if found.pop(option, None):
        problems.misuse(option, token, "it is not for this kind of import")


def _source(key: str, token: Token, problems: Problems) -> dict[str, str]:
    found = read_block(_SOURCE, key, token, problems)
    if not (found.get("account") and found.get("subject")):
        raise ConfigError(token, f"{key}: Expect an account name and a subject")
    return found


def _accounts(key: str, token: Token, problems: Problems) -> tuple[str, ...] | None:
    """Read the accounts that may import; None, for an empty array: all may."""
    return strings(key, token, problems) or None


def _response_type(key: str, token: Token, problems: Problems) -> str:
    name = string(key, token, problems)
    if name.lower() not in _RESPONSE_TYPES:
        raise ConfigError(token, f"Unknown response type: {quote(name)}")
    return _RESPONSE_TYPES[name.lower()]


def _position(key: str, token: Token, problems: Problems) -> int:
    position = integer(key, token, problems)
    if position < 0:
        raise ConfigError(token, f"{key} cannot be negative")
    return position


def _latency(key: str, token: Token, problems: Problems) -> ServiceLatency:
    if isinstance(token.value, str):
        return ServiceLatency(token.value)
    found = read_block(_LATENCY, key, token, problems, strict=False)
    if "subject" not in found:
        raise ConfigError(token, "Latency subject required, but missing")
    return ServiceLatency(**found)


def _sampling(key: str, token: Token, problems: Problems) -> int:
    if isinstance(token.value, str) and token.value.strip().lower() == "headers":
        return _HEADERS_DECIDE
    sampling: int = _percentage(key, token, problems)
    return sampling


_percentage = percentage(1)
_LATENCY = keys(("subject", string, "subject"), ("sampling", _sampling, "sampling"))
_SOURCE = keys(("account", string, "account"), ("subject", string, "subject"))
_EXPORT = keys(
    ("stream", string, "stream"),
    ("service", string, "service"),
    ("accounts", _accounts, "accounts"),
    ("account_token_position", _position, "account_token_position"),
    ("response_type", _response_type, "response response_type"),
    ("threshold", duration, "threshold response_threshold response_max_time response_time"),
    ("latency", _latency, "latency"),
    ("allow_trace", boolean, "allow_trace"),
)
_IMPORT = keys(
    ("stream", _source, "stream"),
    ("service", _source, "service"),
    ("prefix", string, "prefix"),
    ("to", string, "to"),
    ("share", boolean, "share"),
    ("allow_trace", boolean, "allow_trace"),
)
