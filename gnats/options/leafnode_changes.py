"""Changes of the leafnodes block at a reload (getLeafNodeOptionsChanges in reload.go)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gnats.errors import OptionError
from gnats.go.text import duration_of
from gnats.options.values.cluster import Compression
from gnats.options.values.leafnodes import LeafNodeOptions, RemoteLeafOptions
from gnats.options.values.tls import TLSOptions

_SECRET = "[REDACTED]"


@dataclass(frozen=True, slots=True)
class RemoteChange:
    """A remote that stays, with options that changed: `old` and `new` have the same key."""

    old: RemoteLeafOptions
    new: RemoteLeafOptions

    @property
    def tls(self) -> bool:
        """TLS is other than before, apart from the switch `handshake_first`."""
        return _without_first(self.old.tls) != _without_first(self.new.tls)

    @property
    def proxy_tls(self) -> bool:
        """TLS to the remote's HTTP proxy is other than before."""
        return self.old.proxy.tls != self.new.proxy.tls

    @property
    def handshake_first(self) -> bool:
        return _first(self.old.tls) != _first(self.new.tls)

    @property
    def compression(self) -> bool:
        return self.old.compression != self.new.compression

    @property
    def disabled(self) -> bool:
        """The remote was switched off or on; `new.disabled` says which."""
        return self.old.disabled != self.new.disabled

    def notices(self) -> Iterator[str]:
        """Yield the log lines of a reload that applies the change."""
        new = self.new
        if self.handshake_first:
            yield f"Reloaded: LeafNode Remote {new} TLS HandshakeFirst value is: {_show(_first(new.tls))}"
        if self.compression:
            yield f"Reloaded: LeafNode Remote {new} Compression value is: {_show(new.compression)}"
        if self.disabled:
            yield f"Reloaded: LeafNode Remote {new} Disabled value is: {_show(new.disabled)}"


@dataclass(frozen=True, slots=True)
class LeafNodeChanges:
    """The changes of a reload, all of which may be made while the server runs.

    False if there is none. `old` and `new` are the options, with defaults; another order of the remotes is no
    change.
    """

    old: LeafNodeOptions
    new: LeafNodeOptions
    added: tuple[RemoteLeafOptions, ...] = ()
    removed: tuple[RemoteLeafOptions, ...] = ()
    changed: tuple[RemoteChange, ...] = ()

    def __bool__(self) -> bool:
        remotes = self.added or self.removed or self.changed
        return bool(remotes or self.tls or self.handshake_first or self.compression)

    @property
    def tls(self) -> bool:
        """TLS of accepted connections is other than before, apart from the options `handshake_first`."""
        return _without_first(self.old.tls) != _without_first(self.new.tls)

    @property
    def handshake_first(self) -> bool:
        old, new = self.old.tls, self.new.tls
        return (_first(old), _fallback(old)) != (_first(new), _fallback(new))

    @property
    def compression(self) -> bool:
        """Compression of accepted connections is other than before."""
        return self.old.compression != self.new.compression

    def notices(self) -> Iterator[str]:
        """Yield the log lines of a reload that applies the changes, but for those of new connections."""
        new = self.new
        if self.handshake_first:
            yield f"Reloaded: LeafNode TLS HandshakeFirst value is: {_show(_first(new.tls))}"
            fallback = duration_of(_fallback(new.tls))
            yield f"Reloaded: LeafNode TLS HandshakeFirstFallback value is: {fallback}"
        if self.compression:
            yield f"Reloaded: LeafNode Compression value is: {_show(new.compression)}"
        for remote in self.removed:
            yield f"Reloaded: LeafNode Remote {remote} removed"
        for change in self.changed:
            yield from change.notices()


def leafnode_changes(old: LeafNodeOptions, new: LeafNodeOptions) -> LeafNodeChanges:
    """Compare two blocks, both with defaults.

    Raises OptionError with the first field, by nats-server's name, that needs another start.
    """
    if _users(old) != _users(new):
        shown = f"old={_show(old.users)}, new={_show(new.users)}"
        raise OptionError(f'config reload not supported for LeafNode: field "Users": {shown}')
    _check_same("LeafNode: ", _fixed(old), _fixed(new))
    before = {remote.key: remote for remote in old.remotes}
    after = {remote.key: remote for remote in new.remotes}
    changed = []
    for key in before.keys() & after.keys():
        was, will = before[key], after[key]
        where = f"LeafNode: remote {will}: "
        _check_same(where, _fixed_of_remote(was), _fixed_of_remote(will))
        if replace(was.proxy, tls=None) != replace(will.proxy, tls=None):
            why = 'field "Proxy": only the proxy TLS configuration can be changed'
            raise OptionError(f"config reload not supported for {where}{why}")
        if was != will:
            changed.append(RemoteChange(was, will))
    return LeafNodeChanges(
        old,
        new,
        added=tuple(remote for remote in new.remotes if remote.key not in before),
        removed=tuple(remote for remote in old.remotes if remote.key not in after),
        changed=tuple(changed),
    )


def _users(leaf: LeafNodeOptions) -> dict[str, tuple[str, str]]:
    return {user.username: (user.password, user.account) for user in leaf.users}


def _fixed(leaf: LeafNodeOptions) -> dict[str, tuple[object, object]]:
    """Return the options that cannot change, by nats-server's names: each and what errors show of it."""
    tls = leaf.tls or TLSOptions()
    shown = {
        "Host": leaf.host,
        "Port": leaf.port,
        "Username": leaf.username,
        "ProxyRequired": leaf.proxy_required,
        "Nkey": leaf.nkey,
        "Account": leaf.account,
        "AuthTimeout": leaf.auth_timeout,
        "TLSTimeout": tls.timeout if leaf.tls or leaf.port else 0,
        "TLSMap": tls.verify_and_map,
        "Advertise": leaf.advertise,
        "NoAdvertise": leaf.no_advertise,
        "WriteTimeout": leaf.write_timeout,
        "MinVersion": leaf.min_version,
        "IsolateLeafnodeInterest": leaf.isolate_leafnode_interest,
    }
    fixed: dict[str, tuple[object, object]] = {name: (value, value) for name, value in shown.items()}
    for name, seconds in (
        ("ReconnectInterval", leaf.reconnect_interval),
        ("WriteDeadline", leaf.write_deadline),
        ("DialTimeout", leaf.dial_timeout),
    ):
        fixed[name] = seconds, duration_of(seconds)
    fixed["Password"] = leaf.password, _hidden(leaf.password)
    pins = " ".join(f"{pin}:{{}}" for pin in sorted(tls.pinned_certs))
    fixed["TLSPinnedCerts"] = tls.pinned_certs, f"map[{pins}]"
    return fixed


def _fixed_of_remote(remote: RemoteLeafOptions) -> dict[str, tuple[object, object]]:
    websocket = remote.websocket_compression, remote.websocket_no_masking
    fixed: dict[str, tuple[object, object]] = {
        name: (value, value)
        for name, value in (
            ("NoRandomize", remote.no_randomize),
            ("TLSTimeout", remote.tls.timeout if remote.tls else 0),
            ("Hub", remote.hub),
            ("DenyImports", remote.deny_imports),
            ("DenyExports", remote.deny_exports),
            ("JetStreamClusterMigrate", remote.jetstream_cluster_migrate),
            ("LocalIsolation", remote.local_isolation),
            ("RequestIsolation", remote.request_isolation),
            ("IgnoreDiscoveredServers", remote.ignore_discovered_servers),
        )
    }
    for name, seconds in (
        ("FirstInfoTimeout", remote.first_info_timeout),
        ("DialTimeout", remote.dial_timeout),
        ("JetStreamClusterMigrateDelay", remote.jetstream_cluster_migrate_delay),
    ):
        fixed[name] = seconds, duration_of(seconds)
    fixed["Websocket"] = websocket, f"{{{' '.join(map(_show, websocket))}}}"
    return fixed


def _check_same(
    where: str, old: dict[str, tuple[object, object]], new: dict[str, tuple[object, object]]
) -> None:
    for name, (value, shown) in new.items():
        before, was = old[name]
        if value != before:
            change = f"old={_show(was)}, new={_show(shown)}"
            raise OptionError(f'config reload not supported for {where}field "{name}": {change}')


def _hidden(secret: str) -> str:
    return secret and _SECRET


def _first(tls: TLSOptions | None) -> bool:
    return tls is not None and tls.handshake_first


def _fallback(tls: TLSOptions | None) -> float:
    return tls.handshake_first_fallback if tls else 0.0


def _without_first(tls: TLSOptions | None) -> TLSOptions | None:
    return replace(tls, handshake_first=False, handshake_first_fallback=0.0) if tls else None


def _show(value: object) -> str:
    """Return a value as Go's %v shows it; "..." where Go shows an address."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Compression):
        return f"{{{value.mode} [{' '.join(map(duration_of, value.rtt_thresholds))}]}}"
    if isinstance(value, tuple):
        return f"[{' '.join(each if isinstance(each, str) else '...' for each in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
