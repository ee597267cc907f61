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
from gnats.options.values.cluster import ClusterOptions
from gnats.options.values.gateway import GatewayOptions
from gnats.options.values.jetstream import JetStreamOptions
from gnats.options.values.leafnodes import LeafNodeOptions
from gnats.options.values.tls import TLSOptions

DEFAULT_PORT = 4222


@dataclass(slots=True)
class OptionFields:
    """All options with their defaults; see Options."""

    host: str = "127.0.0.1"
    """The address that the client port listens on."""
    port: int = DEFAULT_PORT
    """The client port; -1: a free port."""
    client_advertise: str = ""
    """host:port that INFO names in place of the address that the server listens on."""
    config_file: str = ""
    """The file that from_file() read; empty without one."""
    server_name: str = ""
    """Empty: the server's id."""
    debug: bool = False
    """Log debug lines."""
    trace: bool = False
    """Log the protocol of every connection."""
    logtime: bool = True
    """Begin log lines with the time."""
    logtime_utc: bool = False
    """Log times in UTC instead of local time."""
    log_file: str = ""
    """Empty: no log file."""
    pid_file: str = ""
    """The file that holds the server's process id while it runs; empty: none."""
    ports_file_dir: str = ""
    """The directory of the ports file, <program>_<pid>.ports; empty: no ports file."""
    trace_verbose: bool = False
    """With `trace`, also log the system account."""
    trace_headers: bool = False
    """With `trace`, log only the headers of messages."""
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
    """Failed attempts from one report to the next, for first connections to other servers (not built)."""
    reconnect_error_reports: int = 1
    """The same for connections that were lost."""
    prof_port: int = 0
    """The port of the profiling pages; 0: none; -1: a free port."""
    prof_block_rate: int = 0
    """Nanoseconds from which a call that blocks the event loop is recorded; 0: none is."""
    http_host: str = ""
    """Empty: `host`."""
    http_port: int = 0
    """0: no monitoring; -1: a free port."""
    https_host: str = ""
    """Empty: `host`."""
    https_port: int = 0
    """As http_port, over TLS; only one of the two may be set."""
    http_base_path: str = ""
    """The path that precedes those of all monitoring pages."""
    tls: TLSOptions | None = None
    """TLS of the client port and of https_port; None: clear text."""
    allow_non_tls: bool = False
    """With `tls`, also serve clients that do not use it."""
    config_digest: str = ""
    """Digest of the configuration that was read: sha256:<hex>."""
    server_tags: tuple[str, ...] = ()
    """Tags for monitoring, and for requests to servers with certain tags."""
    server_metadata: dict[str, str] = field(default_factory=dict)
    """Names and values for monitoring."""
    feature_flags: dict[str, bool] = field(default_factory=dict)
    """The configured flags; gnats.version.feature_flags() returns all."""
    username: str = ""
    """The single user; empty: none."""
    password: str = field(default="", repr=False)
    """The single user's password, plain or bcrypt."""
    authorization: str = field(default="", repr=False)
    """A token. If it is set, `username` and `password` are ignored."""
    auth_timeout: float = 0.0
    """Seconds. 0: 2 s, or with TLS 1 s more than the time for a handshake."""
    permissions: Permissions | None = None
    """Permissions of the single user, and of users without their own. A client with the token may do all."""
    users: list[User] = field(default_factory=list)
    nkeys: list[NkeyUser] = field(default_factory=list)
    no_auth_user: str = ""
    """The user, by name or nkey, of clients that send no credentials; empty: these are refused."""
    default_sentinel: str = ""
    """Default JWT for clients that send none; empty: a JWT is required."""
    auth_callout: AuthCallout | None = None
    """None: the server authenticates clients itself."""
    accounts: list[AccountConfig] = field(default_factory=list)
    mappings: list[Mapping] = field(default_factory=list)
    """Mappings of the global account."""
    system_account: str = ""
    """Empty: $SYS; in operator mode, the operator's."""
    no_system_account: bool = False
    """Create no system account by default. JetStream creates one all the same."""
    trusted_operators: tuple[str, ...] = ()
    """Operator JWTs."""
    trusted_keys: tuple[str, ...] = ()
    """Public operator nkeys."""
    resolver: ResolverOptions | None = None
    """The source of account JWTs, in operator mode."""
    resolver_preload: dict[str, str] = field(default_factory=dict)
    """Account JWTs by public account nkey."""
    resolver_pinned_accounts: frozenset[str] = frozenset()
    """Accounts (public nkeys) whose users may connect, besides the system account; empty: all."""
    resolver_tls: TLSOptions | None = None
    """TLS for the URL of the resolver."""
    max_conn: int = 65536
    """Clients that may be connected at the same time (max_connections); negative: none."""
    max_subs: int = 0
    """Subscriptions that one client may have; 0: any number."""
    max_control_line: int = MAX_CONTROL_LINE_SIZE
    """Bytes of the longest protocol line of a client."""
    max_payload: int = MAX_PAYLOAD_SIZE
    """Bytes of the largest payload, including its header; -1: no limit."""
    max_pending: int = MAX_PENDING_SIZE
    """Bytes that may be queued for a client; with more, the server closes it as a slow consumer."""
    write_deadline: float = float(DEFAULT_FLUSH_DEADLINE)
    """Seconds in which a client must accept the bytes that were queued when its socket accepted no more."""
    write_timeout: str = ""
    """The policy for a client that misses write_deadline: "" and "close" both close it; "retry" sets another
    one if the client has read anything since the last."""
    ping_interval: float = float(DEFAULT_PING_INTERVAL)
    """Seconds between PINGs to a client."""
    ping_max: int = DEFAULT_PING_MAX_OUT
    """PINGs without a PONG, after which the server closes a client."""
    max_sub_tokens: int = 0
    """Tokens that the subject of a subscription may have; 0: any number."""
    no_sublist_cache: bool = False
    """Turn off nats-server's cache of a sublist. Sublists of gnats have none."""
    no_fast_producer_stall: bool = False
    """Do not stall clients that send faster than a slow consumer reads."""
    no_header_support: bool = False
    """Offer no headers to clients."""
    max_closed_clients: int = 10000
    """Closed connections that monitoring remembers."""
    lame_duck_duration: float = 120.0
    """Seconds from the start of lame duck mode until the last client is closed, at most."""
    lame_duck_grace_period: float = 10.0
    """Seconds from the start of lame duck mode until the first client is closed."""
    jetstream: JetStreamOptions = JetStreamOptions()
    cluster: ClusterOptions = ClusterOptions()
    gateway: GatewayOptions = GatewayOptions()
    leafnodes: LeafNodeOptions = LeafNodeOptions()
    default_js_domain: dict[str, str] = field(default_factory=dict)
    """By account without JetStream of its own: the domain of its JetStream, on another server; "": none."""
    io_threads: int | str = "auto"
    """Threads that serve connections; 0: the event loop serves them; "auto": see pollers.io_threads."""

    @property
    def accounts_by_jwt(self) -> bool:
        """True in operator mode: JWTs, not the configuration, define accounts and users."""
        return bool(self.trusted_operators or self.trusted_keys)
