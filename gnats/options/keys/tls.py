"""The tls blocks, and the names of cipher suites and curves (parseTLS and GenTLSConfig in opts.go)."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnats.conf import Token
from gnats.errors import OptionError
from gnats.go.text import SECOND, os_error, parse_duration, quote
from gnats.options.keys.values import (
    ConfigError,
    Keys,
    Problems,
    Read,
    array,
    boolean,
    integer,
    keys,
    not_yet_unless,
    read_block,
    show,
    string,
    strings,
    timeout,
)
from gnats.options.values.tls import HANDSHAKE_FIRST_FALLBACK, TLSOptions
from gnats.system.paths import system_path

_SECURE_NAMES = """
    TLS_AES_128_GCM_SHA256 TLS_AES_256_GCM_SHA384 TLS_CHACHA20_POLY1305_SHA256
    TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA
    TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA
    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
"""
_INSECURE_NAMES = """
    TLS_RSA_WITH_RC4_128_SHA TLS_RSA_WITH_3DES_EDE_CBC_SHA
    TLS_RSA_WITH_AES_128_CBC_SHA TLS_RSA_WITH_AES_256_CBC_SHA TLS_RSA_WITH_AES_128_CBC_SHA256
    TLS_RSA_WITH_AES_128_GCM_SHA256 TLS_RSA_WITH_AES_256_GCM_SHA384
    TLS_ECDHE_ECDSA_WITH_RC4_128_SHA TLS_ECDHE_RSA_WITH_RC4_128_SHA TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA
    TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256 TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256
"""
INSECURE_CIPHER_SUITES = frozenset(_INSECURE_NAMES.split())
CIPHER_SUITES = INSECURE_CIPHER_SUITES.union(_SECURE_NAMES.split())
CURVES = (
    "X25519MLKEM768",
    "SecP384r1MLKEM1024",
    "SecP256r1MLKEM768",
    "X25519",
    "CurveP256",
    "CurveP384",
    "CurveP521",
)
_SHA256 = re.compile(r"[0-9a-f]{64}")


def tls(key: str, token: Token, problems: Problems) -> TLSOptions:
    """Read a tls block: of the listener for clients, or of the resolver."""
    return _read(_TLS, key, token, problems)


def link_tls(key: str, token: Token, problems: Problems) -> TLSOptions:
    """Read a tls block of links to other servers. Both sides of a link verify the other's certificate."""
    return replace(_read(_LINK_TLS, key, token, problems), verify=True)


def proxy_tls(key: str, token: Token, problems: Problems) -> TLSOptions:
    """Read a tls block of the connections to an HTTP proxy."""
    return _read(_PROXY_TLS, key, token, problems, "{} is not supported for proxy TLS")


def _read(
    table: Keys,
    key: str,
    token: Token,
    problems: Problems,
    unknown: str = "error parsing tls config, unknown field {}",
) -> TLSOptions:
    before = len(problems.errors)
    found = read_block(table, key, token, problems, unknown, variables=False)
    options = TLSOptions(**found)
    if len(problems.errors) > before:
        return options
    if options.certificates and options.cert_file:
        raise ConfigError(
            token, "error parsing tls config, cannot combine 'cert_file' option with 'certs' option"
        )
    for given, missing in ("cert_file", "key_file"), ("key_file", "cert_file"):
        if found.get(given) and not found.get(missing):
            raise ConfigError(token, f"missing '{missing}' in TLS configuration")
    insecure = [name for name in options.cipher_suites if name in INSECURE_CIPHER_SUITES]
    if insecure and not options.allow_insecure_cipher_suites:
        raise ConfigError(
            token,
            "insecure cipher suites configured without 'allow_insecure_cipher_suites' option set: "
            + ", ".join(insecure),
        )
    if options.cert_file or options.certificates:
        _check_files(options, token)
    elif options.ca_file:
        _check_readable(options.ca_file, token)
    return options


def _check_files(options: TLSOptions, token: Token) -> None:
    """Check that certificates and keys can be read and belong together. Raises ConfigError."""
    from gnats.tls.context import make_context  # loads OpenSSL

    try:
        # `verify` makes it read the CA's certificates, too
        make_context(replace(options, verify=options.verify or bool(options.ca_file)))
    except OptionError as exc:
        raise ConfigError(token, str(exc)) from None


def _check_readable(path: str, token: Token) -> None:
    try:
        Path(system_path(path)).read_bytes()
    except OSError as exc:
        raise ConfigError(token, f"error parsing tls config: open {path}: {os_error(exc)}") from None


def tls_help() -> str:
    """Return the text of --help_tls."""
    lines = [
        "Cipher suites (tls { cipher_suites: [..] }), those marked * only with allow_insecure_cipher_suites:"
    ]
    lines += [f"    {name}{' *' * (name in INSECURE_CIPHER_SUITES)}" for name in sorted(CIPHER_SUITES)]
    lines += ["", "Curves (tls { curve_preferences: [..] }):", *(f"    {name}" for name in CURVES)]
    return "\n".join(lines) + "\n"


def _names(what: str, known: frozenset[str]) -> Read:
    def read(key: str, token: Token, problems: Problems) -> tuple[str, ...]:
        names = strings(key, token, problems)
        if not names:
            raise ConfigError(token, f"error parsing tls config, '{key}' cannot be empty")
        for name, item in zip(names, array(key, token), strict=True):
            if name not in known:
                raise ConfigError(item, f"{key}: unrecognized {what} {name}")
        return names

    return read


def _pinned_certs(key: str, token: Token, problems: Problems) -> frozenset[str]:
    pins = frozenset(pin.lower() for pin in strings(key, token, problems))
    for pin in sorted(pins):
        if not _SHA256.fullmatch(pin):
            raise ConfigError(
                token,
                f"error parsing tls config, '{key}' key {pin} does not look like hex-encoded sha256 of DER"
                " encoded SubjectPublicKeyInfo",
            )
    return pins


def _handshake_first(key: str, token: Token, problems: Problems) -> dict[str, Any]:
    value = token.value
    word = value.lower() if isinstance(value, str) else value
    if word is True or word in ("true", "on"):
        return {"handshake_first": True}
    if word is False or word in ("false", "off"):
        return {"handshake_first": False}
    fallback = HANDSHAKE_FIRST_FALLBACK
    if word not in ("auto", "auto_fallback"):
        if not isinstance(value, str):
            raise ConfigError(token, f"field {quote(key)} should be a boolean or a string, not {show(value)}")
        try:
            fallback = parse_duration(value) / SECOND
        except ValueError:
            raise ConfigError(token, f"field {quote(key)}'s value {quote(value)} is invalid") from None
    return {"handshake_first": True, "handshake_first_fallback": fallback}


def _certificates(key: str, token: Token, problems: Problems) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for item in array(key, token):
        pair = read_block(
            _PAIR, key, item, problems, "error parsing tls certs config, unknown field {}", variables=False
        )
        if not (pair.get("cert_file") and pair.get("key_file")):
            raise ConfigError(
                item,
                f"error parsing certificates config: {key}: both 'cert_file' and 'key_file' are required",
            )
        pairs.append((pair["cert_file"], pair["key_file"]))
    return tuple(pairs)


def _min_version(key: str, token: Token, problems: Problems) -> str:
    if token.value in ("1.0", "1.1"):
        raise ConfigError(token, f"error parsing tls config: {key}: unsupported TLS version: {token.value}")
    if token.value not in ("1.2", "1.3"):
        raise ConfigError(token, f"error parsing tls config: {key}: unknown version: {show(token.value)}")
    return str(token.value)


def _verify_and_map(key: str, token: Token, problems: Problems) -> dict[str, bool]:
    on = boolean(key, token, problems)
    return {"verify": True, "verify_and_map": True} if on else {"verify_and_map": False}


def _check_known_urls(key: str, token: Token, problems: Problems) -> dict[str, bool]:
    if boolean(key, token, problems):
        raise ConfigError(token, f"{key} not supported in this context")
    return {}


def _windows_only(key: str, token: Token, problems: Problems) -> dict[str, Any]:
    raise ConfigError(token, f"key {quote(key)} is not supported: certificate stores are Windows'")


_PAIR = keys(("cert_file", string, "cert_file"), ("key_file", string, "key_file"))
_TLS = keys(
    ("cert_file", string, "cert_file"),
    ("key_file", string, "key_file"),
    ("ca_file", string, "ca_file"),
    ("insecure", boolean, "insecure"),
    ("verify", boolean, "verify"),
    ("", _verify_and_map, "verify_and_map"),
    ("", _check_known_urls, "verify_cert_and_check_known_urls"),
    ("allow_insecure_cipher_suites", boolean, "allow_insecure_cipher_suites"),
    ("cipher_suites", _names("cipher", CIPHER_SUITES), "cipher_suites"),
    ("curve_preferences", _names("curve preference", frozenset(CURVES)), "curve_preferences"),
    ("timeout", timeout, "timeout"),
    ("connection_rate_limit", integer, "connection_rate_limit"),
    ("pinned_certs", _pinned_certs, "pinned_certs"),
    ("", _windows_only, "cert_store cert_match_by cert_match ca_certs_match cert_match_skip_invalid"),
    ("", _handshake_first, "handshake_first first immediate"),
    ("", not_yet_unless(False), "ocsp_peer"),
    ("certificates", _certificates, "certs certificates"),
    ("min_version", _min_version, "min_version"),
)
_LINK_TLS = _TLS | keys(("check_known_urls", boolean, "verify_cert_and_check_known_urls"))
_PROXY_TLS = {
    name: _TLS[name]
    for name in (
        "cert_file", "key_file", "certs", "certificates", "ca_file", "insecure", "timeout", "min_version",
        "cipher_suites", "curve_preferences", "allow_insecure_cipher_suites",
    )
}  # fmt: skip
