"""/varz: the server's configuration and counters (Varz in monitor.go)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from gnats.clock import time_ns
from gnats.go.text import SECOND, rfc3339, uptime
from gnats.monitor.pages.jsz import varz_jetstream
from gnats.monitor.pages.render import Page, number, without_empty
from gnats.monitor.pages.statsz import StatszServer, slow_by_kind, stale_by_kind, traffic_of
from gnats.options.values.tls import TLS_TIMEOUT, TLSOptions
from gnats.system.usage import cores, process, resident_bytes
from gnats.version import NATS_VERSION, PROTO, RUNTIME, __version__, feature_flags

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.auth.authenticator import Authenticator
    from gnats.gateways.gateways import Gateways
    from gnats.operator.mode import OperatorMode
    from gnats.options.options import Options
    from gnats.options.values.cluster import ClusterOptions
    from gnats.options.values.gateway import GatewayOptions
    from gnats.options.values.leafnodes import LeafNodeOptions, RemoteLeafOptions

_OMITTED = frozenset(
    (
        "auth_required",
        "tls_required",
        "tls_verify",
        "max_subscriptions",
        "write_timeout",
        "tags",
        "metadata",
        "trusted_operators_jwt",
        "trusted_operators_claim",
        "pinned_account_fails",
        "system_account",
        "tls_cert_not_after",
    )
)


class VarzServer(StatszServer, Protocol):
    """The server as this page sees it."""

    @property
    def opts(self) -> "Options": ...
    @property
    def port(self) -> int: ...
    @property
    def auth(self) -> "Authenticator": ...
    @property
    def config_time(self) -> int: ...
    @property
    def http_requests(self) -> Mapping[str, int]: ...
    @property
    def system_account(self) -> "Account | None": ...
    @property
    def operator_mode(self) -> "OperatorMode | None": ...


def varz(server: VarzServer) -> Page:
    """Return the server's configuration and counters; fields have nats-server's names and order."""
    opts, now, cluster, leafs = server.opts, time_ns(), server.cluster, server.leafs
    threads = server.pollers.threads if server.pollers else 0
    page: Page = {
        **_configuration(server),
        "start": rfc3339(server.start_time),
        "now": rfc3339(now),
        "uptime": uptime(now - server.start_time),
        "mem": resident_bytes(),
        "cores": cores(),
        "gomaxprocs": min(threads + 1, cores()),
        "cpu": number(process.cpu()),
        "connections": server.num_clients,
        "total_connections": server.total_clients,
        "routes": len(cluster.routes) if cluster else 0,
        "remotes": cluster.routes.num_remotes if cluster else 0,
        "leafnodes": len(leafs.table) if leafs else 0,
        **traffic_of(server),
        "slow_consumers": server.state.slow_consumers,
        "stale_connections": server.state.stale_connections,
        "stalled_clients": server.state.stalls,
        "subscriptions": server.num_subscriptions,
        "http_req_stats": dict(sorted(server.http_requests.items())),
        "config_load_time": rfc3339(server.config_time),
        "config_digest": opts.config_digest,
        "tags": list(opts.server_tags),
        "metadata": dict(sorted(opts.server_metadata.items())),
        "feature_flags": feature_flags(opts.feature_flags),
        "trusted_operators_jwt": list(opts.trusted_operators),
        "trusted_operators_claim": _operators(server),
        "system_account": name_of(server.system_account),
        "pinned_account_fails": server.operator_mode.pinned_failures if server.operator_mode else 0,
        "slow_consumer_stats": slow_by_kind(server),
        "stale_connection_stats": stale_by_kind(server),
        "disk_io_wait_stats": {"waiters": 0, "waits": 0, "wait_time": 0, "max_wait_time": 0},
        "tls_cert_not_after": _not_after(opts.tls) if opts.tls else "",
    }
    return without_empty(page, _OMITTED)


def _configuration(server: VarzServer) -> Page:
    opts, tls = server.opts, server.opts.tls
    return {
        "server_id": server.id,
        "server_name": server.name,
        "version": NATS_VERSION,
        "proto": PROTO,
        "gnats": __version__,
        "go": RUNTIME,
        "host": opts.host,
        "port": server.port,
        "auth_required": server.auth.required,
        "tls_required": tls is not None and not opts.allow_non_tls,
        "tls_verify": tls is not None and tls.verify,
        "max_connections": opts.max_conn,
        "max_subscriptions": opts.max_subs,
        "ping_interval": _ns(opts.ping_interval),
        "ping_max": opts.ping_max,
        "http_host": opts.http_host,
        "http_port": opts.http_port,
        "http_base_path": opts.http_base_path,
        "https_port": opts.https_port,
        "auth_timeout": number(opts.auth_timeout),
        "max_control_line": opts.max_control_line,
        "max_payload": opts.max_payload,
        "max_pending": opts.max_pending,
        "cluster": _cluster(opts.cluster, server.cluster.port if server.cluster else opts.cluster.port),
        "gateway": _gateway(opts.gateway, server.gateways, opts.cluster),
        "leaf": _leafnodes(opts.leafnodes, server.leafs.port if server.leafs else 0, opts.cluster),
        "mqtt": {},
        "websocket": {},
        "jetstream": varz_jetstream(server),
        "tls_timeout": number(tls.timeout if tls else TLS_TIMEOUT),
        "write_deadline": _ns(opts.write_deadline),
        "write_timeout": opts.write_timeout,
    }


def name_of(account: "Account | None") -> str:
    """Return an account's name, "" for None."""
    return account.name if account else ""


def _operators(server: VarzServer) -> list[Page]:
    if server.operator_mode is None:
        return []
    from gnats.jwt.schema import to_json

    return [to_json(operator) for operator in server.operator_mode.operators]


def _not_after(tls: TLSOptions) -> str:
    from gnats.monitor.pages.certs import not_after

    return not_after(tls.certificates[0][0] if tls.certificates else tls.cert_file)


def _cluster(cluster: "ClusterOptions", port: int) -> Page:
    tls = cluster.tls
    page: Page = {
        "name": "" if cluster.hidden else cluster.name,
        "addr": cluster.host,
        "cluster_port": port,
        "auth_timeout": number(cluster.auth_timeout),
        "urls": [url.host for url in cluster.routes],
        "tls_timeout": number(tls.timeout if tls else TLS_TIMEOUT) if cluster.port else 0,
        "tls_required": tls is not None,
        "tls_verify": tls is not None,
        "pool_size": cluster.pool_size,
        "write_deadline": _ns(cluster.write_deadline),
        "write_timeout": cluster.write_timeout,
        "tls_cert_not_after": _not_after(tls) if tls else "",
    }
    return without_empty(page, page)


def _gateway(gateway: "GatewayOptions", gateways: "Gateways | None", cluster: "ClusterOptions") -> Page:
    tls = gateway.tls
    page: Page = {
        "name": gateway.name,
        "host": gateway.host,
        "port": gateways.port if gateways else gateway.port,
        "auth_timeout": number(gateway.auth_timeout),
        "tls_timeout": number(tls.timeout if tls else TLS_TIMEOUT) if gateway.port or tls else 0,
        "tls_required": tls is not None,
        "tls_verify": tls is not None,
        "advertise": gateway.advertise,
        "connect_retries": gateway.connect_retries,
        "gateways": _remote_gateways(gateway, gateways),
        "reject_unknown": gateway.reject_unknown,
        # nats-server shows those of the cluster, although a gateway has its own
        "write_deadline": _ns(cluster.write_deadline),
        "write_timeout": cluster.write_timeout,
        "tls_cert_not_after": _not_after(tls) if tls else "",
    }
    return without_empty(page, page)


def _remote_gateways(gateway: "GatewayOptions", gateways: "Gateways | None") -> list[Page]:
    urls: dict[str, list[str]] = {}
    if gateways:
        urls = {remote.name: [url.host for url in remote.urls] for remote in gateway.gateways}
        urls |= {name: remote.hosts for name, remote in gateways.remotes.items()}
    pages: list[Page] = [
        {
            "name": remote.name,
            "tls_timeout": number(remote.tls.timeout) if remote.tls else 0,
            "urls": list(dict.fromkeys(urls.get(remote.name, ()))),
        }
        for remote in gateway.gateways
    ]
    return [without_empty(page, ("tls_timeout", "urls")) for page in pages]


def _leafnodes(leaf: "LeafNodeOptions", port: int, cluster: "ClusterOptions") -> Page:
    tls = leaf.tls
    page: Page = {
        "host": leaf.host,
        "port": port,
        "auth_timeout": number(leaf.auth_timeout),
        "tls_timeout": number(tls.timeout if tls else TLS_TIMEOUT) if leaf.port or tls else 0,
        "tls_required": tls is not None,
        "tls_verify": tls is not None and tls.verify,
        "remotes": [_remote(remote) for remote in leaf.remotes],
        # nats-server shows those of the cluster, although leaf nodes have their own
        "write_deadline": _ns(cluster.write_deadline),
        "write_timeout": cluster.write_timeout,
        "tls_cert_not_after": _not_after(tls) if tls else "",
    }
    return without_empty(page, page)


def _remote(remote: "RemoteLeafOptions") -> Page:
    deny: Page = {"exports": list(remote.deny_exports), "imports": list(remote.deny_imports)}
    page: Page = {
        "local_account": remote.account,
        "tls_timeout": number(remote.tls.timeout) if remote.tls else 0,
        "urls": [url.host for url in remote.urls],
        "deny": without_empty(deny, deny),
    }
    return without_empty(page, page)


def _ns(seconds: float) -> int:
    return round(seconds * SECOND)
