"""The fields of a server's options (Options in opts.go)."""

from dataclasses import dataclass, field

from gnats.core.runtime.const import (
    DEFAULT_FLUSH_DEADLINE,
    DEFAULT_PING_INTERVAL,
    DEFAULT_PING_MAX_OUT,
    MAX_CONTROL_LINE_SIZE,
    MAX_PAYLOAD_SIZE,
    MAX_PENDING_SIZE,
)
from gnats.options.values.accounts import AccountConfig, Mapping
from gnats.options.values.auth import AuthCallout, NkeyUser, Permissions, ResolverOptions, User
from gnats.options.values.jetstream import JetStreamOptions
from gnats.options.values.tls import TLSOptions

DEFAULT_PORT = 4222


@dataclass(slots=True)
class OptionFields:
    """All options with their defaults; see Options."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """-1: a free port."""
    client_advertise: str = ""
    config_file: str = ""
    """The file that from_file() read; empty without one."""
    server_name: str = ""
    """Empty: the server's id."""
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
    """Empty: `host`."""
    http_port: int = 0
    """0: no monitoring; -1: a free port."""
    https_host: str = ""
    https_port: int = 0
    http_base_path: str = ""
    tls: TLSOptions | None = None
    allow_non_tls: bool = False
    config_digest: str = ""
    """Digest of the configuration that was read: sha256:<hex>."""
    server_tags: tuple[str, ...] = ()
    server_metadata: dict[str, str] = field(default_factory=dict)
    feature_flags: dict[str, bool] = field(default_factory=dict)
    """The configured flags; gnats.version.feature_flags() returns all."""
    username: str = ""
    password: str = field(default="", repr=False)
    authorization: str = field(default="", repr=False)
    """A token. If it is set, `username` and `password` are ignored."""
    auth_timeout: float = 0.0
    """Seconds. 0: 2 s, or with TLS 1 s more than the time for a handshake."""
    permissions: Permissions | None = None
    """Permissions of the single user, and of users without their own. A client with the token may do all."""
    users: list[User] = field(default_factory=list)
    nkeys: list[NkeyUser] = field(default_factory=list)
    no_auth_user: str = ""
    default_sentinel: str = ""
    auth_callout: AuthCallout | None = None
    accounts: list[AccountConfig] = field(default_factory=list)
    mappings: list[Mapping] = field(default_factory=list)
    """Mappings of the global account."""
    system_account: str = ""
    """Empty: $SYS; in operator mode, the operator's."""
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
    max_control_line: int = MAX_CONTROL_LINE_SIZE
    max_payload: int = MAX_PAYLOAD_SIZE
    max_pending: int = MAX_PENDING_SIZE
    write_deadline: float = float(DEFAULT_FLUSH_DEADLINE)
    write_timeout: str = ""
    """The policy for a client that misses write_deadline: "" and "close" both close it."""
    ping_interval: float = float(DEFAULT_PING_INTERVAL)
    ping_max: int = DEFAULT_PING_MAX_OUT
    max_sub_tokens: int = 0
    """Tokens that the subject of a subscription may have; 0: any number."""
    no_sublist_cache: bool = False
    no_fast_producer_stall: bool = False
    no_header_support: bool = False
    max_closed_clients: int = 10000
    lame_duck_duration: float = 120.0
    lame_duck_grace_period: float = 10.0
    jetstream: JetStreamOptions = JetStreamOptions()
    io_threads: int | str = "auto"
    """Threads that serve connections; 0: the event loop serves them; "auto": see pollers.io_threads."""

    @property
    def accounts_by_jwt(self) -> bool:
        """True in operator mode: JWTs, not the configuration, define accounts and users."""
        return bool(self.trusted_operators or self.trusted_keys)
