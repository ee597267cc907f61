"""TLS: makes contexts for handshakes from the options (GenTLSConfig in opts.go)."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from gnats.clock import Timer, call_later
from gnats.conf.digest import new_sha256
from gnats.core.client import Client
from gnats.core.tls.tls import TLSContext, TLSError, knows_group, openssl_cipher
from gnats.core.tls.tlstransport import add_tls
from gnats.errors import OptionError
from gnats.go.text import os_error
from gnats.log.logger import Logger
from gnats.options.values.tls import TLSOptions
from gnats.system.paths import system_path

_VERSIONS = {"1.2": 0x0303, "1.3": 0x0304}

CURVES = {
    "X25519MLKEM768": "X25519MLKEM768",
    "SecP384r1MLKEM1024": "SecP384r1MLKEM1024",
    "SecP256r1MLKEM768": "SecP256r1MLKEM768",
    "X25519": "X25519",
    "CurveP256": "P-256",
    "CurveP384": "P-384",
    "CurveP521": "P-521",
}
"""OpenSSL's names by those of curve_preferences, in the order of preference."""

SECURE_CIPHERS = (
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
)
"""The default cipher suites of TLS 1.2, in the order of preference."""

TLS13_CIPHERS = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""The cipher suites of TLS 1.3, always enabled: as in nats-server, a configured list affects TLS 1.2 only."""


def make_context(opts: TLSOptions, *, dials: bool = False) -> TLSContext:
    """Make a context from the options. It ignores `insecure`, an option of each connection that is dialled.

    With `dials`, the context is for such connections only, and needs no certificate. Raises OptionError, one
    line with the file and the reason.
    """
    if opts.min_version not in _VERSIONS:
        raise OptionError(f"unsupported TLS version: {opts.min_version}")
    pairs = _certificate_files(opts, dials=dials)
    try:
        context = TLSContext(
            min_version=_VERSIONS[opts.min_version],
            ciphers=openssl_ciphers(opts),
            groups=openssl_groups(opts),
            pinned=[bytes.fromhex(digest) for digest in opts.pinned_certs] or None,
            rate_limit=opts.connection_rate_limit,
        )
    except TLSError as exc:
        raise OptionError(f"error in TLS configuration: {exc}") from None
    for number, (cert_file, key_file) in enumerate(pairs, 1):
        which = f" {number}/{len(pairs)}" if opts.certificates else ""
        what = f"error parsing X509 certificate/key pair{which}"
        try:
            context.add_certificate(_read(cert_file, what), _read(key_file, what))
        except TLSError as exc:
            raise OptionError(f"{what}: {cert_file}, {key_file}: tls: {exc}") from None
    if opts.verify or opts.verify_and_map:
        what = "failed to parse root ca certificate"
        try:
            context.verify_peers(_read(opts.ca_file, what) if opts.ca_file else None)
        except TLSError as exc:
            raise OptionError(f"{what}: {opts.ca_file}: {exc}") from None
    return context


def _certificate_files(opts: TLSOptions, *, dials: bool = False) -> tuple[tuple[str, str], ...]:
    if opts.certificates:
        if opts.cert_file:
            raise OptionError(
                "error parsing tls config, cannot combine 'cert_file' option with 'certs' option"
            )
        return opts.certificates
    if dials and not (opts.cert_file or opts.key_file):
        return ()
    if not opts.cert_file:
        raise OptionError("missing 'cert_file' in TLS configuration")
    if not opts.key_file:
        raise OptionError("missing 'key_file' in TLS configuration")
    return ((opts.cert_file, opts.key_file),)


def files_digest(opts: TLSOptions, *, dials: bool = False) -> bytes:
    """Return a digest of the files that the options name; `dials` as for make_context().

    Raises OptionError.
    """
    total = new_sha256()
    for path in (*(name for pair in _certificate_files(opts, dials=dials) for name in pair), opts.ca_file):
        total.update(_read(path, "failed to read") if path else b"")
    return total.digest()


def _read(path: str, what: str) -> bytes:
    try:
        return Path(system_path(path)).read_bytes()
    except OSError as exc:
        raise OptionError(f"{what}: open {path}: {os_error(exc)}") from None


def openssl_ciphers(opts: TLSOptions) -> str:
    """Return OpenSSL's list of ciphers for TLS 1.2; empty when the options name only suites of TLS 1.3.

    Raises OptionError.
    """
    wanted = opts.cipher_suites or SECURE_CIPHERS
    names = [name for name in wanted if name not in TLS13_CIPHERS]
    insecure = [name for name in names if name not in SECURE_CIPHERS]
    if insecure and not opts.allow_insecure_cipher_suites:
        raise OptionError(
            "insecure cipher suites configured without 'allow_insecure_cipher_suites' option set: "
            + ", ".join(insecure)
        )
    known = []
    for name in [name for name in SECURE_CIPHERS if name in names] + insecure:
        found = openssl_cipher(name)
        if found is None:
            raise OptionError(f"cipher suite {name} is not supported: this OpenSSL does not have it")
        known.append(found)
    # weak suites need security level 0; allow_insecure_cipher_suites was checked above
    return ":".join(known) + (":@SECLEVEL=0" if insecure else "")


def openssl_groups(opts: TLSOptions) -> str:
    """Return OpenSSL's list of curves. A default curve that OpenSSL lacks is left out.

    Raises OptionError for a configured curve that is unknown or that OpenSSL lacks.
    """
    names = opts.curve_preferences or tuple(CURVES)
    known = []
    for name in names:
        if name not in CURVES:
            raise OptionError(f"unrecognized curve preference {name}")
        if knows_group(CURVES[name]):
            known.append(CURVES[name])
        elif opts.curve_preferences:
            raise OptionError(f"curve preference {name} is not supported: this OpenSSL does not have it")
    return ":".join(known)


class ClientTLS:
    """TLS of the client listener: its options and a context made from them. Raises OptionError.

    A reload replaces this object; connections keep the context that they started with.
    """

    def __init__(self, opts: TLSOptions, allow_non_tls: bool, log: Logger) -> None:
        self._opts = opts
        self._log = log
        self.context = make_context(opts)
        self.digest = files_digest(opts)
        """Digest of the files that were read; shows a reload whether they have changed."""
        self.first = opts.handshake_first
        self.first_only = opts.handshake_first and not opts.handshake_first_fallback
        self.mixed = allow_non_tls
        self._reporter: Timer | None = None

    def not_after(self) -> datetime | None:
        """Return the time in UTC at which the (first) certificate expires, or None."""
        when = self.context.not_after()
        return datetime(*when, tzinfo=UTC) if when else None

    def announce(self) -> None:
        """Log how clients can connect."""
        available = self.mixed and not self.first_only
        self._log.notice(f"TLS {'available' if available else 'required'} for client connections")
        if self.first_only:
            self._log.warn('Clients that are not using "TLS Handshake First" option will fail to connect')

    def report_blocked(self) -> None:
        """Log each second, until close(), how many handshakes were refused by the rate limit."""
        if self._opts.connection_rate_limit > 0:
            if blocked := self.context.take_blocked():
                self._log.warn(f"Rejected {blocked} connections due to TLS rate limiting")
            self._reporter = call_later(1.0, self.report_blocked)

    def close(self) -> None:
        """Stop reporting. Idempotent."""
        if self._reporter:
            self._reporter.cancel()
            self._reporter = None

    def greeting(self, info: Callable[..., bytes]) -> bytes:
        """Return the bytes sent before the error to a client that is refused at once.

        This is INFO, or nothing if the handshake comes first.
        """
        return b"" if self.first else info()

    def start(
        self,
        client: Client,
        info: Callable[..., bytes],
        *,
        expect_connect: bool,
        auth_timeout: float,
    ) -> None:
        """Start a client with TLS. `info` makes its INFO line; its keywords change fields."""
        add_tls(
            client,
            self.context,
            clear_greeting=b"" if self.first_only else info(),
            secure_greeting=info(tls_required=True) if self.first else b"",
            mixed=self.mixed,
            fallback=self._opts.handshake_first_fallback,
            timeout=self._opts.timeout,
        )
        client.start(b"", expect_connect=expect_connect, auth_timeout=auth_timeout)
