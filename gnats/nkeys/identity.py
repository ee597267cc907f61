"""A server's identity (server.go): its id, a public nkey; its keys, for signing and sealing; unique ids."""

import os
import random
from dataclasses import dataclass

from gnats.conf.digest import new_sha256
from gnats.nkeys.nkeys import KEY_LENGTH, CurveKeyPair, KeyPair, Prefix, encode


class ServerKeys:
    """A server's key pairs for signing and sealing."""

    def __init__(self) -> None:
        self.signing = KeyPair.create(Prefix.SERVER)
        self.curve = CurveKeyPair.create()


@dataclass(frozen=True, slots=True)
class Identity:
    """The facts by which others know a server; they never change."""

    id: str
    name: str
    keys: ServerKeys | None = None
    """Keys that sign and seal requests to auth callouts; with them, the id is the public signing key."""


def new_server_id() -> str:
    """Return a new id without a key pair: N and 55 more base32 characters, the last of them a checksum."""
    return encode(Prefix.SERVER, os.urandom(KEY_LENGTH))


def new_identity(name: str, *, keys: bool) -> Identity:
    """Return a new server's identity; without a `name`, its id is its name."""
    pairs = ServerKeys() if keys else None
    server_id = pairs.signing.public_key if pairs else new_server_id()
    return Identity(server_id, name or server_id, pairs)


DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NUID_PREFIX, _NUID_TOTAL = 12, 22


def random_name(length: int, rng: random.Random | None = None) -> str:
    """Return a name of so many DIGITS. It is no secret."""
    return "".join((rng or random).choices(DIGITS, k=length))


def server_hash(name: str) -> str:
    """Return eight characters that stand for a server in subjects (getHash in events.go)."""
    digest = new_sha256()
    digest.update(name.encode("utf-8", "surrogateescape"))
    return "".join(DIGITS[byte % len(DIGITS)] for byte in digest.digest()[:8])


class NuidSource:
    """Unique ids (nuid): a random prefix, and a number that grows by a random step."""

    def __init__(self) -> None:
        self._number = random.randrange(62 ** (_NUID_TOTAL - _NUID_PREFIX))
        self._step = random.randrange(33, 333)
        self._prefix = "".join(DIGITS[byte % 62] for byte in os.urandom(_NUID_PREFIX))

    def next(self) -> str:
        """Return a new id of 22 characters."""
        self._number += self._step
        rest, digits = self._number, []
        for _ in range(_NUID_TOTAL - _NUID_PREFIX):
            rest, digit = divmod(rest, 62)
            digits.append(DIGITS[digit])
        return self._prefix + "".join(reversed(digits))
