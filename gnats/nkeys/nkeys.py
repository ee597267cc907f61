"""Nkeys (github.com/nats-io/nkeys): the keys of operators, accounts, users and servers, as text and in use.

A public key is base32 of a prefix byte, 32 bytes of Ed25519 (or, for "X", X25519) key and their
CRC-16/XMODEM in little endian. A seed has two prefix bytes: that it is a seed, and the kind of its key.
PyNaCl does the cryptography; it is imported at the first use.
"""

import base64
import binascii
import os
import re
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from nacl.public import PublicKey as _CurvePublicKey

KEY_LENGTH = 32
SIGNATURE_LENGTH = 64
XKEY_VERSION = b"xkv1"
"""The first bytes of data sealed with curve keys; a nonce of 24 bytes follows."""
_NONCE_LENGTH = 24


class NkeyError(ValueError):
    """A key is not valid, or is of the wrong kind."""


class Prefix(IntEnum):
    """The first byte of an encoded key; it determines the first letter."""

    ACCOUNT = 0  # A
    CLUSTER = 2 << 3  # C
    SERVER = 13 << 3  # N
    OPERATOR = 14 << 3  # O
    PRIVATE = 15 << 3  # P
    SEED = 18 << 3  # S
    USER = 20 << 3  # U
    CURVE = 23 << 3  # X


PUBLIC_PREFIXES = frozenset(Prefix) - {Prefix.SEED, Prefix.PRIVATE}


class Verifier(Protocol):
    """Checks signatures that belong to a public key."""

    @property
    def public_key(self) -> str: ...

    def verify(self, data: bytes, signature: bytes) -> bool: ...


def _to_text(raw: bytes) -> str:
    raw += binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw).decode().rstrip("=")


def _from_text(text: str) -> bytes:
    """Return the bytes of an encoded key without the checksum. Raises NkeyError."""
    try:
        raw = b"" if "=" in text else base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        raise NkeyError("invalid encoded key") from None
    if len(raw) < 4:
        raise NkeyError("invalid encoded key")
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise NkeyError("invalid checksum")
    return raw[:-2]


def encode(prefix: Prefix, key: bytes) -> str:
    """Return a key as text."""
    return _to_text(bytes([prefix]) + key)


def decode(text: str) -> tuple[Prefix, bytes]:
    """Return the kind and the bytes of a key that is not a seed. Raises NkeyError."""
    raw = _from_text(text)
    try:
        return Prefix(raw[0]), raw[1:]
    except ValueError:
        raise NkeyError("invalid prefix byte") from None


def decode_public_key(text: str) -> tuple[Prefix, bytes]:
    """Return the kind and the 32 bytes of a public key. Raises NkeyError."""
    prefix, key = decode(text)
    if prefix not in PUBLIC_PREFIXES or len(key) != KEY_LENGTH:
        raise NkeyError("invalid public key")
    return prefix, key


def encode_seed(prefix: Prefix, seed: bytes) -> str:
    """Return the 32 bytes of a seed as text; `prefix` is the kind of its key. Raises NkeyError."""
    if prefix not in PUBLIC_PREFIXES:
        raise NkeyError("invalid prefix byte")
    if len(seed) != KEY_LENGTH:
        raise NkeyError("invalid seed length")
    return _to_text(bytes([Prefix.SEED | prefix >> 5, (prefix & 31) << 3]) + seed)


def decode_seed(text: str) -> tuple[Prefix, bytes]:
    """Return the kind of a seed's key, and the seed's 32 bytes. Raises NkeyError."""
    raw = _from_text(text)
    prefix = (raw[0] & 7) << 5 | raw[1] >> 3
    if raw[0] & 0xF8 != Prefix.SEED or prefix not in PUBLIC_PREFIXES or len(raw) != KEY_LENGTH + 2:
        raise NkeyError("invalid seed")
    return Prefix(prefix), raw[2:]


def is_valid_public_key(text: str, *prefixes: Prefix) -> bool:
    """Check for a public key as text; `prefixes` limits its kinds."""
    try:
        return decode_public_key(text)[0] in (prefixes or PUBLIC_PREFIXES)
    except NkeyError:
        return False


def decode_signature(text: str) -> bytes | None:
    """Decode a CONNECT's signature: URL-safe base64 without padding, or standard base64; None: neither."""
    text = text.replace("\r", "").replace("\n", "")
    if re.fullmatch("[A-Za-z0-9_-]*", text) and len(text) % 4 != 1:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def verify_nonce(public_key: str, nonce: str, sig: str) -> None:
    """Verify that `sig`, from a CONNECT, is the nonce signed with a user's nkey.

    Raises NkeyError with nats-server's text.
    """
    if not sig:
        raise NkeyError("Signature missing")
    signature = decode_signature(sig)
    if signature is None:
        raise NkeyError("Signature not valid base64")
    try:
        key = PublicKey(public_key)
    except NkeyError as exc:
        raise NkeyError(f"User nkey not valid: {exc}") from None
    if not key.verify(nonce.encode(), signature):
        raise NkeyError("Signature not verified")


class PublicKey:
    """The public half of a key pair; verifies signatures."""

    __slots__ = ("_key", "public_key")

    def __init__(self, public_key: str) -> None:
        """Raises NkeyError when the text is not a public key that can sign."""
        prefix, self._key = decode_public_key(public_key)
        if prefix == Prefix.CURVE:
            raise NkeyError("a curve key cannot verify")
        self.public_key = public_key

    def verify(self, data: bytes, signature: bytes) -> bool:
        """Check that `signature` is this key's signature of `data`."""
        return _verify(self._key, data, signature)


class KeyPair:
    """A key pair for signing, of an operator, account, user, server or cluster."""

    __slots__ = ("_key", "prefix", "public_key")

    def __init__(self, prefix: Prefix, seed: bytes) -> None:
        """Raises NkeyError when `prefix` is not of a signing key, or the seed is not 32 bytes."""
        from nacl.signing import SigningKey

        if prefix not in PUBLIC_PREFIXES or prefix == Prefix.CURVE:
            raise NkeyError("invalid prefix byte")
        if len(seed) != KEY_LENGTH:
            raise NkeyError("invalid seed length")
        self.prefix = prefix
        self._key = SigningKey(seed)
        self.public_key = encode(prefix, bytes(self._key.verify_key))

    @classmethod
    def create(cls, prefix: Prefix) -> "KeyPair":
        """Create a new key pair of the kind `prefix`."""
        return cls(prefix, os.urandom(KEY_LENGTH))

    @classmethod
    def from_seed(cls, seed: str) -> "KeyPair":
        """Make the key pair of a seed's text. Raises NkeyError."""
        return cls(*decode_seed(seed))

    @property
    def seed(self) -> str:
        """The seed's text, a secret: from_seed() makes the same key pair again."""
        return encode_seed(self.prefix, bytes(self._key))

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`, 64 bytes."""
        return self._key.sign(data).signature

    def verify(self, data: bytes, signature: bytes) -> bool:
        """Check that `signature` is this key's signature of `data`."""
        return _verify(bytes(self._key.verify_key), data, signature)


class CurveKeyPair:
    """A key pair ("xkey") that seals data for one recipient, and opens data sealed for it."""

    __slots__ = ("_key", "public_key")

    def __init__(self, seed: bytes) -> None:
        """Raises NkeyError when the seed is not 32 bytes."""
        from nacl.public import PrivateKey

        if len(seed) != KEY_LENGTH:
            raise NkeyError("invalid seed length")
        self._key = PrivateKey(seed)
        self.public_key = encode(Prefix.CURVE, bytes(self._key.public_key))

    @classmethod
    def create(cls) -> "CurveKeyPair":
        """Create a new key pair."""
        return cls(os.urandom(KEY_LENGTH))

    @classmethod
    def from_seed(cls, seed: str) -> "CurveKeyPair":
        """Make the key pair of a seed's text. Raises NkeyError."""
        prefix, raw = decode_seed(seed)
        if prefix != Prefix.CURVE:
            raise NkeyError("invalid curve seed")
        return cls(raw)

    @property
    def seed(self) -> str:
        """The seed's text, a secret: from_seed() makes the same key pair again."""
        return encode_seed(Prefix.CURVE, bytes(self._key))

    def seal(self, data: bytes, recipient: str) -> bytes:
        """Seal `data` for the owner of the public curve key `recipient`. Raises NkeyError."""
        from nacl.public import Box

        sealed: bytes = Box(self._key, _curve_key(recipient)).encrypt(data, os.urandom(_NONCE_LENGTH))
        return XKEY_VERSION + sealed

    def open(self, sealed: bytes, sender: str) -> bytes:
        """Open data that the owner of the public curve key `sender` sealed for this key. Raises NkeyError."""
        from nacl.exceptions import CryptoError
        from nacl.public import Box

        if len(sealed) <= len(XKEY_VERSION) + _NONCE_LENGTH:
            raise NkeyError("encrypted input is not valid")
        if not sealed.startswith(XKEY_VERSION):
            raise NkeyError("encrypted input wrong version")
        try:
            return Box(self._key, _curve_key(sender)).decrypt(sealed[len(XKEY_VERSION) :])
        except CryptoError:
            raise NkeyError("could not decrypt input") from None


def _curve_key(text: str) -> "_CurvePublicKey":
    from nacl.public import PublicKey as CurvePublicKey

    prefix, raw = decode_public_key(text)
    if prefix != Prefix.CURVE:
        raise NkeyError("not a public curve key")
    return CurvePublicKey(raw)


def _verify(key: bytes, data: bytes, signature: bytes) -> bool:
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    if len(signature) != SIGNATURE_LENGTH:
        return False
    try:
        VerifyKey(key).verify(data, signature)
    except BadSignatureError:
        return False
    return True
