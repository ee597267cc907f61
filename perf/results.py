"""Recorded results: the metrics, medians over rounds, the JSON file."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from perf.servers import REFERENCE, Kind

REFERENCE_KEY = f"nats-{REFERENCE}"


@dataclass(frozen=True)
class Metric:
    """The form of a metric: `scale` divides its values; with `higher`, more is better."""

    title: str
    unit: str
    scale: float = 1.0
    digits: int = 0
    higher: bool = False

    def show(self, value: float) -> str:
        """Return a value as text with its unit."""
        return f"{value / self.scale:,.{self.digits}f} {self.unit}"


METRICS: dict[str, Metric] = {
    "cpu_ns": Metric("server CPU per message", "ns"),
    "msgs_per_sec": Metric("messages per second", "M", 1e6, 2, higher=True),
    "p50_us": Metric("p50", "us", digits=1),
    "p99_us": Metric("p99", "us", digits=1),
    "p999_us": Metric("p99.9", "us", digits=1),
    "requests_per_sec": Metric("requests per second", "k", 1e3, 1, higher=True),
    "request_cpu_us": Metric("server CPU per request", "us", digits=2),
    "rss_mib": Metric("resident memory", "MiB", digits=1),
    "connects_per_sec": Metric("connects per second", "k", 1e3, 1, higher=True),
    "connect_cpu_us": Metric("server CPU per connect", "us", digits=1),
    "connection_kib": Metric("resident memory per connection", "KiB", digits=1),
    "creates_per_sec": Metric("made per second", "k", 1e3, 2, higher=True),
    "held_mib": Metric("resident memory for them", "MiB", digits=1),
    "get_cpu_ns": Metric("server CPU per get", "ns"),
    "beside_cpu_ns": Metric("server CPU per message beside them", "ns"),
    "subscribes_per_sec": Metric("subscribes per second", "k", 1e3, higher=True),
    "subscribe_cpu_ns": Metric("server CPU per subscribe", "ns"),
    "subscription_bytes": Metric("resident memory per subscription", "B"),
    "known_ms": Metric("until all are known", "ms", digits=1),
    "known_cpu_ms": Metric("server CPU until all are known", "ms", digits=1),
    "remote_subscription_bytes": Metric("resident memory per remote subscription", "B"),
    "churn_p50_us": Metric("p50 beside churn", "us", digits=1),
    "churn_p99_us": Metric("p99 beside churn", "us", digits=1),
    "churn_times": Metric("p99 beside churn, of idle", "times", digits=2),
    "churn_cpu_us": Metric("server CPU per SUB with its UNSUB", "us", digits=2),
    "publish_cpu_ns": Metric("server CPU per publish", "ns"),
    "matches_per_sec": Metric("publishes matched per second", "k", 1e3, higher=True),
    "match_cpu_ns": Metric("server CPU per publish and its two deliveries", "ns"),
}


@dataclass
class Record:
    """One scenario's measurements: for each kind of server a dict of metrics for every round."""

    group: str
    about: str
    rounds: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def values(self, key: str, metric: str) -> list[float]:
        """Return a server's values, one a round; empty if it was not measured."""
        return [found[metric] for found in self.rounds.get(key, []) if metric in found]

    def median(self, key: str, metric: str) -> float | None:
        """Return the median of a server's values, None if it was not measured."""
        values = self.values(key, metric)
        return median(values) if values else None

    def ratio(self, key: str, metric: str, base: str = REFERENCE_KEY) -> float | None:
        """Return a server's median divided by that of `base`, None where one is missing."""
        mine, theirs = self.median(key, metric), self.median(base, metric)
        return mine / theirs if mine is not None and theirs else None

    def metrics(self) -> list[str]:
        """Return the names of the measured metrics, in display order."""
        return [name for name in METRICS if any(self.values(key, name) for key in self.rounds)]


@dataclass
class Results:
    """One run of the harness."""

    name: str
    date: str
    seconds: float
    machine: dict[str, str | int | float]
    settings: dict[str, float]
    servers: dict[str, dict[str, str]]  # key -> label, version
    scenarios: dict[str, Record] = field(default_factory=dict)
    nats_bench: dict[str, list[str]] = field(default_factory=dict)  # key -> lines that the nats CLI printed

    @classmethod
    def new(
        cls, name: str, date: str, machine: dict[str, Any], settings: Any, kinds: Sequence[Kind]
    ) -> "Results":
        """Make empty results for these servers."""
        servers = {kind.key: {"label": kind.label, "version": kind.version} for kind in kinds}
        return cls(name, date, 0.0, machine, asdict(settings), servers)

    def label(self, key: str) -> str:
        """Return a server's display name."""
        return self.servers[key]["label"]

    def save(self, path: Path) -> None:
        """Write JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Read a file that save() wrote."""
        found = json.loads(path.read_text())
        found["scenarios"] = {name: Record(**record) for name, record in found["scenarios"].items()}
        return cls(**found)
