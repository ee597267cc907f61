"""Encryption of a store; see crypto.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from gnats.includes.evp cimport (
    EVP_CIPHER,
    EVP_CIPHER_CTX,
    EVP_CIPHER_CTX_ctrl,
    EVP_CIPHER_CTX_free,
    EVP_CIPHER_CTX_new,
    EVP_CTRL_AEAD_GET_TAG,
    EVP_CTRL_AEAD_SET_IVLEN,
    EVP_CTRL_AEAD_SET_TAG,
    EVP_aes_256_ctr,
    EVP_aes_256_gcm,
    EVP_chacha20,
    EVP_chacha20_poly1305,
    EVP_CipherFinal_ex,
    EVP_CipherInit_ex,
    EVP_CipherUpdate,
    EVP_sha256,
    HMAC,
    OPENSSL_cleanse,
    RAND_bytes,
)
from gnats.includes.text cimport put_text

cdef enum:
    STEP = 1 << 30             # most bytes for one call of OpenSSL, whose sizes are ints
    CHACHA_BLOCK = 64
    AES_BLOCK = 16


cdef inline uint32_t rotate(uint32_t v, int n) noexcept nogil:
    return v << n | v >> (32 - n)


cdef inline void quarter_round(uint32_t *x, int a, int b, int c, int d) noexcept nogil:
    x[a] += x[b]
    x[d] = rotate(x[d] ^ x[a], 16)
    x[c] += x[d]
    x[b] = rotate(x[b] ^ x[c], 12)
    x[a] += x[b]
    x[d] = rotate(x[d] ^ x[a], 8)
    x[c] += x[d]
    x[b] = rotate(x[b] ^ x[c], 7)


cdef void hchacha20(uint8_t *subkey, const uint8_t *key, const uint8_t *nonce) noexcept nogil:
    """Derive XChaCha20's subkey from the first 16 bytes of a nonce (draft-irtf-cfrg-xchacha, 2.2)."""
    cdef uint32_t x[16]
    cdef int _
    put_text(<char *> x, b"expand 32-byte k")
    memcpy(x + 4, key, 32)
    memcpy(x + 12, nonce, 16)
    for _ in range(10):
        quarter_round(x, 0, 4, 8, 12)
        quarter_round(x, 1, 5, 9, 13)
        quarter_round(x, 2, 6, 10, 14)
        quarter_round(x, 3, 7, 11, 15)
        quarter_round(x, 0, 5, 10, 15)
        quarter_round(x, 1, 6, 11, 12)
        quarter_round(x, 2, 7, 8, 13)
        quarter_round(x, 3, 4, 9, 14)
    memcpy(subkey, x, 16)
    memcpy(subkey + 16, x + 12, 16)


cdef size_t nonce_size(int cipher) noexcept nogil:
    return 24 if cipher == CHACHA else 16


cdef size_t key_file_size(int cipher) noexcept nogil:
    return nonce_size(cipher) + SEED + TAG


# ---- one look at the data ----

cdef bint update(EVP_CIPHER_CTX *ctx, uint8_t *out, const uint8_t *data, size_t n) noexcept nogil:
    cdef int part, done = 0
    while n:
        part = <int> min(n, <size_t> STEP)
        if EVP_CipherUpdate(ctx, out, &done, data, part) != 1 or done != part:
            return False
        out += part
        data += part
        n -= part
    return True


cdef int aead(
    int cipher, const uint8_t *key, const uint8_t *nonce, const uint8_t *data, uint8_t *out, size_t n, uint8_t *tag,
    bint enc,
) noexcept nogil:
    """Seal or open n bytes; write or verify the tag."""
    cdef const EVP_CIPHER *type = EVP_chacha20_poly1305() if cipher == CHACHA else EVP_aes_256_gcm()
    cdef EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new()
    cdef uint8_t subkey[32]
    cdef uint8_t iv[16]
    cdef uint8_t rest[16]
    cdef int result = CRYPTO_BROKEN, iv_n = 16, done = 0
    if ctx == NULL:
        return CRYPTO_BROKEN
    if cipher == CHACHA:
        hchacha20(subkey, key, nonce)
        memset(iv, 0, 4)
        memcpy(iv + 4, nonce + 16, 8)
        iv_n = 12
    else:
        memcpy(subkey, key, 32)
        memcpy(iv, nonce, 16)
    if (
        EVP_CipherInit_ex(ctx, type, NULL, NULL, NULL, enc) == 1
        and EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, iv_n, NULL) == 1
        and EVP_CipherInit_ex(ctx, NULL, NULL, subkey, iv, enc) == 1
        and (enc or EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, TAG, tag) == 1)
        and update(ctx, out, data, n)
    ):
        if EVP_CipherFinal_ex(ctx, rest, &done) != 1:
            result = CRYPTO_BROKEN if enc else CRYPTO_FAILED
        elif not enc or EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG, tag) == 1:
            result = 0
    EVP_CIPHER_CTX_free(ctx)
    OPENSSL_cleanse(subkey, sizeof(subkey))
    return result


cdef int file_seal(int cipher, const uint8_t *seed, const uint8_t *data, size_t n, uint8_t *out) noexcept nogil:
    cdef size_t front = nonce_size(cipher)
    if RAND_bytes(out, <int> front) != 1:
        return CRYPTO_BROKEN
    return aead(cipher, seed, out, data, out + front, n, out + front + n, True)


cdef int file_open(int cipher, const uint8_t *seed, const uint8_t *data, size_t n, uint8_t *out) noexcept nogil:
    cdef size_t front = nonce_size(cipher)
    cdef uint8_t tag[TAG]
    if n < front + TAG:
        return CRYPTO_FAILED
    memcpy(tag, data + n - TAG, TAG)
    return aead(cipher, seed, data, data + front, out, n - front - TAG, tag, False)


# ---- key files ----

cdef bint sealing_key(
    const uint8_t *server_key, size_t key_n, const uint8_t *context, size_t context_n, uint8_t *out,
) noexcept nogil:
    return key_n < STEP and HMAC(EVP_sha256(), server_key, <int> key_n, context, context_n, out, NULL) != NULL


cdef int key_create(
    int cipher, const uint8_t *server_key, size_t key_n, const uint8_t *context, size_t context_n,
    uint8_t *file, uint8_t *seed,
) noexcept nogil:
    cdef uint8_t key[32]
    cdef int bad
    if RAND_bytes(seed, SEED) != 1 or not sealing_key(server_key, key_n, context, context_n, key):
        return CRYPTO_BROKEN
    bad = file_seal(cipher, key, seed, SEED, file)
    OPENSSL_cleanse(key, sizeof(key))
    return bad


cdef int key_open(
    int cipher, const uint8_t *server_key, size_t key_n, const uint8_t *context, size_t context_n,
    const uint8_t *file, size_t n, uint8_t *seed,
) noexcept nogil:
    cdef uint8_t key[32]
    cdef int bad
    if n != key_file_size(cipher):
        return CRYPTO_FAILED
    if not sealing_key(server_key, key_n, context, context_n, key):
        return CRYPTO_BROKEN
    bad = file_open(cipher, key, file, n, seed)
    OPENSSL_cleanse(key, sizeof(key))
    return bad


# ---- blocks ----

cdef void block_cipher(BlockCipher *b, int cipher, const uint8_t *seed, const uint8_t *nonce) noexcept nogil:
    b.cipher = <uint8_t> cipher
    if cipher == CHACHA:
        # The IV: a counter of 32 bits, 4 bytes of zeroes, the last 8 bytes of the nonce.
        hchacha20(b.key, seed, nonce)
        memset(b.iv, 0, 8)
        memcpy(b.iv + 8, nonce + 16, 8)
    else:
        memcpy(b.key, seed, 32)
        memcpy(b.iv, nonce, 16)


cdef void seek(const BlockCipher *b, uint64_t offset, uint8_t *iv) noexcept nogil:
    """Set the IV for the cipher's block that contains byte `offset` of the key stream."""
    cdef uint32_t counter
    cdef uint64_t steps
    cdef int i
    memcpy(iv, b.iv, 16)
    if b.cipher == CHACHA:
        counter = <uint32_t> (offset // CHACHA_BLOCK)
        memcpy(iv, &counter, 4)
        return
    # All 16 bytes are one big-endian counter.
    steps = offset // AES_BLOCK
    for i in range(15, -1, -1):
        steps += iv[i]
        iv[i] = <uint8_t> steps
        steps >>= 8


cdef int block_xor(
    const BlockCipher *b, uint64_t offset, const uint8_t *data, uint8_t *out, size_t n,
) noexcept nogil:
    cdef const EVP_CIPHER *type = EVP_chacha20() if b.cipher == CHACHA else EVP_aes_256_ctr()
    cdef EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new()
    cdef uint8_t iv[16]
    cdef uint8_t skipped[CHACHA_BLOCK]
    cdef size_t skip = offset & ((CHACHA_BLOCK if b.cipher == CHACHA else AES_BLOCK) - 1)
    cdef int result = CRYPTO_BROKEN
    if ctx == NULL:
        return CRYPTO_BROKEN
    seek(b, offset, iv)
    memset(skipped, 0, sizeof(skipped))
    if (
        EVP_CipherInit_ex(ctx, type, NULL, b.key, iv, 1) == 1
        and update(ctx, skipped, skipped, skip)
        and update(ctx, out, data, n)
    ):
        result = 0
    EVP_CIPHER_CTX_free(ctx)
    return result


# ---- for Python ----

CIPHERS = {"chacha": CHACHA, "aes": AES}


cdef int number(str cipher) except -1:
    if cipher not in CIPHERS:
        raise ValueError(f"{cipher!r} is no cipher; known: {', '.join(CIPHERS)}")
    return CIPHERS[cipher]


cdef int check(int bad, str what) except -1:
    if bad == CRYPTO_FAILED:
        raise ValueError(what)
    if bad:
        raise RuntimeError("OpenSSL failed")
    return 0


cdef inline const uint8_t *raw(bytes data) noexcept:
    return <const uint8_t *> PyBytes_AS_STRING(data)


cdef int check_seed(bytes seed) except -1:
    if len(seed) != SEED:
        raise ValueError(f"a seed has 32 bytes, not {len(seed)}")
    return 0


def create_key(str cipher not None, bytes server_key not None, bytes context not None) -> tuple[bytes, bytes]:
    cdef int c = number(cipher)
    file = PyBytes_FromStringAndSize(NULL, key_file_size(c))
    seed = PyBytes_FromStringAndSize(NULL, SEED)
    check(key_create(c, raw(server_key), len(server_key), raw(context), len(context),
                     <uint8_t *> PyBytes_AS_STRING(file), <uint8_t *> PyBytes_AS_STRING(seed)), "")
    return file, seed


def open_key(
    str cipher not None, bytes server_key not None, bytes context not None, bytes file not None,
) -> bytes:
    cdef int c = number(cipher)
    seed = PyBytes_FromStringAndSize(NULL, SEED)
    check(key_open(c, raw(server_key), len(server_key), raw(context), len(context), raw(file), len(file),
                   <uint8_t *> PyBytes_AS_STRING(seed)), "the key file is another key's or cipher's")
    return seed


def seal(str cipher not None, bytes seed not None, bytes data not None) -> bytes:
    cdef int c = number(cipher)
    check_seed(seed)
    out = PyBytes_FromStringAndSize(NULL, nonce_size(c) + len(data) + TAG)
    check(file_seal(c, raw(seed), raw(data), len(data), <uint8_t *> PyBytes_AS_STRING(out)), "")
    return out


def unseal(str cipher not None, bytes seed not None, bytes data not None) -> bytes:
    cdef int c = number(cipher)
    check_seed(seed)
    if <size_t> len(data) < nonce_size(c) + TAG:
        raise ValueError("the file was sealed with another key, or is damaged")
    out = PyBytes_FromStringAndSize(NULL, len(data) - nonce_size(c) - TAG)
    check(file_open(c, raw(seed), raw(data), len(data), <uint8_t *> PyBytes_AS_STRING(out)),
          "the file was sealed with another key, or is damaged")
    return out


def xor_block(
    str cipher not None, bytes seed not None, bytes nonce not None, uint64_t offset, bytes data not None,
) -> bytes:
    cdef BlockCipher b
    cdef const uint8_t *p
    cdef uint8_t *into
    cdef size_t n
    cdef int c = number(cipher), bad
    check_seed(seed)
    if <size_t> len(nonce) < nonce_size(c):
        raise ValueError(f"a nonce has {nonce_size(c)} bytes, not {len(nonce)}")
    block_cipher(&b, c, raw(seed), raw(nonce))
    out = PyBytes_FromStringAndSize(NULL, len(data))
    p, into, n = raw(data), <uint8_t *> PyBytes_AS_STRING(out), len(data)
    with nogil:
        bad = block_xor(&b, offset, p, into, n)
    check(bad, "")
    return out
