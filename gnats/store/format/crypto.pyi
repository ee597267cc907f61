"""Encryption of a store, with the cipher "chacha" or "aes". Importing this module loads OpenSSL.

The functions raise ValueError for an unknown cipher, a wrong key or seed, and changed data; RuntimeError when
OpenSSL fails.
"""

def create_key(cipher: str, server_key: bytes, context: bytes) -> tuple[bytes, bytes]:
    """Make a key file; return its content and its seed.

    context is the account's name followed by the stream's, by `stream.consumer` or by `stream:block`.
    """

def open_key(cipher: str, server_key: bytes, context: bytes, file: bytes) -> bytes:
    """Open a key file; return its seed."""

def seal(cipher: str, seed: bytes, data: bytes) -> bytes:
    """Encrypt a file such as meta.inf, index.db or o.dat."""

def unseal(cipher: str, seed: bytes, data: bytes) -> bytes:
    """Decrypt a file that seal() encrypted."""

def xor_block(cipher: str, seed: bytes, nonce: bytes, offset: int, data: bytes) -> bytes:
    """Encrypt or decrypt data at an offset of a block file. The block's key file begins with the nonce."""
