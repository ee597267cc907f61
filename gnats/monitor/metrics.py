"""/metrics: the server for Prometheus. No series is about one connection.

Links are summed by the remote server's name; what links of the past have carried is kept (link_health.py).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gnats.cluster.link_health import LinkHealth
from gnats.go.text import SECOND
from gnats.monitor.pages.linkz import healths
from gnats.monitor.pages.varz import VarzServer
from gnats.version import NATS_VERSION, __version__

_SLOW = "Connections closed, or given more time, as slow consumers"
_DIRECTIONS = ("in", "out")


class MetricsServer(VarzServer, Protocol):
    """The server as its metrics see it."""

    @property
    def accepting(self) -> bool: ...


def process_metrics() -> list[Metric]:
    """Return the metrics of the process. Any thread: counting thousands of open files takes milliseconds."""
    return [*ProcessCollector(namespace="gnats", registry=None).collect()]


def exposition(server: MetricsServer, process: list[Metric], accept: str = "") -> tuple[bytes, str]:
    """Return (all metrics, their content type), in Prometheus's text format or one that `accept` prefers."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServerCollector(server, process))
    GCCollector(registry=registry)
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:  # prometheus_client fails on a malformed version in the Accept header
        encode, content_type = choose_encoder("")
    return encode(registry), content_type


class ServerCollector(Collector):
    """Reads a server's counters."""

    def __init__(self, server: MetricsServer, process: list[Metric]) -> None:
        self._server = server
        self._process = process

    def collect(self) -> Iterator[Metric]:
        """Yield the present metrics."""
        yield from self._server_metrics()
        yield from self._traffic_metrics()
        yield from self._account_metrics()
        yield from self._jetstream_metrics()
        yield from link_metrics(healths(self._server))
        yield from self._process
        requests = self._server.http_requests
        yield _counter(
            "gnats_http_requests", "Requests to the monitoring port", ("path",), requests_rows(requests)
        )

    def _server_metrics(self) -> Iterator[Metric]:
        server = self._server
        names = {
            "server_id": server.id,
            "server_name": server.name,
            "version": __version__,
            "nats_version": NATS_VERSION,
        }
        yield InfoMetricFamily("gnats", "The server", value=names)
        yield _gauge("gnats_start_time_seconds", "When the server started", server.start_time / SECOND)
        yield _gauge(
            "gnats_config_load_time_seconds", "When the configuration was read", server.config_time / SECOND
        )
        yield _gauge("gnats_accepting", "1 while clients are let in", int(server.accepting))
        yield _gauge("gnats_connections", "Client connections", server.num_clients)
        yield _gauge("gnats_max_connections", "Client connections allowed", server.opts.max_conn)
        yield _gauge("gnats_subscriptions", "Subscriptions, the server's included", server.num_subscriptions)
        for name, what, value in (
            ("accepted_connections", "Client connections so far", server.total_clients),
            (
                "slow_consumers",
                _SLOW,
                server.state.slow_consumers,
            ),
            ("stale_connections", "Connections closed for not answering", server.state.stale_connections),
            ("stalls", "Times that a producer was stalled by a slow consumer", server.state.stalls),
        ):
            yield _counter(f"gnats_{name}", what, (), [((), value)])

    def _traffic_metrics(self) -> Iterator[Metric]:
        pollers = self._server.pollers
        if pollers is None:
            return
        stats = pollers.stats()
        for what, unit in (("messages", "msgs"), ("bytes", "bytes")):
            rows = [((direction,), stats[f"{direction}_{unit}"]) for direction in _DIRECTIONS]
            yield _counter(f"gnats_{what}", f"{what.title()} from and to clients", ("direction",), rows)
        yield _counter("gnats_poller_wakeups", "Batches of the pollers", (), [((), stats["wakeups"])])
        rows = [(("hit",), stats["cache_hits"]), (("miss",), stats["cache_misses"])]
        yield _counter("gnats_cache_lookups", "Look-ups in the pollers' result caches", ("result",), rows)
        yield _gauge("gnats_cache_entries", "Subjects in the pollers' result caches", stats["cache_entries"])
        yield _gauge(
            "gnats_pending_events", "What the control plane has still to look at", pollers.pending_events
        )

    def _account_metrics(self) -> Iterator[Metric]:
        connections = GaugeMetricFamily("gnats_account_connections", "Client connections", labels=["account"])
        subs = GaugeMetricFamily("gnats_account_subscriptions", "Subscriptions", labels=["account"])
        messages = CounterMetricFamily(
            "gnats_account_messages",
            "Messages from and to clients and other servers",
            labels=["account", "direction"],
        )
        sizes = CounterMetricFamily(
            "gnats_account_bytes",
            "Bytes from and to clients and other servers",
            labels=["account", "direction"],
        )
        over_links = CounterMetricFamily(
            "gnats_account_link_messages",
            "The part of gnats_account_messages that went over routes, gateways and leaf nodes",
            labels=["account", "kind", "direction"],
        )
        link_sizes = CounterMetricFamily(
            "gnats_account_link_bytes",
            "The part of gnats_account_bytes that went over routes, gateways and leaf nodes",
            labels=["account", "kind", "direction"],
        )
        slow = CounterMetricFamily(
            "gnats_account_slow_consumers",
            _SLOW,
            labels=["account"],
        )
        for name, account in self._server.accounts.items():
            count = account.traffic()
            connections.add_metric([name], len(account.clients))
            subs.add_metric([name], account.sublist.count())
            slow.add_metric([name], account.slow_consumers)
            for direction in _DIRECTIONS:
                messages.add_metric([name, direction], count[f"{direction}_msgs"])
                sizes.add_metric([name, direction], count[f"{direction}_bytes"])
            links = account.link_traffic()
            if not any(any(part.values()) for part in links.values()):
                continue  # most servers have no links, and some have very many accounts
            for kind, part in links.items():
                for direction in _DIRECTIONS:
                    labels = [name, _KINDS[kind], direction]
                    over_links.add_metric(labels, part[f"{direction}_msgs"])
                    link_sizes.add_metric(labels, part[f"{direction}_bytes"])
        yield from (connections, subs, messages, sizes, over_links, link_sizes, slow)

    def _jetstream_metrics(self) -> Iterator[Metric]:
        js = self._server.jetstream
        if js is None:
            return
        yield _gauge("gnats_jetstream_ha_assets", "Raft groups of this server", len(js.shared.groups))
        meta = js.cluster
        if meta is None or meta.group is None:
            return
        from gnats.jetstream.cluster.cluster_info import standings

        state = meta.group_state()
        for name, what, value in (
            ("leader", "1 while this server leads the meta group", int(meta.leads)),
            ("has_leader", "1 while this server knows a leader of the meta group", int(meta.leader != "")),
            ("current", "1 while this server leads, or is up to date with the leader", int(meta.is_current)),
            ("quorum_lost", "1 when there was no leader for long", int(meta.is_leaderless)),
            (
                "failed",
                "1 when the group has stopped at this server, which needs a restart",
                int(meta.failure != ""),
            ),
            ("term", "Term of the meta group", state["term"]),
            ("last_index", "The last record that this server has", state["pindex"]),
            ("committed_index", "The last record that is committed, as this server knows", state["commit"]),
            ("applied_index", "The last record that this server has applied", state["applied"]),
            ("snapshot_index", "The last record that this server's snapshot includes", state["snapshot"]),
            ("cluster_size", "Members of the meta group", state["size"]),
        ):
            yield _gauge(f"gnats_jetstream_meta_{name}", what, value)
        lag = GaugeMetricFamily(
            "gnats_jetstream_meta_peer_lag",
            "Committed records that a member lacks, at the leader",
            labels=["peer"],
        )
        if meta.leads:
            for each in standings(state, meta.peer):
                lag.add_metric([meta.nodes.name_of(each.peer) or each.peer], each.lag)
        yield lag


_LINK = ("kind", "remote")
_KINDS = {"routes": "route", "gateways": "gateway", "leafs": "leafnode"}
"""The label `kind` of what an account's statistics call so."""


def link_metrics(kinds: Iterable[LinkHealth]) -> Iterator[Metric]:
    """Yield the metrics of links: routes, leaf node connections and gateways."""
    gauges = {
        name: GaugeMetricFamily(f"gnats_link_{name}", what, labels=_LINK)
        for name, what in (
            ("up", "1 while there is a connection to the remote server, 0 after the last one"),
            ("connections", "Connections to the remote server"),
            ("pending_bytes", "Bytes queued for the remote server"),
            ("rtt_seconds", "Round trip time, the longest of the connections"),
            ("subscriptions", "Subscriptions of the remote server"),
            ("slow", "1 while the remote server reads too slowly"),
        )
    }
    messages, sizes = (
        CounterMetricFamily(f"gnats_link_{what}", f"{what.title()} of links", labels=(*_LINK, "direction"))
        for what in ("messages", "bytes")
    )
    slow = CounterMetricFamily(
        "gnats_link_times_slow", "Times the remote server began to be slow", labels=_LINK
    )
    stale = CounterMetricFamily("gnats_link_stale", "Connections closed for not answering", labels=_LINK)
    repairs = CounterMetricFamily(
        "gnats_link_interest_repairs",
        "Times interest was not what the remote server had told, and was told again",
        labels=_LINK,
    )
    missing = GaugeMetricFamily(
        "gnats_link_missing",
        "1 while a configured route, remote or gateway is not connected, after two attempts",
        labels=("kind", "address", "account"),
    )
    conflicts = GaugeMetricFamily(
        "gnats_link_conflict",
        "1 while connections are closed because there is one too many: a loop or a duplicate",
        labels=("kind", "problem", "remote", "account"),
    )
    for health in kinds:
        for peer in health.check():
            labels = health.kind, peer.name
            values: dict[str, float] = {
                "up": int(peer.connections > 0),
                "connections": peer.connections,
                "pending_bytes": peer.pending,
                "subscriptions": peer.subscriptions,
                "slow": int(peer.slow),
            }
            if peer.rtt:  # without a PONG there is none
                values["rtt_seconds"] = peer.rtt / SECOND
            for name, value in values.items():
                gauges[name].add_metric(labels, value)
            for direction in _DIRECTIONS:
                messages.add_metric((*labels, direction), peer.traffic[f"{direction}_msgs"])
                sizes.add_metric((*labels, direction), peer.traffic[f"{direction}_bytes"])
            slow.add_metric(labels, peer.times_slow)
            stale.add_metric(labels, peer.stale)
            repairs.add_metric(labels, peer.repairs)
        for link, problem in health.configured().items():
            missing.add_metric((health.kind, *link), int(problem is not None))
        for conflict in health.conflicts.alerts():
            conflicts.add_metric((health.kind, *conflict), 1)
    yield from (*gauges.values(), messages, sizes, slow, stale, repairs, missing, conflicts)


Rows = Iterable[tuple[tuple[str, ...], float]]


def requests_rows(requests: Mapping[str, int]) -> Rows:
    """Return the numbers of requests by path, as rows."""
    return [((path,), count) for path, count in sorted(requests.items())]


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=value)


def _counter(name: str, what: str, labels: tuple[str, ...], rows: Rows) -> Metric:
    metric = CounterMetricFamily(name, what, labels=labels)
    for values, count in rows:
        metric.add_metric(values, count)
    return metric
