"""Encryption of a store in files: a key for each block, and one of the stream for index.db (filestore.go).

Importing this module loads OpenSSL (gnats.store.format.crypto)."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from gnats.store.block cimport Sealer


cdef struct Held:
    # The Sealer of a StreamSealer and the data that its functions use. `face` is first: a Sealer pointer is a Held one.
    Sealer face
    int cipher                 # CHACHA or AES
    const uint8_t *key         # the server's; owned by the StreamSealer, as is context
    size_t key_n
    const char *context        # the names of account and stream; part of each key
    size_t context_n
    uint8_t seed[32]           # the stream's key


cdef class StreamSealer:
    cdef Held held             # BlockEnv.sealer points to it
    cdef bytes server_key
    cdef bytes context
