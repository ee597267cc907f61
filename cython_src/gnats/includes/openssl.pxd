"""The parts of OpenSSL 3 that gnats uses: libssl and libcrypto."""
from libc.stddef cimport size_t
from libc.stdint cimport uint16_t, uint64_t

cdef extern from "<openssl/evp.h>" nogil:
    ctypedef struct EVP_PKEY:
        pass
    ctypedef struct EVP_MD:
        pass
    const EVP_MD *EVP_sha256()
    int EVP_Digest(const void *data, size_t n, unsigned char *md, unsigned int *size, const EVP_MD *type, void *engine)
    void EVP_PKEY_free(EVP_PKEY *key)
    enum:
        EVP_PKEY_RSA
    int EVP_PKEY_get_base_id(const EVP_PKEY *key)

cdef extern from "<openssl/obj_mac.h>" nogil:
    enum:
        NID_auth_rsa, NID_auth_ecdsa

cdef extern from "<openssl/bio.h>" nogil:
    ctypedef struct BIO:
        pass
    ctypedef struct BIO_METHOD:
        pass
    enum:
        BIO_TYPE_SOURCE_SINK, BIO_CTRL_FLUSH
    BIO_METHOD *BIO_meth_new(int type, const char *name)
    int BIO_get_new_index()
    int BIO_meth_set_write(BIO_METHOD *method, int (*write)(BIO *, const char *, int) noexcept nogil)
    int BIO_meth_set_read(BIO_METHOD *method, int (*read)(BIO *, char *, int) noexcept nogil)
    int BIO_meth_set_ctrl(BIO_METHOD *method, long (*ctrl)(BIO *, int, long, void *) noexcept nogil)
    BIO *BIO_new(const BIO_METHOD *method)
    BIO *BIO_new_mem_buf(const void *buf, int n)
    int BIO_free(BIO *bio)
    void BIO_set_data(BIO *bio, void *data)
    void *BIO_get_data(BIO *bio)
    void BIO_set_init(BIO *bio, int init)
    void BIO_set_retry_read(BIO *bio)
    void BIO_clear_retry_flags(BIO *bio)

cdef extern from "<openssl/x509.h>" nogil:
    ctypedef struct X509:
        pass
    ctypedef struct X509_NAME:
        pass
    ctypedef struct X509_PUBKEY:
        pass
    ctypedef struct X509_NAME_ENTRY:
        pass
    ctypedef struct ASN1_OBJECT:
        pass
    ctypedef struct ASN1_STRING:
        pass
    ctypedef struct ASN1_TIME:
        pass
    X509 *d2i_X509(X509 **out, const unsigned char **der, long n)
    int X509_NAME_entry_count(const X509_NAME *name)
    X509_NAME_ENTRY *X509_NAME_get_entry(const X509_NAME *name, int at)
    int X509_NAME_ENTRY_set(const X509_NAME_ENTRY *entry)
    ASN1_OBJECT *X509_NAME_ENTRY_get_object(const X509_NAME_ENTRY *entry)
    ASN1_STRING *X509_NAME_ENTRY_get_data(const X509_NAME_ENTRY *entry)
    int OBJ_obj2txt(char *buf, int n, const ASN1_OBJECT *object, int no_name)
    void X509_free(X509 *cert)
    int X509_up_ref(X509 *cert)
    int i2d_X509(X509 *cert, unsigned char **out)
    X509_PUBKEY *X509_get_X509_PUBKEY(const X509 *cert)
    int i2d_X509_PUBKEY(const X509_PUBKEY *key, unsigned char **out)
    int X509_check_private_key(const X509 *cert, const EVP_PKEY *key)
    X509_NAME *X509_get_subject_name(const X509 *cert)
    X509_NAME *X509_NAME_dup(const X509_NAME *name)
    const ASN1_TIME *X509_get0_notBefore(const X509 *cert)
    const ASN1_TIME *X509_get0_notAfter(const X509 *cert)

cdef extern from "<openssl/asn1.h>" nogil:
    int ASN1_STRING_to_UTF8(unsigned char **out, const ASN1_STRING *text)
    const unsigned char *ASN1_STRING_get0_data(const ASN1_STRING *text)
    int ASN1_STRING_length(const ASN1_STRING *text)
    int ASN1_TIME_to_tm(const ASN1_TIME *when, tm *out)

cdef extern from "<time.h>" nogil:
    cdef struct tm:
        int tm_sec, tm_min, tm_hour, tm_mday, tm_mon, tm_year

cdef extern from "<openssl/x509_vfy.h>" nogil:
    ctypedef struct X509_STORE:
        pass
    ctypedef struct X509_STORE_CTX:
        pass
    ctypedef struct X509_stack "STACK_OF(X509)":
        pass
    ctypedef struct X509_NAME_stack "STACK_OF(X509_NAME)":
        pass
    enum:
        X509_V_OK, X509_V_FLAG_PARTIAL_CHAIN
        X509_V_ERR_CERT_SIGNATURE_FAILURE, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, X509_V_ERR_UNSPECIFIED
        X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED, X509_V_ERR_CERT_REJECTED
        X509_V_ERR_HOSTNAME_MISMATCH
    int X509_STORE_add_cert(X509_STORE *store, X509 *cert)
    int X509_STORE_set_flags(X509_STORE *store, unsigned long flags)
    X509_stack *X509_STORE_CTX_get0_untrusted(const X509_STORE_CTX *ctx)
    const char *X509_verify_cert_error_string(long error)
    int X509_verify_cert(X509_STORE_CTX *ctx)
    # Below zero: the time is in the past, above zero: not; 0: it cannot be read.
    int X509_cmp_current_time(const ASN1_TIME *when)
    X509 *X509_STORE_CTX_get0_cert(const X509_STORE_CTX *ctx)
    int X509_STORE_CTX_get_error(const X509_STORE_CTX *ctx)
    void X509_STORE_CTX_set_error(X509_STORE_CTX *ctx, int error)
    void *X509_STORE_CTX_get_ex_data(const X509_STORE_CTX *ctx, int index)
    X509_stack *sk_X509_new_null()
    int sk_X509_push(X509_stack *stack, X509 *cert)
    int sk_X509_num(const X509_stack *stack)
    X509 *sk_X509_value(const X509_stack *stack, int index)
    void sk_X509_pop_free(X509_stack *stack, void (*free)(X509 *))
    X509_NAME_stack *sk_X509_NAME_new_null()
    int sk_X509_NAME_push(X509_NAME_stack *stack, X509_NAME *name)

cdef extern from "<openssl/x509v3.h>" nogil:
    ctypedef struct GENERAL_NAME:
        pass
    ctypedef struct GENERAL_NAMES:
        pass
    enum:
        NID_subject_alt_name, GEN_EMAIL, GEN_DNS, GEN_URI, GEN_IPADD, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT
    int X509_check_host(X509 *cert, const char *name, size_t n, unsigned int flags, char **peer)
    void *X509_get_ext_d2i(const X509 *cert, int nid, int *critical, int *at)
    int sk_GENERAL_NAME_num(const GENERAL_NAMES *names)
    GENERAL_NAME *sk_GENERAL_NAME_value(const GENERAL_NAMES *names, int at)
    void *GENERAL_NAME_get0_value(const GENERAL_NAME *name, int *type)
    void GENERAL_NAMES_free(GENERAL_NAMES *names)

cdef extern from "<openssl/crypto.h>" nogil:
    # a macro, so that it takes one argument
    void OPENSSL_free(void *memory)

cdef extern from "<openssl/pem.h>" nogil:
    ctypedef int pem_password_cb(char *buf, int size, int writing, void *data) noexcept nogil
    X509 *PEM_read_bio_X509(BIO *bio, X509 **out, pem_password_cb *password, void *data)
    EVP_PKEY *PEM_read_bio_PrivateKey(BIO *bio, EVP_PKEY **out, pem_password_cb *password, void *data)

cdef extern from "<openssl/err.h>" nogil:
    void ERR_clear_error()
    unsigned long ERR_get_error()
    unsigned long ERR_peek_error()
    const char *ERR_reason_error_string(unsigned long code)
    int ERR_GET_REASON(unsigned long code)
    int ERR_GET_LIB(unsigned long code)
    enum:
        ERR_LIB_PEM, PEM_R_NO_START_LINE

cdef extern from "<openssl/ssl.h>" nogil:
    ctypedef struct SSL:
        pass
    ctypedef struct SSL_CTX:
        pass
    ctypedef struct SSL_METHOD:
        pass
    ctypedef struct SSL_CIPHER:
        pass
    ctypedef struct SSL_CIPHER_stack "STACK_OF(SSL_CIPHER)":
        pass
    SSL_CIPHER_stack *SSL_get_client_ciphers(const SSL *ssl)
    int sk_SSL_CIPHER_num(const SSL_CIPHER_stack *stack)
    const SSL_CIPHER *sk_SSL_CIPHER_value(const SSL_CIPHER_stack *stack, int at)
    int SSL_CIPHER_get_auth_nid(const SSL_CIPHER *cipher)
    enum:
        SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE, SSL_ERROR_ZERO_RETURN
        SSL_MODE_ENABLE_PARTIAL_WRITE, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER
        SSL_VERIFY_NONE, SSL_VERIFY_PEER, SSL_VERIFY_FAIL_IF_NO_PEER_CERT
        SSL_SESS_CACHE_OFF, SSL_MODE_RELEASE_BUFFERS
        TLSEXT_NAMETYPE_host_name, CERT_PKEY_VALID
        SSL_R_HTTP_REQUEST, SSL_R_HTTPS_PROXY_REQUEST, SSL_R_WRONG_VERSION_NUMBER
    uint64_t SSL_OP_NO_COMPRESSION, SSL_OP_NO_RENEGOTIATION, SSL_OP_NO_TICKET, SSL_OP_CIPHER_SERVER_PREFERENCE
    uint64_t SSL_OP_PRIORITIZE_CHACHA
    const SSL_METHOD *TLS_server_method()
    const SSL_METHOD *TLS_client_method()
    const SSL_METHOD *TLS_method()
    SSL_CTX *SSL_CTX_new(const SSL_METHOD *method)
    void SSL_CTX_free(SSL_CTX *ctx)
    uint64_t SSL_CTX_set_options(SSL_CTX *ctx, uint64_t options)
    long SSL_CTX_set_mode(SSL_CTX *ctx, long mode)
    long SSL_CTX_set_session_cache_mode(SSL_CTX *ctx, long mode)
    int SSL_CTX_set_num_tickets(SSL_CTX *ctx, size_t n)
    void SSL_CTX_set_security_level(SSL_CTX *ctx, int level)
    int SSL_CTX_set_min_proto_version(SSL_CTX *ctx, int version)
    int SSL_CTX_set_cipher_list(SSL_CTX *ctx, const char *names)
    int SSL_CTX_set_ciphersuites(SSL_CTX *ctx, const char *names)
    long SSL_CTX_set1_groups_list(SSL_CTX *ctx, const char *names)
    int SSL_CTX_use_cert_and_key(SSL_CTX *ctx, X509 *cert, EVP_PKEY *key, X509_stack *chain, int override)
    void SSL_CTX_set_cert_cb(SSL_CTX *ctx, int (*choose)(SSL *, void *) noexcept nogil, void *arg)
    void SSL_CTX_set_verify(SSL_CTX *ctx, int mode, int (*verify)(int, X509_STORE_CTX *) noexcept nogil)
    void SSL_CTX_set_cert_verify_callback(
        SSL_CTX *ctx, int (*verify)(X509_STORE_CTX *, void *) noexcept nogil, void *arg)
    X509_STORE *SSL_CTX_get_cert_store(const SSL_CTX *ctx)
    int SSL_CTX_set_default_verify_paths(SSL_CTX *ctx)
    void SSL_CTX_set_client_CA_list(SSL_CTX *ctx, X509_NAME_stack *names)
    SSL *SSL_new(SSL_CTX *ctx)
    void SSL_free(SSL *ssl)
    void SSL_set_bio(SSL *ssl, BIO *reader, BIO *writer)
    int SSL_set_app_data(SSL *ssl, void *data)
    void *SSL_get_app_data(const SSL *ssl)
    int SSL_get_ex_data_X509_STORE_CTX_idx()
    void SSL_set_accept_state(SSL *ssl)
    void SSL_set_connect_state(SSL *ssl)
    int SSL_is_server(const SSL *ssl)
    void SSL_set_verify(SSL *ssl, int mode, int (*verify)(int, X509_STORE_CTX *) noexcept nogil)
    int SSL_get_verify_mode(const SSL *ssl)
    long SSL_set_tlsext_host_name(SSL *ssl, const char *name)
    int SSL_set_fd(SSL *ssl, int fd)
    int SSL_do_handshake(SSL *ssl)
    int SSL_read(SSL *ssl, void *buf, int n)
    int SSL_write(SSL *ssl, const void *buf, int n)
    int SSL_pending(const SSL *ssl)
    int SSL_has_pending(const SSL *ssl)
    const char *SSL_rstate_string(const SSL *ssl)
    int SSL_shutdown(SSL *ssl)
    int SSL_get_error(const SSL *ssl, int result)
    int SSL_version(const SSL *ssl)
    long SSL_get_verify_result(const SSL *ssl)
    X509 *SSL_get0_peer_certificate(const SSL *ssl)
    X509_stack *SSL_get_peer_cert_chain(const SSL *ssl)
    const SSL_CIPHER *SSL_get_current_cipher(const SSL *ssl)
    const char *OPENSSL_cipher_name(const char *iana_name)
    const char *SSL_CIPHER_standard_name(const SSL_CIPHER *cipher)
    const char *SSL_get_servername(const SSL *ssl, int type)
    int SSL_check_chain(SSL *ssl, X509 *cert, EVP_PKEY *key, X509_stack *chain)
    int SSL_use_cert_and_key(SSL *ssl, X509 *cert, EVP_PKEY *key, X509_stack *chain, int override)
    void SSL_certs_clear(SSL *ssl)
