"""Encryption of a store: key files, sealed files, and the key stream that block files are XORed with (filestore.go).

A key file is a nonce and a random seed of 32 bytes, sealed with a key derived from the server's key and a context. The
context is the account's name followed by the stream's, by `stream.consumer` or by `stream:block`. A sealed file is a
nonce, data encrypted with the seed, and a tag. A block file is XORed with a key stream of its seed and the nonce of its
key file, and so as long as its records.

`chacha` is XChaCha20-Poly1305 with nonces of 24 bytes, `aes` is AES-256-GCM with nonces of 16. This module loads
OpenSSL: a store without encryption must not import it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t

cdef enum Cipher:
    CHACHA = 1
    AES = 2

cdef enum:
    # bytes
    SEED = 32
    TAG = 16
    MAX_NONCE = 24
    MAX_KEY_FILE = MAX_NONCE + SEED + TAG

cdef enum CryptoError:
    CRYPTO_FAILED = -1        # the key does not fit the data, or the data was changed
    CRYPTO_BROKEN = -2        # OpenSSL failed: no memory, no random bytes, or no such cipher


cdef struct BlockCipher:
    uint8_t cipher
    uint8_t key[32]
    uint8_t iv[16]            # of the first byte of the key stream


cdef size_t nonce_size(int cipher) noexcept nogil
cdef size_t key_file_size(int cipher) noexcept nogil

# Make a key file of key_file_size() bytes and its seed (SEED bytes). 0 or CRYPTO_BROKEN.
cdef int key_create(
    int cipher, const uint8_t *server_key, size_t key_n, const uint8_t *context, size_t context_n,
    uint8_t *file, uint8_t *seed) noexcept nogil
# Open a key file and get its seed. 0 or a CryptoError.
cdef int key_open(
    int cipher, const uint8_t *server_key, size_t key_n, const uint8_t *context, size_t context_n,
    const uint8_t *file, size_t n, uint8_t *seed) noexcept nogil

# Encrypt n bytes to nonce_size() + n + TAG bytes. 0 or CRYPTO_BROKEN.
cdef int file_seal(int cipher, const uint8_t *seed, const uint8_t *data, size_t n, uint8_t *out) noexcept nogil
# Decrypt a sealed file of n bytes to n - nonce_size() - TAG bytes. 0 or a CryptoError.
cdef int file_open(int cipher, const uint8_t *seed, const uint8_t *data, size_t n, uint8_t *out) noexcept nogil

# Prepare a block's key stream: from its seed and the nonce, with which its key file begins.
cdef void block_cipher(BlockCipher *b, int cipher, const uint8_t *seed, const uint8_t *nonce) noexcept nogil
# Encrypt or decrypt n bytes that are at an offset of the block; `out` may be `data`. 0 or CRYPTO_BROKEN.
cdef int block_xor(
    const BlockCipher *b, uint64_t offset, const uint8_t *data, uint8_t *out, size_t n) noexcept nogil
