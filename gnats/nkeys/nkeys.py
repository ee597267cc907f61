"""Nkeys: how the keys of operators, accounts, users and servers are written, and what is done with them.

A public key is base32 of a prefix byte, 32 bytes of Ed25519 (or, for "X", X25519) key and their
CRC-16/XMODEM in little endian; a seed has two prefix bytes, which say "seed" and whose. The cryptography is
PyNaCl's, imported when it is first needed. (github.com/nats-io/nkeys)
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
"""What data sealed with curve keys begins with; a nonce of 24 bytes follows."""
_NONCE_LENGTH = 24


class NkeyError(ValueError):
    """A key that is not one, or that cannot do what is asked of it."""


class Prefix(IntEnum):
    """The first byte of an encoded key: it decides the first letter."""

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
    """What has a public key and checks signatures made with its private half."""

    @property
    def public_key(self) -> str: ...

    def verify(self, data: bytes, signature: bytes) -> bool: ...


def _to_text(raw: bytes) -> str:
    raw += binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw).decode().rstrip("=")


def _from_text(text: str) -> bytes:
    """The bytes of an encoded key without their checksum. Raises NkeyError."""
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
    """A key as text."""
    return _to_text(bytes([prefix]) + key)


def decode(text: str) -> tuple[Prefix, bytes]:
    """What kind of key a text that is not a seed is, and its bytes.

    Raises NkeyError.
    """
    raw = _from_text(text)
    try:
        return Prefix(raw[0]), raw[1:]
    except ValueError:
        raise NkeyError("invalid prefix byte") from None


def decode_public_key(text: str) -> tuple[Prefix, bytes]:
    """The kind and the 32 bytes of a public key.

    Raises NkeyError.
    """
    prefix, key = decode(text)
    if prefix not in PUBLIC_PREFIXES or len(key) != KEY_LENGTH:
        raise NkeyError("invalid public key")
    return prefix, key


def encode_seed(prefix: Prefix, seed: bytes) -> str:
    """The text of the 32 bytes that a private key of the kind `prefix` is made of.

    Raises NkeyError.
    """
    if prefix not in PUBLIC_PREFIXES:
        raise NkeyError("invalid prefix byte")
    if len(seed) != KEY_LENGTH:
        raise NkeyError("invalid seed length")
    return _to_text(bytes([Prefix.SEED | prefix >> 5, (prefix & 31) << 3]) + seed)


def decode_seed(text: str) -> tuple[Prefix, bytes]:
    """The kind of key that a seed is for, and its 32 bytes.

    Raises NkeyError.
    """
    raw = _from_text(text)
    prefix = (raw[0] & 7) << 5 | raw[1] >> 3
    if raw[0] & 0xF8 != Prefix.SEED or prefix not in PUBLIC_PREFIXES or len(raw) != KEY_LENGTH + 2:
        raise NkeyError("invalid seed")
    return Prefix(prefix), raw[2:]


def is_valid_public_key(text: str, *prefixes: Prefix) -> bool:
    """Is it the text of a public key, of one of these kinds if any are given?"""
    try:
        return decode_public_key(text)[0] in (prefixes or PUBLIC_PREFIXES)
    except NkeyError:
        return False


def decode_signature(text: str) -> bytes | None:
    """A signature as a CONNECT has it: base64, URL-safe without padding or else the standard one."""
    text = text.replace("\r", "").replace("\n", "")
    if re.fullmatch("[A-Za-z0-9_-]*", text) and len(text) % 4 != 1:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def verify_nonce(public_key: str, nonce: str, sig: str) -> None:
    """Require that `sig`, of a CONNECT, is the nonce signed with a user's nkey.

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
    """The public half of a key pair, which checks signatures."""

    __slots__ = ("_key", "public_key")

    def __init__(self, public_key: str) -> None:
        """Raises NkeyError when the text is not a public key that can sign."""
        prefix, self._key = decode_public_key(public_key)
        if prefix == Prefix.CURVE:
            raise NkeyError("a curve key cannot verify")
        self.public_key = public_key

    def verify(self, data: bytes, signature: bytes) -> bool:
        """Is it this key's signature of `data`?"""
        return _verify(self._key, data, signature)


class KeyPair:
    """A key pair that signs: an operator's, an account's, a user's, a server's or a cluster's."""

    __slots__ = ("_key", "prefix", "public_key")

    def __init__(self, prefix: Prefix, seed: bytes) -> None:
        """Raises NkeyError when there is no such key pair."""
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
        """A new key pair of the kind `prefix`."""
        return cls(prefix, os.urandom(KEY_LENGTH))

    @classmethod
    def from_seed(cls, seed: str) -> "KeyPair":
        """The key pair of a seed's text. Raises NkeyError."""
        return cls(*decode_seed(seed))

    @property
    def seed(self) -> str:
        """What the key pair can be made from again: a secret."""
        return encode_seed(self.prefix, bytes(self._key))

    def sign(self, data: bytes) -> bytes:
        """The signature of `data`, 64 bytes."""
        return self._key.sign(data).signature

    def verify(self, data: bytes, signature: bytes) -> bool:
        """Is it this key's signature of `data`?"""
        return _verify(bytes(self._key.verify_key), data, signature)


class CurveKeyPair:
    """A key pair that seals data for one reader and opens what was sealed for it ("xkeys")."""

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
        """A new key pair."""
        return cls(os.urandom(KEY_LENGTH))

    @classmethod
    def from_seed(cls, seed: str) -> "CurveKeyPair":
        """The key pair of a seed's text. Raises NkeyError."""
        prefix, raw = decode_seed(seed)
        if prefix != Prefix.CURVE:
            raise NkeyError("invalid curve seed")
        return cls(raw)

    @property
    def seed(self) -> str:
        """What the key pair can be made from again: a secret."""
        return encode_seed(Prefix.CURVE, bytes(self._key))

    def seal(self, data: bytes, recipient: str) -> bytes:
        """`data` for the owner of the public curve key `recipient` only. Raises NkeyError."""
        from nacl.public import Box

        sealed: bytes = Box(self._key, _curve_key(recipient)).encrypt(data, os.urandom(_NONCE_LENGTH))
        return XKEY_VERSION + sealed

    def open(self, sealed: bytes, sender: str) -> bytes:
        """What the owner of the public curve key `sender` has sealed for this key. Raises NkeyError."""
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
