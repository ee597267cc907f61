"""Encryption of a store in files (filestore.go): block keys, and the stream's own for index.db.

Loads OpenSSL (gnats.store.crypto)."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from gnats.store.block cimport Sealer


cdef struct Held:
    # what the functions need of a StreamSealer, behind its face
    Sealer face
    int cipher
    const uint8_t *key
    size_t key_n
    const char *context
    size_t context_n
    uint8_t seed[32]


cdef class StreamSealer:
    cdef Held held             # blocks have its address
    cdef bytes server_key
    cdef bytes context         # account and stream
