"""Encodes claims as signed JWTs, and decodes and verifies JWTs (claims and decoder of the jwt library)."""

import base64
import re
from typing import Any, TypeVar

from gnats.clock import unix_time
from gnats.go.json import JSONError, Struct, compact, unmarshal
from gnats.go.text import quote
from gnats.jwt.account import Account, AccountClaims
from gnats.jwt.claims import (
    VERSION,
    Activation,
    ActivationClaims,
    AuthorizationRequestClaims,
    AuthorizationResponseClaims,
    Claims,
    GenericClaims,
    Operator,
    OperatorClaims,
    User,
    UserClaims,
)
from gnats.jwt.schema import fill, struct, to_json
from gnats.nkeys.nkeys import KeyPair, NkeyError, Prefix, PublicKey, is_valid_public_key

MAX_TOKEN_SIZE = 1 << 20
PREFIX = "eyJ"
"""The first characters of every JWT: base64 of `{"`."""

C = TypeVar("C", bound=Claims)

_ALPHABET = re.compile("[A-Za-z0-9_-]*")
_HEADER: Struct = {"typ": "string", "alg": "string"}
_OLD_ALGORITHM, _ALGORITHM = "ed25519", "ed25519-nkey"
_GENERIC: Struct = {"tags": "strings", "type": "string", "version": "int"}
_CLAIMS: tuple[type[Claims], ...] = (
    OperatorClaims,
    AccountClaims,
    UserClaims,
    ActivationClaims,
    AuthorizationRequestClaims,
    AuthorizationResponseClaims,
)
_TYPES = {each.TYPE: each for each in _CLAIMS}
_SUBJECTS = {
    OperatorClaims: Prefix.OPERATOR,
    AccountClaims: Prefix.ACCOUNT,
    UserClaims: Prefix.USER,
    ActivationClaims: Prefix.ACCOUNT,
}

_V1_NAMES: dict[type[Claims], tuple[type, str]] = {
    OperatorClaims: (Operator, "signing_keys account_server_url operator_service_urls system_account"),
    AccountClaims: (Account, "imports exports limits signing_keys revocations"),
    UserClaims: (User, "pub sub resp src times times_location subs data payload bearer_token"),
    ActivationClaims: (Activation, "subject kind"),
}
"""The members of the `nats` part in version 1; type, tags and issuer_account are one level up there."""


class JWTError(ValueError):
    """Text is not a valid JWT, or its issuer has not signed it."""


def encode(claims: Claims, signer: KeyPair) -> str:
    """Return the signed JWT of claims. Sets their issuer, time of issue, id, type and version.

    Raises JWTError when there is no subject, or the subject or the signer is a key of the wrong kind.
    """
    import hashlib

    if not claims.sub:
        raise JWTError("subject is not set")
    kind = _SUBJECTS.get(type(claims))
    if kind is not None and not is_valid_public_key(claims.sub, kind):
        raise JWTError(f"expected subject to be {kind.name.lower()} public key")
    claims.iss = signer.public_key
    _check_issuer(claims)
    claims.iat = int(unix_time())
    claims.jti = ""
    if isinstance(claims, GenericClaims):
        claims.nats["version"] = VERSION
    else:
        nats: Any = claims.nats  # type: ignore[attr-defined]
        nats.type, nats.version = claims.TYPE, VERSION
    members = to_json(claims)
    hashed = {name: value for name, value in members.items() if name != "nats"}
    claims.jti = base64.b32encode(hashlib.new("sha512_256", _dump(hashed)).digest()).decode().rstrip("=")
    members["jti"] = claims.jti
    signed = f"{_to_base64(_dump({'typ': 'JWT', 'alg': _ALGORITHM}))}.{_to_base64(_dump(members))}"
    return f"{signed}.{_to_base64(signer.sign(signed.encode()))}"


def decode(token: str) -> Claims:
    """Return the claims of a JWT, after verifying the issuer's signature and the kind of the issuer's key.

    Checks nothing else: see gnats.jwt.validation. Raises JWTError.
    """
    if len(token) > MAX_TOKEN_SIZE:
        raise JWTError(f"token size {len(token)} exceeds maximum of {MAX_TOKEN_SIZE} bytes: token too large")
    header, payload, signature = _chunks(token)
    _read_header(header)
    data = _from_base64(payload)
    try:
        version, claims = _load(data)
    except JSONError as exc:
        raise JWTError(str(exc)) from None
    signed = payload if version <= 1 else f"{header}.{payload}"
    _check_signature(claims, signed, signature, 1 if version <= 1 else 2)
    _check_issuer(claims)
    return claims


def decode_as(kind: type[C], token: str) -> C:
    """Like decode(), for claims of one class: UserClaims, AccountClaims... Raises JWTError."""
    claims = decode(token)
    if not isinstance(claims, kind):
        article = "an " if kind.TYPE.startswith("auth") else ""
        raise JWTError(f"not {article}{kind.TYPE.replace('_', ' ')} claim")
    return claims


def decode_generic(token: str) -> GenericClaims:
    """Return the claims of a JWT of any kind, with its `nats` part as JSON. Raises JWTError.

    Verifies the issuer's signature only.
    """
    header, payload, signature = _chunks(token)
    algorithm = _read_header(header)
    try:
        found = unmarshal(_from_base64(payload), struct(GenericClaims), "GenericClaims")
        claims = fill(GenericClaims(), found)
    except JSONError as exc:
        raise JWTError(str(exc)) from None
    if algorithm == _OLD_ALGORITHM:
        _check_signature(claims, payload, signature, 1)
    else:
        _check_signature(claims, f"{header}.{payload}", signature, 2)
    return claims


def _load(data: bytes) -> tuple[int, Claims]:
    """Return the version and the claims in a JWT's JSON. Raises JSONError, JWTError."""
    identifier = unmarshal(data, {"type": "string", "nats": _GENERIC}, "identifier")
    nats: Any = identifier.get("nats", {})
    kind = identifier.get("type") or nats.get("type", "")
    version: int = 1 if identifier.get("type") else nats.get("version", 0)
    if version > VERSION:
        raise JWTError("JWT was generated by a newer version ")
    if kind in ("cluster", "server"):
        raise JWTError(f"{str(kind).capitalize()}Claims are not supported")
    cls = _TYPES.get(str(kind))
    if cls is None:
        return -1, fill(GenericClaims(), unmarshal(data, struct(GenericClaims), "GenericClaims"))
    if version == VERSION or cls not in _V1_NAMES:
        claims = fill(cls(), unmarshal(data, struct(cls), cls.__name__))
    elif version == 1:
        claims = _load_v1(cls, data)
    else:
        raise JWTError(f"library supports version {VERSION} or less - received {version}")
    if isinstance(claims, AccountClaims):
        _drop_untiered(claims)
    return version, claims


def _load_v1(cls: type[Claims], data: bytes) -> Claims:
    nats_type, names = _V1_NAMES[cls]
    fields = {name: each for name, each in struct(nats_type).items() if name in names.split()}
    if cls is ActivationClaims:
        fields["type"] = fields.pop("kind")
    moved: Struct = {"tags": "strings", "type": "string", "issuer_account": "string"}
    common = struct(Claims)
    found: dict[str, Any] = unmarshal(data, {**common, **moved, "nats": fields}, cls.__name__)
    nats = found.pop("nats", {})
    if cls is ActivationClaims and "type" in nats:
        nats["kind"] = nats.pop("type")
    claims: Any = UserClaims.new("") if cls is UserClaims else cls()
    fill(claims.nats, nats)
    claims.nats.version = 1
    claims.nats.type = found.pop("type", "")
    claims.nats.tags = tuple(found.pop("tags")) if "tags" in found else None
    issuer_account = found.pop("issuer_account", "")
    if cls in (UserClaims, ActivationClaims):
        claims.nats.issuer_account = issuer_account
    filled: Claims = fill(claims, found)
    return filled


def _drop_untiered(claims: AccountClaims) -> None:
    """Drop the JetStream limits without tier if there are tiers; in version 1, drop all JetStream limits."""
    limits = claims.nats.limits
    if claims.nats.version == 1:
        limits.tiered_limits = {}
    if limits.tiered_limits or claims.nats.version == 1:
        limits.mem_storage = limits.disk_storage = limits.streams = limits.consumer = 0
        limits.max_ack_pending = limits.mem_max_stream_bytes = limits.disk_max_stream_bytes = 0
        limits.max_bytes_required = False


def _chunks(token: str) -> tuple[str, str, bytes]:
    chunks = token.split(".")
    if len(chunks) != 3:
        raise JWTError("expected 3 chunks")
    return chunks[0], chunks[1], _from_base64(chunks[2])


def _read_header(chunk: str) -> str:
    """Return the algorithm in lower case. Raises JWTError for another type or algorithm."""
    try:
        found = unmarshal(_from_base64(chunk), _HEADER, "Header")
    except JSONError as exc:
        raise JWTError(str(exc)) from None
    kind, algorithm = str(found.get("typ", "")), str(found.get("alg", ""))
    if kind.upper() != "JWT":
        raise JWTError(f"not supported type {quote(kind)}")
    if algorithm.lower() not in (_OLD_ALGORITHM, _ALGORITHM):
        raise JWTError(f"unexpected {quote(algorithm)} algorithm")
    return algorithm.lower()


def _check_signature(claims: Claims, signed: str, signature: bytes, version: int) -> None:
    try:
        good = PublicKey(claims.iss).verify(signed.encode(), signature)
    except NkeyError:
        good = False
    if not good:
        raise JWTError(f"claim failed V{version} signature verification")


def _check_issuer(claims: Claims) -> None:
    if claims.ISSUERS and not is_valid_public_key(claims.iss, *claims.ISSUERS):
        names = " ".join(prefix.name.lower() for prefix in claims.ISSUERS)
        raise JWTError(f"unable to validate expected prefixes - [{names}]")


def _dump(value: object) -> bytes:
    return compact(value).encode()


def _to_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _from_base64(text: str) -> bytes:
    text = text.replace("\r", "").replace("\n", "")
    if not _ALPHABET.fullmatch(text) or len(text) % 4 == 1:
        raise JWTError("illegal base64 data")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
