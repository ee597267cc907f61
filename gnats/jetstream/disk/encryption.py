"""Encryption with the server's key (jetstream.go): key files of streams and consumers, their small files.

A stream or a consumer has a seed in its meta.key, which the server's key opens. After another key or cipher
has been configured the old ones still open what was stored, to be converted
(gnats.jetstream.disk.conversion). gnats.store.format.crypto has the rest; it is not loaded before it is
needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnats.go.text import text_bytes
from gnats.options.values.jetstream import AES, CHACHA, JetStreamOptions
from gnats.system.files import make_directories, replace_file

META_KEY = "meta.key"
_SHORTEST_KEY_FILE = 64
_LONGEST_NONCE = 24


class MetaError(Exception):
    """Files that cannot be used; the text is for the log."""


class KeyTorn(MetaError):
    """A key file is shorter than any: it was not on the disk when the power went."""


@dataclass(frozen=True, slots=True, repr=False)
class Seal:
    """How one stream's or one consumer's files are encrypted."""

    cipher: str
    key: bytes
    """The server's."""
    seed: bytes
    is_current: bool = True
    """False: another key or cipher is configured by now."""
    nonce: bytes = b""
    """What the key file begins with: a block's stream begins there."""

    def seal(self, data: bytes) -> bytes:
        """Raises RuntimeError where OpenSSL fails."""
        from gnats.store.format.crypto import seal

        return seal(self.cipher, self.seed, data)

    def unseal(self, data: bytes) -> bytes:
        """Raises ValueError for what was not sealed with it, or has changed."""
        from gnats.store.format.crypto import unseal

        return unseal(self.cipher, self.seed, data)

    def xor_block(self, data: bytes) -> bytes:
        """Encrypt or decrypt a block file with its key."""
        from gnats.store.format.crypto import xor_block

        return xor_block(self.cipher, self.seed, self.nonce, 0, data)


class Keys:
    """The keys of a server; `account` is a part of what they make."""

    def __init__(self, options: JetStreamOptions) -> None:
        ciphers = options.cipher, AES if options.cipher == CHACHA else CHACHA
        keys = [key.encode() for key in (options.key, options.prev_key) if key]
        self._pairs = [(cipher, key) for key in keys for cipher in ciphers] if options.key else []

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def create(self, account: str, name: str) -> tuple[bytes, Seal]:
        """A new key file, not written yet, and what it stands for. There is a key configured."""
        from gnats.store.format.crypto import create_key

        cipher, key = self._pairs[0]
        file, seed = create_key(cipher, key, text_bytes(account + name))
        return file, Seal(cipher, key, seed, nonce=file[:_LONGEST_NONCE])

    def make(self, directory: Path, account: str, name: str, *, sync: bool = True) -> Seal | None:
        """Begin to encrypt, if a key is configured: the key file is written, to last with `sync`. Raises
        OSError."""
        if not self._pairs:
            return None
        file, seal = self.create(account, name)
        make_directories(directory, sync=sync)
        replace_file(directory / META_KEY, file, sync=sync)
        return seal

    def open(self, path: Path, account: str, name: str) -> Seal | None:
        """What a key file stands for, None when there is none. Raises MetaError."""
        try:
            file = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise MetaError(f"Error reading key file: {exc.strerror}") from None
        if len(file) < _SHORTEST_KEY_FILE:
            raise KeyTorn(f"Bad encryption key length of {len(file)}")
        if not self._pairs:
            raise MetaError("encryption not enabled")
        from gnats.store.format.crypto import open_key

        for pair in self._pairs:
            try:
                seed = open_key(*pair, text_bytes(account + name), file)
            except ValueError:
                continue
            return Seal(*pair, seed, is_current=pair == self._pairs[0], nonce=file[:_LONGEST_NONCE])
        raise MetaError("unable to recover keys")
