"""Encryption with the server's key (jetstream.go): key files of streams and consumers, their small files.

Each stream and consumer has a seed in its meta.key, which the server's key opens. After a change of the key
or cipher, prev_key and the other cipher still open old files, so that gnats.jetstream.disk.conversion can
convert them. gnats.store.format.crypto has the primitives; it is loaded on first use.
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
    """A file of a stream or consumer cannot be used; the text is for the log."""


class KeyTorn(MetaError):
    """A key file is too short: it was not yet on the disk when the machine stopped."""


@dataclass(frozen=True, slots=True, repr=False)
class Seal:
    """The cipher and keys of the files of one stream, consumer or block."""

    cipher: str
    key: bytes
    """The server's key."""
    seed: bytes
    is_current: bool = True
    """False when another key or cipher is configured now."""
    nonce: bytes = b""
    """The nonce at the beginning of the key file; also the nonce of a block's key stream."""

    def seal(self, data: bytes) -> bytes:
        """Encrypt and authenticate `data`. Raises RuntimeError when OpenSSL fails."""
        from gnats.store.format.crypto import seal

        return seal(self.cipher, self.seed, data)

    def unseal(self, data: bytes) -> bytes:
        """Decrypt sealed bytes. Raises ValueError when they were sealed with another key or have changed."""
        from gnats.store.format.crypto import unseal

        return unseal(self.cipher, self.seed, data)

    def xor_block(self, data: bytes) -> bytes:
        """Encrypt or decrypt a whole block file."""
        from gnats.store.format.crypto import xor_block

        return xor_block(self.cipher, self.seed, self.nonce, 0, data)


class Keys:
    """The keys of a server. Each key file is bound to an account and a name. False without a key."""

    def __init__(self, options: JetStreamOptions) -> None:
        ciphers = options.cipher, AES if options.cipher == CHACHA else CHACHA
        keys = [key.encode() for key in (options.key, options.prev_key) if key]
        self._pairs = [(cipher, key) for key in keys for cipher in ciphers] if options.key else []

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def create(self, account: str, name: str) -> tuple[bytes, Seal]:
        """Make a key file, without writing it; return (content, seal). A key must be configured."""
        from gnats.store.format.crypto import create_key

        cipher, key = self._pairs[0]
        file, seed = create_key(cipher, key, text_bytes(account + name))
        return file, Seal(cipher, key, seed, nonce=file[:_LONGEST_NONCE])

    def make(self, directory: Path, account: str, name: str, *, sync: bool = True) -> Seal | None:
        """Make and write a meta.key if a key is configured, else return None.

        With `sync`, the file is durable on return. Raises OSError.
        """
        if not self._pairs:
            return None
        file, seal = self.create(account, name)
        make_directories(directory, sync=sync)
        replace_file(directory / META_KEY, file, sync=sync)
        return seal

    def open(self, path: Path, account: str, name: str) -> Seal | None:
        """Read a key file; None when there is none. Raises MetaError."""
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
