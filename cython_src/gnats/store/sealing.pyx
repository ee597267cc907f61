"""Encryption of a store; see sealing.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EACCES, EBADMSG, EIO, ENOMEM, errno
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from posix.fcntl cimport O_CLOEXEC, O_RDONLY
from posix.unistd cimport close, read

import os

from gnats.includes.text cimport NUMBER_ROOM
from gnats.store.block cimport SEAL_KEY, Sealer, record_resync
from gnats.store.format.crypto cimport (
    AES,
    CHACHA,
    MAX_KEY_FILE,
    SEED,
    TAG,
    BlockCipher,
    block_cipher,
    block_xor,
    file_open,
    file_seal,
    key_create,
    key_file_size,
    key_open,
    nonce_size,
)
from gnats.store.format.highway cimport HighwayKey, highway_key_of
from gnats.store.format.packing cimport unpack_records
from gnats.store.format.record cimport RECORD_OK, Record, record_decode
from gnats.store.format.region cimport Region, region_free
from gnats.store.putfile cimport put_file

cdef extern from "<fcntl.h>" nogil:
    int openat(int dirfd, const char *path, int flags, ...)

cdef enum:
    CONTEXT_MORE = 1 + NUMBER_ROOM + 1    # what a block's context has behind the stream's: a colon, a number, the end


cdef int block_key(Held *h, uint32_t index, const uint8_t *seed, const uint8_t *nonce, void **key) noexcept nogil:
    key[0] = malloc(SEAL_KEY)
    if key[0] == NULL:
        return ENOMEM
    block_cipher(<BlockCipher *> key[0], h.cipher, seed, nonce)
    return 0


cdef int block_context(Held *h, uint32_t index, uint8_t **context) noexcept nogil:
    cdef char *p = <char *> malloc(h.context_n + CONTEXT_MORE)
    context[0] = <uint8_t *> p
    return snprintf(p, h.context_n + CONTEXT_MORE, "%.*s:%u", <int> h.context_n, h.context, index) if p != NULL else -1


cdef int new_key(Sealer *self, int dirfd, uint32_t index, void **key) noexcept nogil:
    cdef Held *h = <Held *> self
    cdef uint8_t data[MAX_KEY_FILE]
    cdef uint8_t seed[SEED]
    cdef char name[32]
    cdef uint8_t *context = NULL
    cdef int n = block_context(h, index, &context), rc
    if n < 0:
        return ENOMEM
    rc = key_create(h.cipher, h.key, h.key_n, context, n, data, seed)
    free(context)
    if rc != 0:
        return EIO
    snprintf(name, sizeof(name), "%u.key", index)
    rc = put_file(dirfd, name, data, key_file_size(h.cipher), False)
    return rc if rc else block_key(h, index, seed, data, key)


cdef int open_key(Sealer *self, int dirfd, uint32_t index, void **key) noexcept nogil:
    cdef Held *h = <Held *> self
    cdef uint8_t data[MAX_KEY_FILE + 1]
    cdef uint8_t seed[SEED]
    cdef char name[32]
    cdef uint8_t *context = NULL
    cdef ssize_t got
    cdef int fd, n, rc
    snprintf(name, sizeof(name), "%u.key", index)
    fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC)
    if fd < 0:
        return errno
    got = read(fd, data, sizeof(data))
    close(fd)
    if got < 0:
        return EIO
    if got < <ssize_t> key_file_size(h.cipher):
        return EBADMSG   # a loss of power came before it was synced, and so before any record
    n = block_context(h, index, &context)
    if n < 0:
        return ENOMEM
    rc = key_open(h.cipher, h.key, h.key_n, context, n, data, got, seed)
    free(context)
    return EACCES if rc != 0 else block_key(h, index, seed, data, key)


cdef int apply(const void *key, uint64_t offset, char *p, size_t n) noexcept nogil:
    return 0 if block_xor(<const BlockCipher *> key, offset, <uint8_t *> p, <uint8_t *> p, n) == 0 else EIO


cdef int seal(Sealer *self, const char *p, size_t n, char *out) noexcept nogil:
    cdef Held *h = <Held *> self
    return 0 if file_seal(h.cipher, h.seed, <const uint8_t *> p, n, <uint8_t *> out) == 0 else EIO


cdef int unseal(Sealer *self, const char *p, size_t n, char *out) noexcept nogil:
    cdef Held *h = <Held *> self
    return 0 if file_open(h.cipher, h.seed, <const uint8_t *> p, n, <uint8_t *> out) == 0 else EACCES


cdef class StreamSealer:
    """The keys of a stream. Reads meta.key in its directory, or makes that when there is none.

    cipher is "chacha" or "aes", key the server's. Raises OSError when the file cannot be read or made, was made with
    another key, or is damaged.
    """

    def __cinit__(self, str directory, str account, str stream, str cipher, bytes key not None):
        cdef uint8_t data[MAX_KEY_FILE]
        cdef bytes file
        self.held.cipher = {"chacha": CHACHA, "aes": AES}[cipher]
        self.server_key = key
        self.context = (account + stream).encode("utf-8", "surrogateescape")
        self.held.key = <const uint8_t *> PyBytes_AS_STRING(self.server_key)
        self.held.key_n = PyBytes_GET_SIZE(self.server_key)
        self.held.context = PyBytes_AS_STRING(self.context)
        self.held.context_n = PyBytes_GET_SIZE(self.context)
        self.held.face.new_key = new_key
        self.held.face.open_key = open_key
        self.held.face.apply = apply
        self.held.face.seal = seal
        self.held.face.unseal = unseal
        self.held.face.overhead = nonce_size(self.held.cipher) + TAG
        path = os.path.join(directory, "meta.key")
        try:
            with open(path, "rb") as opened:
                file = opened.read()
        except FileNotFoundError:
            if key_create(
                    self.held.cipher, self.held.key, self.held.key_n, <const uint8_t *> self.held.context,
                    self.held.context_n, data, self.held.seed) != 0:
                raise OSError(EIO, "no key can be made") from None
            with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as made:
                made.write((<char *> data)[:key_file_size(self.held.cipher)])
                made.flush()
                os.fsync(made.fileno())
            return
        if key_open(
                self.held.cipher, self.held.key, self.held.key_n, <const uint8_t *> self.held.context,
                self.held.context_n, <const uint8_t *> PyBytes_AS_STRING(file), len(file), self.held.seed) != 0:
            raise OSError(EACCES, "the server's key does not open it", path)

    def address(self) -> int:
        """Return the address of the Sealer struct, valid while this object lives."""
        return <size_t> &self.held


def readable(str stream not None, uint32_t index, bytes raw not None) -> bool:
    """Return whether the decrypted content of a block file, compressed or not, has a record of this block."""
    cdef bytes name = f"{stream}-{index}".encode()
    cdef const char *p = PyBytes_AS_STRING(raw)
    cdef size_t n = PyBytes_GET_SIZE(raw)
    cdef uint64_t records = 0
    cdef HighwayKey key
    cdef Region *r
    cdef Record first
    cdef int err = 0
    cdef bint found
    highway_key_of(&key, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
    with nogil:
        r = unpack_records(&key, p, n, 0, &records, &err)
        found = r != NULL and (
            record_decode(r.base, records, &key, &first) == RECORD_OK
            or record_resync(&key, r.base, records, 0, 0) < records)
        if r != NULL:
            region_free(r)
    if err and err != EBADMSG:
        raise OSError(err, os.strerror(err))
    return found
