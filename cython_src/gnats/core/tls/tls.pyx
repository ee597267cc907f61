"""TLS by OpenSSL; see tls.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, strcmp, strdup, strncpy

from gnats.core.net.outbound cimport OutQueue, chunk_bytes, outq_append, outq_drop, outq_take
from gnats.core.runtime.clock cimport monotonic_ns
from gnats.core.tls.hostname cimport is_address, is_for_host
from gnats.core.tls.tlsstate cimport (
    TLS_CLOSED,
    TLS_ERROR,
    TLS_ERROR_TEXT,
    TLS_FAILED,
    TLS_MORE,
    TLS_NO_MEMORY,
    TLS_NOT_PINNED,
    TLS_OPEN,
    TLS_SYSCALL,
    Tls,
    TLSBase,
)
from gnats.includes.atomics cimport store8_release
from gnats.includes.openssl cimport (
    BIO,
    BIO_CTRL_FLUSH,
    BIO_METHOD,
    BIO_TYPE_SOURCE_SINK,
    CERT_PKEY_VALID,
    ERR_LIB_PEM,
    EVP_PKEY,
    EVP_PKEY_RSA,
    PEM_R_NO_START_LINE,
    NID_auth_ecdsa,
    NID_auth_rsa,
    SSL,
    SSL_CTX,
    SSL_ERROR_WANT_READ,
    SSL_ERROR_ZERO_RETURN,
    SSL_MODE_RELEASE_BUFFERS,
    SSL_OP_CIPHER_SERVER_PREFERENCE,
    SSL_OP_NO_COMPRESSION,
    SSL_OP_NO_RENEGOTIATION,
    SSL_OP_NO_TICKET,
    SSL_OP_PRIORITIZE_CHACHA,
    SSL_R_HTTP_REQUEST,
    SSL_R_HTTPS_PROXY_REQUEST,
    SSL_R_WRONG_VERSION_NUMBER,
    SSL_SESS_CACHE_OFF,
    SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
    SSL_VERIFY_NONE,
    SSL_VERIFY_PEER,
    X509,
    X509_CHECK_FLAG_NEVER_CHECK_SUBJECT,
    X509_STORE,
    X509_STORE_CTX,
    X509_V_ERR_CERT_HAS_EXPIRED,
    X509_V_ERR_CERT_NOT_YET_VALID,
    X509_V_ERR_CERT_REJECTED,
    X509_V_ERR_CERT_SIGNATURE_FAILURE,
    X509_V_ERR_HOSTNAME_MISMATCH,
    X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
    X509_V_ERR_UNSPECIFIED,
    X509_V_FLAG_PARTIAL_CHAIN,
    X509_V_OK,
    ASN1_TIME_to_tm,
    BIO_clear_retry_flags,
    BIO_free,
    BIO_get_data,
    BIO_get_new_index,
    BIO_meth_new,
    BIO_meth_set_ctrl,
    BIO_meth_set_read,
    BIO_meth_set_write,
    BIO_new,
    BIO_new_mem_buf,
    BIO_set_data,
    BIO_set_init,
    BIO_set_retry_read,
    ERR_clear_error,
    ERR_get_error,
    ERR_GET_LIB,
    ERR_GET_REASON,
    ERR_peek_error,
    ERR_reason_error_string,
    EVP_Digest,
    EVP_PKEY_free,
    EVP_PKEY_get_base_id,
    EVP_sha256,
    OPENSSL_cipher_name,
    OPENSSL_free,
    PEM_read_bio_PrivateKey,
    PEM_read_bio_X509,
    SSL_certs_clear,
    SSL_check_chain,
    SSL_CIPHER_get_auth_nid,
    SSL_CIPHER_stack,
    SSL_CIPHER_standard_name,
    SSL_CTX_free,
    SSL_CTX_get_cert_store,
    SSL_CTX_new,
    SSL_CTX_set1_groups_list,
    SSL_CTX_set_cert_cb,
    SSL_CTX_set_cert_verify_callback,
    SSL_CTX_set_cipher_list,
    SSL_CTX_set_ciphersuites,
    SSL_CTX_set_client_CA_list,
    SSL_CTX_set_default_verify_paths,
    SSL_CTX_set_min_proto_version,
    SSL_CTX_set_mode,
    SSL_CTX_set_num_tickets,
    SSL_CTX_set_options,
    SSL_CTX_set_security_level,
    SSL_CTX_set_session_cache_mode,
    SSL_CTX_set_verify,
    SSL_CTX_use_cert_and_key,
    SSL_do_handshake,
    SSL_free,
    SSL_get0_peer_certificate,
    SSL_get_app_data,
    SSL_get_client_ciphers,
    SSL_get_current_cipher,
    SSL_get_error,
    SSL_get_ex_data_X509_STORE_CTX_idx,
    SSL_get_peer_cert_chain,
    SSL_get_servername,
    SSL_get_verify_mode,
    SSL_get_verify_result,
    SSL_is_server,
    SSL_new,
    SSL_has_pending,
    SSL_pending,
    SSL_rstate_string,
    SSL_read,
    SSL_set_accept_state,
    SSL_set_app_data,
    SSL_set_bio,
    SSL_set_connect_state,
    SSL_set_tlsext_host_name,
    SSL_set_verify,
    SSL_shutdown,
    SSL_use_cert_and_key,
    SSL_version,
    SSL_write,
    TLS_method,
    TLS_server_method,
    TLSEXT_NAMETYPE_host_name,
    X509_check_host,
    X509_check_private_key,
    X509_cmp_current_time,
    X509_free,
    X509_get0_notAfter,
    X509_get0_notBefore,
    X509_get_subject_name,
    X509_get_X509_PUBKEY,
    X509_NAME_dup,
    X509_NAME_stack,
    X509_stack,
    X509_STORE_add_cert,
    X509_STORE_CTX_get0_cert,
    X509_STORE_CTX_get0_untrusted,
    X509_STORE_CTX_get_error,
    X509_STORE_CTX_get_ex_data,
    X509_STORE_CTX_set_error,
    X509_STORE_set_flags,
    X509_up_ref,
    X509_verify_cert,
    i2d_X509,
    i2d_X509_PUBKEY,
    sk_SSL_CIPHER_num,
    sk_SSL_CIPHER_value,
    sk_X509_NAME_new_null,
    sk_X509_NAME_push,
    sk_X509_new_null,
    sk_X509_num,
    sk_X509_pop_free,
    sk_X509_push,
    sk_X509_value,
    tm,
)
from gnats.includes.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from gnats.includes.text cimport HEX_DIGITS
from gnats.includes.units cimport SECOND

cdef enum:
    RECORD = 16384               # plain bytes of a record at most
    AT_ONCE = 4 * RECORD         # plain bytes to encrypt before a look at what waits on `wire`
    WIRE_LIMIT = 4 * 1024 * 1024  # bytes on `wire`; beyond, cut off a peer that makes us answer and does not read
    DIGEST = 32
    SECURITY_LEVEL = 1           # OpenSSL's: keys of 1024 bits and more, as in Go


class TLSError(Exception):
    """OpenSSL does not accept certificates, keys or rules; the text says why."""


# -- the bytes between OpenSSL and a connection --------------------------------------------------------------------


cdef int bio_read(BIO *bio, char *p, int n) noexcept nogil:
    cdef Tls *t = <Tls *> BIO_get_data(bio)
    cdef size_t take = t.input_len
    BIO_clear_retry_flags(bio)
    if take == 0:
        BIO_set_retry_read(bio)
        return -1
    if take > <size_t> n:
        take = <size_t> n
    memcpy(p, t.input, take)
    t.input += take
    t.input_len -= take
    return <int> take


cdef int bio_write(BIO *bio, const char *p, int n) noexcept nogil:
    cdef Tls *t = <Tls *> BIO_get_data(bio)
    BIO_clear_retry_flags(bio)
    if t.wire.bytes > WIRE_LIMIT or outq_append(&t.wire, &t.base.ps.pool, p, <size_t> n) < 0:
        return -1
    return n


cdef long bio_ctrl(BIO *bio, int command, long number, void *pointer) noexcept nogil:
    return command == BIO_CTRL_FLUSH


cdef BIO_METHOD *BIO_QUEUES = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, b"gnats")
if BIO_QUEUES == NULL:
    raise MemoryError
BIO_meth_set_read(BIO_QUEUES, bio_read)
BIO_meth_set_write(BIO_QUEUES, bio_write)
BIO_meth_set_ctrl(BIO_QUEUES, bio_ctrl)


# -- callbacks of a handshake --------------------------------------------------------------------------------------


cdef void keep_certificate(Tls *t, X509 *cert) noexcept nogil:
    """Append a certificate to t.chain. Without memory it is left out; settle() refuses an empty chain."""
    cdef int n = i2d_X509(cert, NULL)
    cdef uint32_t size = <uint32_t> n
    cdef char *grown
    cdef unsigned char *at
    if n <= 0:
        return
    grown = <char *> realloc(t.chain, t.chain_len + sizeof(size) + size)
    if grown == NULL:
        return
    memcpy(grown + t.chain_len, &size, sizeof(size))
    at = <unsigned char *> grown + t.chain_len + sizeof(size)
    i2d_X509(cert, &at)
    t.chain = grown
    t.chain_len += sizeof(size) + size


cdef void keep_certificates(Tls *t, const X509_stack *chain) noexcept nogil:
    cdef int i
    if chain == NULL:
        return
    for i in range(sk_X509_num(chain)):
        keep_certificate(t, sk_X509_value(chain, i))


cdef int verify_peer(X509_STORE_CTX *store, void *arg) noexcept nogil:
    """Verify the peer's certificates in Go's order: the dates of its own, the host that was dialled, the others.

    Keep those that are refused, and why: OpenSSL forgets both after the handshake.
    """
    cdef SSL *ssl = <SSL *> X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx())
    cdef Tls *t = <Tls *> SSL_get_app_data(ssl)
    cdef X509 *cert = X509_STORE_CTX_get0_cert(store)
    cdef int error
    if SSL_get_verify_mode(ssl) == SSL_VERIFY_NONE:
        return 1
    if X509_cmp_current_time(X509_get0_notBefore(cert)) >= 0:
        error = X509_V_ERR_CERT_NOT_YET_VALID
    elif X509_cmp_current_time(X509_get0_notAfter(cert)) <= 0:
        error = X509_V_ERR_CERT_HAS_EXPIRED
    elif t.host != NULL and not is_for_host(cert, t.host):
        error = X509_V_ERR_HOSTNAME_MISMATCH
        t.wrong_host = 1
    elif X509_verify_cert(store) == 1:
        return 1
    else:
        error = X509_STORE_CTX_get_error(store)
    ERR_clear_error()   # drop what OpenSSL noted on the way: the handshake adds that verification has failed
    if error == X509_V_OK:
        error = X509_V_ERR_UNSPECIFIED
    elif error == X509_V_ERR_CERT_SIGNATURE_FAILURE:
        # An authority with only the name of a trusted one counts as unknown, as in Go.
        error = X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY
    t.verify_error = error
    keep_certificates(t, X509_STORE_CTX_get0_untrusted(store))
    # Go tells a server no more than that its certificate is bad.
    X509_STORE_CTX_set_error(store, error if t.host == NULL else X509_V_ERR_CERT_REJECTED)
    return 0


cdef int no_password(char *buf, int size, int writing, void *data) noexcept nogil:
    return -1   # never ask on the terminal


cdef bint offers_cipher_for(SSL *ssl, EVP_PKEY *key) noexcept nogil:
    """Return whether the client offers a cipher suite for this kind of key. Only suites before TLS 1.3 depend on it."""
    cdef SSL_CIPHER_stack *offered = SSL_get_client_ciphers(ssl)
    cdef int wanted = NID_auth_rsa if EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA else NID_auth_ecdsa
    cdef int i
    if SSL_version(ssl) >= 0x0304:
        return True
    for i in range(sk_SSL_CIPHER_num(offered)):
        if SSL_CIPHER_get_auth_nid(sk_SSL_CIPHER_value(offered, i)) == wanted:
            return True
    return False


cdef int choose_certificate(SSL *ssl, void *arg) noexcept nogil:
    """Choose the first certificate that the peer supports and, for a client, that has the name asked for.

    When there is none, choose the first one.
    """
    cdef Certificates *all = <Certificates *> arg
    cdef bint serving = SSL_is_server(ssl)
    cdef const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name) if serving else NULL
    cdef Certificate *c
    cdef Certificate *chosen = &all.items[0]
    cdef int i
    for i in range(all.n):
        c = &all.items[i]
        if name != NULL and X509_check_host(c.cert, name, 0, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) != 1:
            continue
        if SSL_check_chain(ssl, c.cert, c.key, c.chain) & CERT_PKEY_VALID:
            if not serving or offers_cipher_for(ssl, c.key):
                chosen = c
                break
    ERR_clear_error()
    SSL_certs_clear(ssl)
    return SSL_use_cert_and_key(ssl, chosen.cert, chosen.key, chosen.chain, 1)


# -- contexts ------------------------------------------------------------------------------------------------------


cdef str reason():
    """Return OpenSSL's reason for its last error."""
    cdef unsigned long code = ERR_get_error()
    cdef const char *text = ERR_reason_error_string(code) if code else NULL
    ERR_clear_error()
    return (<bytes> text).decode() if text != NULL else "refused by OpenSSL"


cdef X509_stack *read_certificates(bytes pem) except NULL:
    """Return every certificate in a PEM file. Raises TLSError when there is none or one is bad, MemoryError."""
    cdef BIO *bio = BIO_new_mem_buf(PyBytes_AS_STRING(pem), <int> PyBytes_GET_SIZE(pem))
    cdef X509_stack *found = sk_X509_new_null()
    cdef X509 *cert
    cdef unsigned long code
    cdef bint at_end
    ERR_clear_error()
    if bio == NULL or found == NULL:
        raise MemoryError
    while True:
        cert = PEM_read_bio_X509(bio, NULL, no_password, NULL)
        if cert == NULL:
            break
        sk_X509_push(found, cert)
    BIO_free(bio)
    code = ERR_peek_error()
    at_end = ERR_GET_LIB(code) == ERR_LIB_PEM and ERR_GET_REASON(code) == PEM_R_NO_START_LINE
    if at_end and sk_X509_num(found):
        ERR_clear_error()
        return found
    sk_X509_pop_free(found, X509_free)
    why = reason()
    raise TLSError("failed to find any PEM data in certificate input" if at_end else why)


cdef class TLSContext(TLSBase):
    """Certificates and rules for handshakes, with clients and with servers that are dialled.

    `min_version` is 0x0303 or 0x0304. `ciphers` and `groups` are lists in OpenSSL's form; `ciphers` is for TLS 1.2, and
    empty disables TLS 1.2. `pinned`, unless None, has the SHA-256 digests (bytes) of the peers' keys that are accepted.
    `rate_limit` is in handshakes a second, 0 for no limit.

    Session tickets are never issued: a resumed session would bypass a CA or a pinned key that a reload has removed.

    Raises TLSError, MemoryError.
    """

    def __cinit__(
        self, *, int min_version, str ciphers not None, str groups not None, pinned=None, int64_t rate_limit=0
    ):
        cdef bytes digests
        pthread_mutex_init(&self.lock, NULL)
        self.limit = rate_limit
        ERR_clear_error()
        self.ctx = SSL_CTX_new(TLS_method())
        if self.ctx == NULL:
            raise MemoryError
        SSL_CTX_set_security_level(self.ctx, SECURITY_LEVEL)
        SSL_CTX_set_options(
            self.ctx,
            SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE
            | SSL_OP_PRIORITIZE_CHACHA)
        SSL_CTX_set_mode(self.ctx, SSL_MODE_RELEASE_BUFFERS)
        SSL_CTX_set_session_cache_mode(self.ctx, SSL_SESS_CACHE_OFF)
        SSL_CTX_set_num_tickets(self.ctx, 0)
        if SSL_CTX_set_min_proto_version(self.ctx, min_version if ciphers else 0x0304) != 1:
            raise TLSError(f"minimum version: {reason()}")
        if ciphers and SSL_CTX_set_cipher_list(self.ctx, ciphers.encode()) != 1:
            raise TLSError(f"cipher suites: {reason()}")
        # nats-server's order: the fastest first
        SSL_CTX_set_ciphersuites(
            self.ctx, b"TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256")
        if SSL_CTX_set1_groups_list(self.ctx, groups.encode()) != 1:
            raise TLSError(f"curves: {reason()}")
        if pinned is not None:
            digests = b"".join(sorted(pinned))
            self.has_pinned = True
            self.npinned = <size_t> len(digests) // DIGEST
            self.pinned = <char *> malloc(len(digests) + 1)
            if self.pinned == NULL:
                raise MemoryError
            memcpy(self.pinned, PyBytes_AS_STRING(digests), len(digests))

    def __dealloc__(self):
        cdef int i
        for i in range(self.certificates.n):
            X509_free(self.certificates.items[i].cert)
            EVP_PKEY_free(self.certificates.items[i].key)
            sk_X509_pop_free(self.certificates.items[i].chain, X509_free)
        free(self.certificates.items)
        free(self.pinned)
        SSL_CTX_free(self.ctx)
        pthread_mutex_destroy(&self.lock)

    def add_certificate(self, bytes cert_pem not None, bytes key_pem not None) -> None:
        """Add a certificate (PEM of a chain, its own first) and its key. A handshake uses the first that fits.

        Raises TLSError, MemoryError.
        """
        cdef Certificate c
        cdef Certificate *grown
        cdef X509_stack *found = read_certificates(cert_pem)
        cdef BIO *bio = BIO_new_mem_buf(PyBytes_AS_STRING(key_pem), <int> PyBytes_GET_SIZE(key_pem))
        cdef int i
        c.chain = sk_X509_new_null()
        c.cert = sk_X509_value(found, 0)
        X509_up_ref(c.cert)
        for i in range(1, sk_X509_num(found)):
            X509_up_ref(sk_X509_value(found, i))
            sk_X509_push(c.chain, sk_X509_value(found, i))
        sk_X509_pop_free(found, X509_free)
        c.key = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL)
        BIO_free(bio)
        try:
            if c.key == NULL:
                why = reason()
                raise TLSError(
                    f"private key: {why}" if b"-----BEGIN" in key_pem else "failed to find any PEM data in key input")
            if X509_check_private_key(c.cert, c.key) != 1:
                ERR_clear_error()
                raise TLSError("private key does not match public key")
            if self.certificates.n == 0 and SSL_CTX_use_cert_and_key(self.ctx, c.cert, c.key, c.chain, 1) != 1:
                raise TLSError(reason())
            grown = <Certificate *> realloc(
                self.certificates.items, (self.certificates.n + 1) * sizeof(Certificate))
            if grown == NULL:
                raise MemoryError
        except BaseException:
            X509_free(c.cert)
            EVP_PKEY_free(c.key)
            sk_X509_pop_free(c.chain, X509_free)
            raise
        self.certificates.items = grown
        self.certificates.items[self.certificates.n] = c
        self.certificates.n += 1
        if self.certificates.n == 2:
            SSL_CTX_set_cert_cb(self.ctx, choose_certificate, &self.certificates)

    def verify_peers(self, bytes ca_pem) -> None:
        """Require a certificate from each peer, issued by one of these authorities; None: one of the system's.

        The certificate of a server that is dialled must be one for its host, too. Raises TLSError.
        """
        cdef X509_STORE *store = SSL_CTX_get_cert_store(self.ctx)
        cdef X509_stack *found
        cdef X509_NAME_stack *names
        cdef int i
        if ca_pem is None:
            SSL_CTX_set_default_verify_paths(self.ctx)
        else:
            found = read_certificates(ca_pem)
            names = sk_X509_NAME_new_null()
            for i in range(sk_X509_num(found)):
                X509_STORE_add_cert(store, sk_X509_value(found, i))
                sk_X509_NAME_push(names, X509_NAME_dup(X509_get_subject_name(sk_X509_value(found, i))))
            sk_X509_pop_free(found, X509_free)
            SSL_CTX_set_client_CA_list(self.ctx, names)
        # As in Go, every certificate in the pool is trusted, even an intermediate or the peer's own.
        X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN)
        SSL_CTX_set_verify(self.ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL)
        SSL_CTX_set_cert_verify_callback(self.ctx, verify_peer, NULL)
        self.verify = True

    def not_after(self) -> tuple | None:
        """Return the expiry of the first certificate, (year, month, day, hour, minute, second) in UTC; None: none."""
        cdef tm when
        if self.certificates.n == 0:
            return None
        if ASN1_TIME_to_tm(X509_get0_notAfter(self.certificates.items[0].cert), &when) != 1:
            raise TLSError(reason())
        return (when.tm_year + 1900, when.tm_mon + 1, when.tm_mday, when.tm_hour, when.tm_min, when.tm_sec)

    def take_blocked(self) -> int:
        """Return the number of handshakes that the rate limit has refused since the last call."""
        cdef int64_t n
        pthread_mutex_lock(&self.lock)
        n = self.blocked
        self.blocked = 0
        pthread_mutex_unlock(&self.lock)
        return n

    # -- a connection's steps ------------------------------------------------------------------------------------

    cdef bint allow(self) noexcept nogil:
        cdef int64_t now
        cdef bint allowed
        if self.limit <= 0:
            return True
        now = monotonic_ns()
        pthread_mutex_lock(&self.lock)
        if now > self.window_end:
            self.count = 0
            self.window_end = now + SECOND
        else:
            self.count += 1
        allowed = self.count < self.limit
        if not allowed:
            self.blocked += 1
        pthread_mutex_unlock(&self.lock)
        return allowed

    cdef bint open(self, Tls *t) noexcept nogil:
        cdef SSL *ssl = SSL_new(self.ctx)
        cdef BIO *bio = BIO_new(BIO_QUEUES)
        if ssl == NULL or bio == NULL:
            SSL_free(ssl)
            BIO_free(bio)
            return False
        BIO_set_data(bio, <void *> t)
        BIO_set_init(bio, 1)
        SSL_set_bio(ssl, bio, bio)
        SSL_set_app_data(ssl, <void *> t)
        t.ssl = <void *> ssl
        if t.host == NULL:
            SSL_set_accept_state(ssl)
            return True
        SSL_set_connect_state(ssl)
        if t.insecure:
            SSL_set_verify(ssl, SSL_VERIFY_NONE, NULL)
        return is_address(t.host) or SSL_set_tlsext_host_name(ssl, t.host) == 1

    cdef int handshake(self, Tls *t) noexcept nogil:
        cdef SSL *ssl = <SSL *> t.ssl
        cdef int r
        ERR_clear_error()
        r = SSL_do_handshake(ssl)
        if r == 1:
            t.phase = TLS_OPEN
            return self.settle(t)
        if SSL_get_error(ssl, r) == SSL_ERROR_WANT_READ:
            return TLS_MORE
        t.phase = TLS_FAILED
        note_error(t)
        return TLS_ERROR

    cdef int settle(self, Tls *t) noexcept nogil:
        """Keep the results of the handshake, and check the peer's key. Return 1, or TLS_ERROR."""
        cdef SSL *ssl = <SSL *> t.ssl
        cdef X509 *peer = SSL_get0_peer_certificate(ssl)
        cdef const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name)
        t.version = <uint32_t> SSL_version(ssl)
        t.cipher = SSL_CIPHER_standard_name(SSL_get_current_cipher(ssl))
        if name != NULL:
            t.server_name = strdup(name)
        if peer != NULL:
            t.verified = SSL_get_verify_result(ssl) == X509_V_OK
            if t.host == NULL:
                keep_certificate(t, peer)   # OpenSSL's chain has it only when it is a server's
            keep_certificates(t, SSL_get_peer_cert_chain(ssl))
            if t.chain == NULL:
                t.error_code = TLS_NO_MEMORY
                return TLS_ERROR
        store8_release(&t.ready, 1)
        if self.has_pinned and not self.is_pinned(t):
            t.error_code = TLS_NOT_PINNED
            return TLS_ERROR
        return 1

    cdef bint is_pinned(self, Tls *t) noexcept nogil:
        """Return whether the peer's key is one of `pinned`; its digest, if it has one, is left in error_text."""
        cdef X509 *peer = SSL_get0_peer_certificate(<SSL *> t.ssl)
        cdef unsigned char *der = NULL
        cdef unsigned char[DIGEST] digest
        cdef unsigned int size = 0
        cdef size_t i
        cdef int n
        t.error_text[0] = 0
        if peer == NULL:
            return False
        n = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(peer), &der)
        if n <= 0:
            return False
        n = EVP_Digest(der, <size_t> n, digest, &size, EVP_sha256(), NULL)
        OPENSSL_free(der)
        if n != 1:
            return False
        for i in range(<size_t> DIGEST):
            t.error_text[2 * i] = HEX_DIGITS[digest[i] >> 4]
            t.error_text[2 * i + 1] = HEX_DIGITS[digest[i] & 15]
        t.error_text[2 * DIGEST] = 0
        for i in range(self.npinned):
            if memcmp(self.pinned + i * DIGEST, digest, DIGEST) == 0:
                return True
        return False

    cdef long decrypt(self, Tls *t, char *p, size_t n) noexcept nogil:
        cdef SSL *ssl = <SSL *> t.ssl
        cdef size_t got = 0
        cdef int r, error
        # OpenSSL takes all input: the beginning of a record that it cannot decrypt yet stays with it.
        while got < n and (t.input_len or SSL_pending(ssl)):
            ERR_clear_error()
            r = SSL_read(ssl, p + got, <int> (n - got))
            if r > 0:
                got += <size_t> r
                continue
            error = SSL_get_error(ssl, r)
            if error == SSL_ERROR_WANT_READ:
                break
            if got:
                t.eof = 1   # reported once the bytes before it are handled
            if error == SSL_ERROR_ZERO_RETURN:
                return <long> got if got else TLS_CLOSED
            t.phase = TLS_FAILED
            note_error(t)
            return <long> got if got else TLS_ERROR
        return <long> got

    cdef bint inside_record(self, Tls *t) noexcept nogil:
        # A record of which only the header has come is not pending.
        return SSL_has_pending(<SSL *> t.ssl) != 0 or strcmp(SSL_rstate_string(<SSL *> t.ssl), b"RB") == 0

    cdef bint encrypt(self, Tls *t, OutQueue *out, size_t enough) noexcept nogil:
        cdef SSL *ssl = <SSL *> t.ssl
        cdef char[RECORD] gathered
        cdef size_t n
        while out.bytes and t.wire.bytes < enough:
            n = out.head.len - out.head.sent
            ERR_clear_error()
            if n >= RECORD or out.head.next == NULL:
                if n > AT_ONCE:
                    n = AT_ONCE
                if n > 0 and SSL_write(ssl, chunk_bytes(out.head) + out.head.sent, <int> n) <= 0:
                    t.phase = TLS_FAILED
                    return False
                outq_drop(out, &t.base.ps.pool, n)
                continue
            n = outq_take(out, &t.base.ps.pool, gathered, RECORD)
            if SSL_write(ssl, gathered, <int> n) <= 0:
                t.phase = TLS_FAILED
                return False
        return True

    cdef void close(self, Tls *t) noexcept nogil:
        if t.ssl == NULL:
            return
        ERR_clear_error()
        if t.phase == TLS_OPEN:
            SSL_shutdown(<SSL *> t.ssl)
        SSL_free(<SSL *> t.ssl)
        t.ssl = NULL
        ERR_clear_error()


cdef void note_error(Tls *t) noexcept nogil:
    cdef unsigned long code = ERR_peek_error()
    cdef const char *text = ERR_reason_error_string(code) if code else NULL
    t.error_code = <long> code if code else TLS_SYSCALL
    t.error_text[0] = 0
    t.probe = ERR_GET_REASON(code) in (SSL_R_HTTP_REQUEST, SSL_R_HTTPS_PROXY_REQUEST, SSL_R_WRONG_VERSION_NUMBER)
    if text != NULL:
        strncpy(t.error_text, text, TLS_ERROR_TEXT - 1)
        t.error_text[TLS_ERROR_TEXT - 1] = 0
    ERR_clear_error()   # the queue belongs to the thread: Python's ssl would take these errors for its own


# -- what this OpenSSL knows ---------------------------------------------------------------------------------------


def openssl_cipher(str iana_name not None) -> str | None:
    """Return OpenSSL's name of a cipher suite of TLS 1.2 or earlier; None when it has no such suite."""
    cdef bytes name = iana_name.encode()
    cdef bytes found = OPENSSL_cipher_name(name)
    cdef SSL_CTX *ctx = SSL_CTX_new(TLS_server_method())
    cdef bint known
    if ctx == NULL:
        raise MemoryError
    SSL_CTX_set_security_level(ctx, 0)
    known = found != b"(NONE)" and SSL_CTX_set_cipher_list(ctx, found) == 1
    SSL_CTX_free(ctx)
    ERR_clear_error()
    return found.decode() if known else None


def knows_group(str name not None) -> bool:
    """Return whether this OpenSSL has a group (curve) with this name."""
    cdef bytes group = name.encode()
    cdef SSL_CTX *ctx = SSL_CTX_new(TLS_server_method())
    cdef bint known
    if ctx == NULL:
        raise MemoryError
    known = SSL_CTX_set1_groups_list(ctx, group) == 1
    SSL_CTX_free(ctx)
    ERR_clear_error()
    return known
