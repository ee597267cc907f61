"""The parts of OpenSSL's libcrypto that the store uses: ciphers, HMAC-SHA-256, random bytes."""
from libc.stddef cimport size_t

cdef extern from "<openssl/evp.h>" nogil:
    ctypedef struct EVP_MD:
        pass
    ctypedef struct EVP_CIPHER:
        pass
    ctypedef struct EVP_CIPHER_CTX:
        pass
    enum:
        EVP_CTRL_AEAD_SET_IVLEN, EVP_CTRL_AEAD_GET_TAG, EVP_CTRL_AEAD_SET_TAG
    const EVP_MD *EVP_sha256()
    const EVP_CIPHER *EVP_chacha20()
    const EVP_CIPHER *EVP_chacha20_poly1305()
    const EVP_CIPHER *EVP_aes_256_ctr()
    const EVP_CIPHER *EVP_aes_256_gcm()
    EVP_CIPHER_CTX *EVP_CIPHER_CTX_new()
    void EVP_CIPHER_CTX_free(EVP_CIPHER_CTX *ctx)
    int EVP_CIPHER_CTX_ctrl(EVP_CIPHER_CTX *ctx, int type, int n, void *p)
    int EVP_CipherInit_ex(
        EVP_CIPHER_CTX *ctx, const EVP_CIPHER *cipher, void *engine, const unsigned char *key, const unsigned char *iv,
        int enc)
    int EVP_CipherUpdate(EVP_CIPHER_CTX *ctx, unsigned char *out, int *out_n, const unsigned char *data, int n)
    int EVP_CipherFinal_ex(EVP_CIPHER_CTX *ctx, unsigned char *out, int *out_n)

cdef extern from "<openssl/hmac.h>" nogil:
    unsigned char *HMAC(
        const EVP_MD *md, const void *key, int key_n, const unsigned char *data, size_t n, unsigned char *out,
        unsigned int *out_n)

cdef extern from "<openssl/rand.h>" nogil:
    int RAND_bytes(unsigned char *out, int n)

cdef extern from "<openssl/crypto.h>" nogil:
    void OPENSSL_cleanse(void *p, size_t n)
