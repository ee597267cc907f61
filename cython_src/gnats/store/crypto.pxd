"""Encryption of a store: key files, sealed files, and the stream that block files are XORed with (filestore.go).

A key file is a nonce and a random seed of 32 bytes, sealed with a key that the server's key and a context give: the
account's name and then the stream's, `stream.consumer` or `stream:block`. A sealed file is a nonce and what the seed
seals. A block file is as long as its records: XORed with a stream of the seed and the nonce of its key file.

`chacha` is XChaCha20-Poly1305 with nonces of 24 bytes, `aes` is AES-256-GCM with nonces of 16. This module loads
OpenSSL: a store without encryption must not import it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t

cdef enum Cipher:
    CHACHA = 1
    AES = 2

cdef enum:
    SEED = 32
    TAG = 16
    MAX_NONCE = 24
    MAX_KEY_FILE = MAX_NONCE + SEED + TAG

cdef enum CryptoError:
    CRYPTO_FAILED = -1        # another key, or another file
    CRYPTO_BROKEN = -2        # OpenSSL has no memory, no random bytes or not the cipher


cdef struct BlockCipher:
    uint8_t cipher
    uint8_t key[32]
    uint8_t iv[16]            # where the stream begins


cdef size_t nonce_size(int cipher) noexcept nogil
cdef size_t key_file_size(int cipher) noexcept nogil

# A new key file of key_file_size() bytes and its seed. 0 or CRYPTO_BROKEN.
cdef int key_create(
    int cipher, const uint8_t *server_key, size_t key_n, const uint8_t *context, size_t context_n,
    uint8_t *file, uint8_t *seed) noexcept nogil
# The seed of a key file. 0 or a CryptoError.
cdef int key_open(
    int cipher, const uint8_t *server_key, size_t key_n, const uint8_t *context, size_t context_n,
    const uint8_t *file, size_t n, uint8_t *seed) noexcept nogil

# Nonce, sealed data and tag: nonce_size() + n + TAG bytes. 0 or CRYPTO_BROKEN.
cdef int file_seal(int cipher, const uint8_t *seed, const uint8_t *data, size_t n, uint8_t *out) noexcept nogil
# What a sealed file holds: n less nonce_size() and TAG bytes. 0 or a CryptoError.
cdef int file_open(int cipher, const uint8_t *seed, const uint8_t *data, size_t n, uint8_t *out) noexcept nogil

# The stream of a block: from its seed and the first bytes of its key file.
cdef void block_cipher(BlockCipher *b, int cipher, const uint8_t *seed, const uint8_t *nonce) noexcept nogil
# Encrypts or decrypts n bytes that are `offset` bytes into the block; in place where out is data. 0 or CRYPTO_BROKEN.
cdef int block_xor(
    const BlockCipher *b, uint64_t offset, const uint8_t *data, uint8_t *out, size_t n) noexcept nogil
