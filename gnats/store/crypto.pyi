"""Encryption of a store, with the cipher "chacha" or "aes"; what it depends on is not loaded otherwise.

Raises ValueError for another cipher, key or seed and for a file that was changed, RuntimeError where OpenSSL
fails.
"""

def create_key(cipher: str, server_key: bytes, context: bytes) -> tuple[bytes, bytes]:
    """A new key file and its seed.

    The context is the account's name followed by the stream's, `stream.consumer` or `stream:block`.
    """

def open_key(cipher: str, server_key: bytes, context: bytes, file: bytes) -> bytes:
    """The seed of a key file."""

def seal(cipher: str, seed: bytes, data: bytes) -> bytes:
    """A sealed file: meta.inf, index.db and o.dat are such."""

def unseal(cipher: str, seed: bytes, data: bytes) -> bytes:
    """What a sealed file holds."""

def xor_block(cipher: str, seed: bytes, nonce: bytes, offset: int, data: bytes) -> bytes:
    """Encrypts or decrypts what is `offset` bytes into a block file; its key file begins with the nonce."""
