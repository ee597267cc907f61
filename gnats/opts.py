"""The options of a server (opts.go), their defaults, and what they must satisfy."""

import os
import warnings
from dataclasses import dataclass, field, fields, replace

from gnats.accountopts import AccountConfig, Mapping
from gnats.authopts import (
    GLOBAL_ACCOUNT,
    AuthCallout,
    NkeyUser,
    Permissions,
    ResolverOptions,
    User,
    check_permissions,
)
from gnats.errors import OptionError
from gnats.gofmt import MAX_INT32, duration_of, quote
from gnats.hostport import RANDOM_PORT, parse_host_port
from gnats.jetstream.options import JetStreamOptions
from gnats.tlsopts import TLSOptions

ANY_HOST = "0.0.0.0"
"""All interfaces: where a server of its own listens, as nats-server does, unless it is told otherwise."""
DEFAULT_PORT = 4222
MAX_PAYLOAD_WARNING = 8 << 20
_AUTH_TIMEOUT = 2.0
MAX_SUB_TOKENS = 255
MAX_IO_THREADS = 63
"""A connection notes the pollers that wait for it in the 64 bits of a word; one is the loop's."""

_ZERO_MEANS_DEFAULT = (
    "host",
    "port",
    "max_conn",
    "max_control_line",
    "max_payload",
    "max_pending",
    "write_deadline",
    "ping_interval",
    "ping_max",
    "max_closed_clients",
    "lame_duck_duration",
    "lame_duck_grace_period",
)


@dataclass(slots=True)
class Options:
    """A server's options, by their names in nats-server; durations are seconds, sizes bytes.

    As there, an empty host and a zero number mean the default, but `max_subs` 0 is unlimited. A negative
    `max_conn` refuses every connection; `max_payload` -1 is unlimited. The default host is loopback: a server
    inside a program is reached from elsewhere only when the program asks for it. (The command gnats-server
    listens on all interfaces.)
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """-1 takes a free port."""
    client_advertise: str = ""
    config_file: str = ""
    """Where the options were read from, see from_file()."""
    server_name: str = ""
    """The server's id when empty."""
    debug: bool = False
    trace: bool = False
    logtime: bool = True
    logtime_utc: bool = False
    log_file: str = ""
    pid_file: str = ""
    ports_file_dir: str = ""
    trace_verbose: bool = False
    trace_headers: bool = False
    max_traced_msg_len: int = 0
    """Bytes of a payload that a trace shows; 0: all."""
    log_size_limit: int = 0
    """Bytes after which the log file is rotated; 0: never."""
    log_max_num: int = 0
    """Log files kept, the current one included; 0: all."""
    syslog: bool = False
    remote_syslog: str = ""
    """udp://host:port or tcp://host:port; implies `syslog`."""
    connect_error_reports: int = 3600
    reconnect_error_reports: int = 1
    prof_port: int = 0
    prof_block_rate: int = 0
    http_host: str = ""
    """`host` when empty."""
    http_port: int = 0
    """0: no monitoring; -1: a free port."""
    https_host: str = ""
    https_port: int = 0
    http_base_path: str = ""
    tls: TLSOptions | None = None
    allow_non_tls: bool = False
    config_digest: str = ""
    """sha256:<hex> of the configuration as read."""
    server_tags: tuple[str, ...] = ()
    server_metadata: dict[str, str] = field(default_factory=dict)
    feature_flags: dict[str, bool] = field(default_factory=dict)
    """What is configured; gnats.version.feature_flags() has all of them."""
    username: str = ""
    password: str = field(default="", repr=False)
    authorization: str = field(default="", repr=False)
    """A token; when set, `username` and `password` are not asked for."""
    auth_timeout: float = 0.0
    """seconds; 0: 2, or a second more than a TLS handshake may take"""
    permissions: Permissions | None = None
    """Of the single user or token; the default of users that have none of their own."""
    users: list[User] = field(default_factory=list)
    nkeys: list[NkeyUser] = field(default_factory=list)
    no_auth_user: str = ""
    default_sentinel: str = ""
    auth_callout: AuthCallout | None = None
    accounts: list[AccountConfig] = field(default_factory=list)
    mappings: list[Mapping] = field(default_factory=list)
    """Of the global account."""
    system_account: str = ""
    """"" for $SYS, or in operator mode for the operator's."""
    no_system_account: bool = False
    trusted_operators: tuple[str, ...] = ()
    """Operator JWTs."""
    trusted_keys: tuple[str, ...] = ()
    """Public operator nkeys."""
    resolver: ResolverOptions | None = None
    resolver_preload: dict[str, str] = field(default_factory=dict)
    """Account JWTs by public account nkey."""
    resolver_pinned_accounts: frozenset[str] = frozenset()
    resolver_tls: TLSOptions | None = None
    max_conn: int = 65536
    max_subs: int = 0
    max_control_line: int = 4096
    max_payload: int = 1 << 20
    max_pending: int = 64 << 20
    write_deadline: float = 10.0
    write_timeout: str = ""
    """What becomes of a client that misses the deadline: "" and "close" both close it."""
    ping_interval: float = 120.0
    ping_max: int = 2
    max_sub_tokens: int = 0
    """Tokens a subscription's subject may have; 0: any number."""
    no_sublist_cache: bool = False
    no_fast_producer_stall: bool = False
    no_header_support: bool = False
    max_closed_clients: int = 10000
    lame_duck_duration: float = 120.0
    lame_duck_grace_period: float = 10.0
    jetstream: JetStreamOptions = JetStreamOptions()
    io_threads: int | str = "auto"
    """Threads that serve connections; 0: the event loop's own does; "auto": see pollers.io_threads."""

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "Options":
        """The options of a configuration file; what it does not name is as in Options().

        Keys that have no effect are told as Python warnings. Raises OptionError with all that is wrong in the
        file, one line each with file, line and position.
        """
        opts = cls()
        for doubt in read_config(opts, os.fspath(path)):
            warnings.warn(doubt, stacklevel=2)
        return opts

    @property
    def accounts_by_jwt(self) -> bool:
        """Do JWTs say which accounts and users there are (operator mode), rather than the configuration?"""
        return bool(self.trusted_operators or self.trusted_keys)

    def baseline(self) -> "Options":
        """A copy with defaults where they are asked for by an empty or zero value.

        Raises OptionError when the options do not go together.
        """
        opts = replace(self)
        for option in fields(self):
            if option.name in _ZERO_MEANS_DEFAULT and not getattr(opts, option.name):
                setattr(opts, option.name, option.default)
        opts.http_host = opts.http_host or opts.host
        opts.https_host = opts.https_host or opts.host
        if not opts.auth_timeout:
            opts.auth_timeout = opts.tls.timeout + 1 if opts.tls else _AUTH_TIMEOUT
        opts.validate()
        return opts

    def validate(self) -> None:
        """Raise OptionError, one line, for what nats-server refuses."""
        if self.lame_duck_grace_period >= self.lame_duck_duration:
            raise OptionError(
                f"lame duck grace period ({duration_of(self.lame_duck_grace_period)}) should be strictly"
                f" lower than lame duck duration ({duration_of(self.lame_duck_duration)})"
            )
        if self.max_payload > self.max_pending:
            raise OptionError(
                f"max_payload ({self.max_payload}) cannot be higher than max_pending ({self.max_pending})"
            )
        for name in ("max_payload", "max_control_line", "max_subs", "ping_max"):
            if getattr(self, name) > MAX_INT32:
                raise OptionError(f"{name} value is too big")
        for name in ("max_control_line", "max_pending", "max_subs", "write_deadline", "ping_interval"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name} cannot be negative")
        if self.config_file and not self.config_digest:
            raise OptionError(
                f"config_file {quote(self.config_file)} names a file that was not read: use"
                " Options.from_file()"
            )
        if " " in self.server_name:
            raise OptionError("server name cannot contain spaces")
        for name in ("port", "http_port", "https_port", "prof_port"):
            if not RANDOM_PORT <= getattr(self, name) <= 65535:
                raise OptionError(f"{name} {getattr(self, name)} is not a port: -1 (a free one) to 65535")
        if self.http_port and self.https_port:
            raise OptionError(
                f"can't specify both HTTP ({self.http_port}) and HTTPs ({self.https_port}) ports"
            )
        if self.http_port or self.https_port:
            _check_base_path(self.http_base_path)
        if self.https_port and not (self.tls and (self.tls.cert_file or self.tls.certificates)):
            raise OptionError("TLS cert and key required for HTTPS")
        if not 0 <= self.max_sub_tokens <= MAX_SUB_TOKENS:
            raise OptionError(
                f"max_sub_tokens {self.max_sub_tokens} is not a number from 0 to {MAX_SUB_TOKENS}"
            )
        if self.accounts_by_jwt or self.default_sentinel or self.resolver:
            from gnats.operators import validate_trust  # reads JWTs

            validate_trust(self)
        validate_auth(self)
        validate_accounts(self)
        self.jetstream.validate()
        if self.client_advertise:
            parse_host_port(self.client_advertise, self.port)
        threads = self.io_threads
        if not (threads == "auto" or (isinstance(threads, int) and 0 <= threads <= MAX_IO_THREADS)):
            raise OptionError(
                f'io_threads {threads} is neither a number from 0 to {MAX_IO_THREADS} nor "auto"'
            )


def _check_base_path(path: str) -> None:
    """Refuse a path that nats-server could not serve. Raises OptionError."""
    names = set()
    for part in path.split("/"):
        if "{" not in part and "}" not in part:
            continue
        name = part[1:-1]
        if part != f"{{{name}}}" or not (name.isascii() and name.isidentifier()) or name in names:
            raise OptionError(
                f"http_base_path {quote(path)}: {quote(part)} cannot be in it; a part with a"
                " brace is {name}, with another name in each"
            )
        names.add(name)


def read_config(opts: Options, path: str) -> list[str]:
    """Set the options that a configuration file names; return warnings.

    Raises OptionError, as Options.from_file().
    """
    from gnats.conf import parse_file
    from gnats.confkeys import apply_config

    return apply_config(opts, parse_file(path), path)


def validate_auth(opts: Options) -> None:
    """Refuse permissions that are not subjects, and a default user or system account that is none.

    Raises OptionError.
    """
    users: list[User | NkeyUser] = [*opts.users, *opts.nkeys]
    for user in users:
        kind, name = ("user", user.username) if isinstance(user, User) else ("nkey", user.nkey)
        try:
            check_permissions(user.permissions)
        except ValueError as exc:
            raise OptionError(f"invalid permissions for {kind} {quote(name)}: {exc}") from None
    if opts.no_auth_user:
        if opts.trusted_operators:
            raise OptionError("no_auth_user not compatible with Trusted Operator")
        names = {user.username for user in opts.users} | {user.nkey for user in opts.nkeys}
        if not names:
            raise OptionError(f'no_auth_user: "{opts.no_auth_user}" present, but users/nkeys are not defined')
        if opts.no_auth_user not in names:
            raise OptionError(
                f'no_auth_user: "{opts.no_auth_user}" not present as user or nkey in authorization block'
                " or account configuration"
            )
    if opts.system_account and not opts.accounts_by_jwt:
        accounts = {account.name for account in opts.accounts} | {GLOBAL_ACCOUNT}
        if opts.system_account not in accounts:
            raise OptionError(f"error resolving system account {quote(opts.system_account)}: account missing")


def validate_accounts(opts: Options) -> None:
    """Refuse exports, imports and mappings that do not go together.

    Raises OptionError.
    """
    if not opts.accounts and not opts.mappings:
        return
    from gnats.exchange import Exchange
    from gnats.mappings import compile_account_mappings

    exchange = Exchange()
    if opts.mappings:
        compile_account_mappings(GLOBAL_ACCOUNT, opts.mappings)
        exchange.add_accounts([GLOBAL_ACCOUNT])
    for account in opts.accounts:
        compile_account_mappings(account.name, account.mappings)
    exchange.add(opts.accounts)
