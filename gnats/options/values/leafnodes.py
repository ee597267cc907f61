"""The leafnodes block and its remotes (LeafNodeOpts, RemoteLeafOpts in opts.go)."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace

from gnats.errors import OptionError
from gnats.go.hostport import RANDOM_PORT, parse_host_port
from gnats.go.text import join_host_port, quote
from gnats.go.url import URL, parse_url
from gnats.options.values.auth import GLOBAL_ACCOUNT, User, check_permission_subjects
from gnats.options.values.cluster import LOOPBACK, S2_AUTO, Compression
from gnats.options.values.tls import TLS_TIMEOUT, TLSOptions, default_auth_timeout

NO_WEBSOCKET = (
    "remotes over WebSocket (ws://, wss://) are not supported yet: use nats-leaf://, with a tls block for"
    " TLS, and the hub's port for leaf nodes"
)
LEAFNODE_PORT = 7422
"""The port of a remote's URL that names none."""
RECONNECT_INTERVAL = 1.0
DIAL_TIMEOUT = 1.0
FIRST_INFO_TIMEOUT = 1.0
OLDEST_VERSION = 2, 8, 0
"""The first version whose CONNECT says which it is: no older one can be asked for."""

_IDENTIFIERS = r"(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION = re.compile(
    rf"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    rf"(?:-{_IDENTIFIERS}(?:\.{_IDENTIFIERS})*)?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """The HTTP proxy through which a remote's WebSocket URLs are dialled."""

    url: str = ""
    """http://host:port or https://host:port; "": no proxy."""
    username: str = ""
    password: str = field(default="", repr=False)
    timeout: float = 0.0
    """Seconds; 0: the time for a dial."""
    tls: TLSOptions | None = None
    """TLS to a proxy whose URL is https://."""


@dataclass(frozen=True, slots=True)
class RemoteLeafOptions:
    """A server, or a cluster of servers, to which this one connects as a leaf node. Durations are seconds."""

    urls: tuple[URL, ...] = ()
    account: str = ""
    """The local account that the connection belongs to; "": the global account."""
    credentials: str = field(default="", repr=False)
    """The file with a user JWT and its seed; "": none."""
    nkey: str = field(default="", repr=False)
    """The seed of a user nkey; "": none."""
    tls: TLSOptions | None = None
    hub: bool = False
    """This server is the hub of the connection, although it dials."""
    deny_imports: tuple[str, ...] = ()
    """Subjects that this server does not subscribe to at the other one."""
    deny_exports: tuple[str, ...] = ()
    """Subjects that this server does not publish to the other one."""
    no_randomize: bool = False
    """Try the URLs in their order."""
    first_info_timeout: float = 0.0
    """Time for the other server's first INFO."""
    dial_timeout: float = 0.0
    """0 or less: that of the block."""
    compression: Compression = Compression()
    websocket_compression: bool = False
    websocket_no_masking: bool = False
    proxy: ProxyOptions = ProxyOptions()
    jetstream_cluster_migrate: bool = False
    """While the connection is down, move the leaders of replicated streams to other servers."""
    jetstream_cluster_migrate_delay: float = 0.0
    local_isolation: bool = False
    """Announce no interest of other leaf nodes to this remote."""
    request_isolation: bool = False
    """Ask the remote to announce no interest of its other leaf nodes."""
    disabled: bool = False
    """Do not connect."""
    ignore_discovered_servers: bool = False
    """Connect to the configured URLs only, not to those that the remote tells of."""

    @property
    def key(self) -> tuple[tuple[URL, ...], str, str]:
        """Identity: two remotes with the same key are the same, and may not be configured both (name)."""
        return self.urls, self.account or GLOBAL_ACCOUNT, self.credentials or self.nkey

    def __str__(self) -> str:
        """Return its URLs, account and kind of credentials, without secrets (safeName)."""
        urls = " ".join(quote(url.redacted()) for url in self.urls)
        optional = ""
        if self.credentials:
            optional = f", credentials={quote(self.credentials)}"
        elif self.nkey:
            optional = ', nkey="[REDACTED]"'
        return f"urls=[{urls}], account={quote(self.account or GLOBAL_ACCOUNT)}{optional}"

    def with_defaults(self) -> RemoteLeafOptions:
        """Return a copy with defaults in place of empty and zero values."""
        return replace(
            self,
            urls=tuple(map(_with_port, self.urls)),
            account=self.account or GLOBAL_ACCOUNT,
            tls=_with_timeout(self.tls, self.tls is None or self.tls.timeout <= 0),
            compression=self.compression if self.compression.mode else Compression(S2_AUTO),
            first_info_timeout=self.first_info_timeout if self.first_info_timeout > 0 else FIRST_INFO_TIMEOUT,
        )

    def proxy_warnings(self) -> Iterator[str]:
        """Yield what will not go through the proxy. Raises OptionError (validateLeafNodeProxyOptions)."""
        proxy = self.proxy
        if not proxy.url:
            if proxy != ProxyOptions():
                raise OptionError("proxy URL must be specified when other proxy options are set")
            return
        _check_proxy_url(proxy)
        if proxy.timeout < 0:
            raise OptionError("proxy timeout must be >= 0")
        if bool(proxy.username) != bool(proxy.password):
            raise OptionError("proxy username and password must both be specified or both be empty")
        over_websocket = [url for url in self.urls if is_websocket(url)]
        for url in over_websocket:
            if url.scheme == "wss" and self.tls is None:
                raise OptionError(
                    f"proxy is configured but remote URL {url.redacted()} requires TLS and no TLS"
                    " configuration is provided: give the remote a tls block"
                )
        if self.urls and not over_websocket:
            yield (
                "proxy configuration will be ignored: it is for WebSocket URLs (ws:// or wss://) only,"
                " and no URL of the remote is one"
            )
        elif len(over_websocket) < len(self.urls):
            yield "proxy configuration will only be used for WebSocket URLs (ws:// or wss://)"

    def check_urls(self) -> None:
        """Check that all URLs are of WebSocket connections, or none. Raises OptionError."""
        if len({is_websocket(url) for url in self.urls}) > 1:
            shown = " ".join(quote(url.redacted()) for url in self.urls)
            raise OptionError(
                "remote leaf node configuration cannot have a mix of websocket and non-websocket"
                f" urls: [{shown}]"
            )


@dataclass(frozen=True, slots=True)
class LeafNodeOptions:
    """The leafnodes block of a server. Durations are seconds; 0 and "" mean the default."""

    host: str = ""
    port: int = 0
    """0: accept no leaf nodes; -1: a free port."""
    username: str = ""
    password: str = field(default="", repr=False)
    nkey: str = ""
    """The public user nkey that leaf nodes must have; "": none."""
    account: str = ""
    """The account of leaf nodes that need no credentials, or have those above; "": the global account."""
    users: tuple[User, ...] = ()
    """Users of leaf nodes only; of each the name, the password, the account and proxy_required are used."""
    proxy_required: bool = False
    auth_timeout: float = 0.0
    tls: TLSOptions | None = None
    advertise: str = ""
    """host:port that INFO names in place of the address that the server listens on."""
    no_advertise: bool = False
    """Tell leaf nodes no URLs of the cluster's other servers."""
    reconnect_interval: float = RECONNECT_INTERVAL
    """Time between attempts to connect to a remote."""
    dial_timeout: float = 0.0
    """Time for the TCP connection to a remote; 0 or less: DIAL_TIMEOUT."""
    min_version: str = ""
    """The oldest version of a server that may connect; "": any."""
    compression: Compression = Compression()
    isolate_leafnode_interest: bool = False
    """Announce no interest of leaf nodes to other leaf nodes."""
    write_deadline: float = 0.0
    write_timeout: str = ""
    remotes: tuple[RemoteLeafOptions, ...] = ()

    @property
    def configured(self) -> bool:
        """Whether the server listens for leaf nodes, or is one."""
        return bool(self.port or self.remotes)

    def baseline(self, accounts: Container[str] | None) -> LeafNodeOptions:
        """Return a checked copy with defaults; `accounts` as for validate(). Raises OptionError."""
        leaf = replace(
            self,
            reconnect_interval=self.reconnect_interval or RECONNECT_INTERVAL,
            remotes=tuple(remote.with_defaults() for remote in self.remotes),
        )
        if self.port:
            tls = _with_timeout(self.tls, self.tls is None or self.tls.timeout == 0)
            leaf = replace(
                leaf,
                host=self.host or LOOPBACK,
                tls=tls,
                auth_timeout=self.auth_timeout or default_auth_timeout(tls),
                compression=self.compression if self.compression.mode else Compression(S2_AUTO),
            )
        leaf.validate(accounts)
        return replace(
            leaf,
            compression=_normalized(leaf.compression),
            remotes=tuple(
                replace(remote, compression=_normalized(remote.compression)) for remote in leaf.remotes
            ),
        )

    def validate(self, accounts: Container[str] | None) -> None:
        """Check the options as nats-server does (validateLeafNode). Raises OptionError.

        `accounts` are the names that exist; None: JWTs define them.
        """
        self.check_authorization()
        if not RANDOM_PORT <= self.port <= 65535:
            raise OptionError(f"leafnodes port {self.port} is not a port: -1 (a free one) to 65535")
        self._check_remotes()
        if accounts is None:
            self._check_account_keys()
        else:
            self._check_accounts(accounts)
        _normalized(self.compression)
        for remote in self.remotes:
            for _ in remote.proxy_warnings():
                pass  # the reader of a configuration file reports them
            remote.check_urls()
            _normalized(remote.compression)
        if self.port:
            check_min_version(self.min_version)
            if self.advertise:
                parse_host_port(self.advertise, self.port)
        self._check_supported()

    def check_authorization(self) -> None:
        """Check that there is one user, one nkey or a list of users (validateLeafNodeAuthOptions).

        Raises OptionError.
        """
        if not self.users:
            return
        for what, single in ("user/pass", self.username), ("nkey", self.nkey):
            if single:
                raise OptionError(f"can not have a single {what} and a users array")
        names = set()
        for user in self.users:
            if user.username in names:
                raise OptionError(f"duplicate user {quote(user.username)} detected in leafnode authorization")
            names.add(user.username)

    def _check_remotes(self) -> None:
        keys = set()
        for remote in self.remotes:
            for what in "deny_imports", "deny_exports":
                try:
                    check_permission_subjects(getattr(remote, what), queues=False)
                except ValueError as exc:
                    raise OptionError(f"invalid {what} for remote {remote}: {exc}") from None
            if remote.key in keys:
                raise OptionError(f"duplicate remote {remote}")
            keys.add(remote.key)

    def _check_accounts(self, accounts: Container[str]) -> None:
        """Check that the accounts exist; "" is the global one."""
        named = [("authorization", self.account)]
        named += [("authorization", user.account) for user in self.users]
        named += [("remote", remote.account) for remote in self.remotes]
        for where, name in named:
            if name and name not in accounts:
                raise OptionError(f"cannot find local account {quote(name)} specified in leafnode {where}")

    def _check_account_keys(self) -> None:
        """Check that accounts are named by their nkeys, as in operator mode."""
        from gnats.nkeys.nkeys import Prefix, is_valid_public_key

        if self.users:
            raise OptionError("operator mode does not allow specifying users in leafnode config")
        for remote in self.remotes:
            if not is_valid_public_key(remote.account, Prefix.ACCOUNT):
                raise OptionError(
                    "operator mode requires account nkeys in remotes: give each remote of `leafnodes` an"
                    " `account`, the public nkey of the account, 56 characters that begin with A"
                )
        if self.port and self.account and not is_valid_public_key(self.account, Prefix.ACCOUNT):
            raise OptionError("operator mode and non account nkeys are incompatible")

    def _check_supported(self) -> None:
        """Refuse what the options can say and this server cannot do yet. Raises OptionError."""
        if self.proxy_required or any(user.proxy_required for user in self.users):
            raise OptionError("leafnodes proxy_required is not supported yet")
        for remote in self.remotes:
            if any(map(is_websocket, remote.urls)):
                raise OptionError(f"remote {remote}: {NO_WEBSOCKET}")
            if remote.jetstream_cluster_migrate:
                raise OptionError(f"remote {remote}: jetstream_cluster_migrate is not supported yet")


def is_websocket(url: URL) -> bool:
    """Whether connections to the URL use WebSocket (isWSURL)."""
    return url.scheme in ("ws", "wss")


def check_min_version(version: str) -> None:
    """Check that it is a version that can be asked for, "" is none (checkLeafMinVersionConfig).

    Raises OptionError.
    """
    if not version:
        return
    found = _VERSION.fullmatch(version)
    if not found:
        raise OptionError("invalid leafnode's minimum version: invalid semver")
    if tuple(map(int, found.groups())) < OLDEST_VERSION:
        raise OptionError("the minimum version should be at least 2.8.0")


def _check_proxy_url(proxy: ProxyOptions) -> None:
    try:
        url = parse_url(proxy.url)
    except ValueError as exc:
        raise OptionError(f"invalid proxy URL: parse {quote(proxy.url)}: {exc}") from None
    if url.scheme not in ("http", "https"):
        raise OptionError(f"proxy URL scheme must be http or https, got: {url.scheme}")
    if not url.host:
        raise OptionError("proxy URL must specify a host")
    if proxy.tls and url.scheme != "https":
        raise OptionError(f"proxy TLS configuration requires an https proxy URL, got: {url.scheme}")
    if proxy.tls and proxy.tls.timeout < 0:
        raise OptionError("proxy TLS timeout must be >= 0")


def _with_port(url: URL) -> URL:
    """Return the URL with a port, that of leaf nodes if it has none."""
    _, colon, port = url.host.rpartition("]")[2].rpartition(":")
    return url if colon and port else replace(url, host=join_host_port(url.hostname(), LEAFNODE_PORT))


def _with_timeout(tls: TLSOptions | None, unset: bool) -> TLSOptions | None:
    return replace(tls, timeout=TLS_TIMEOUT) if tls and unset else tls


def _normalized(compression: Compression) -> Compression:
    return compression.normalized(S2_AUTO) if compression.mode else compression
