"""Targets for gnats, as ratios to the reference server in the same run."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from perf.results import REFERENCE_KEY, Record


@dataclass(frozen=True)
class Target:
    """A bound on the ratio of a metric in the scenarios whose name matches, for all servers in `keys`."""

    scenario: str  # fnmatch pattern
    metric: str
    bound: float
    at_least: bool = False
    keys: tuple[str, ...] = ("gnats-0", "gnats-1")
    base: str = REFERENCE_KEY

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"

    def met(self, record: Record) -> bool | None:
        """Return True if all servers in `keys` keep it, None when one of the servers was not measured."""
        ratios = [record.ratio(key, self.metric, self.base) for key in self.keys]
        if any(ratio is None for ratio in ratios):
            return None
        return all(ratio >= self.bound if self.at_least else ratio <= self.bound for ratio in ratios if ratio)


TARGETS: tuple[Target, ...] = (
    *(
        Target(f"{pattern}/{size}", "cpu_ns", 0.33)
        for pattern in ("pub", "1:1", "1:5", "4:4")
        for size in ("16B", "128B")
    ),
    *(
        Target(f"{pattern}/{size}", "cpu_ns", 0.9)
        for pattern in ("pub", "1:1", "1:5", "4:4")
        for size in ("8KiB", "64KiB")
    ),
    Target("tls/1:1/128B", "cpu_ns", 0.7),
    Target("1:1/16B", "msgs_per_sec", 2.5, at_least=True),
    *(
        Target(f"{link}/{size}", metric, bound, at_least=metric == "msgs_per_sec")
        for link in ("route", "leaf", "gateway")
        for size in ("16B", "128B", "8KiB")
        for metric, bound in (("cpu_ns", 0.25), ("msgs_per_sec", 3.0))
    ),
    *(Target(f"{link}/latency", "p50_us", 0.7) for link in ("route", "leaf", "gateway")),
    *(
        Target(f"{link}/interest", metric, 0.4)
        for link in ("route", "leaf", "gateway")
        for metric in ("known_ms", "remote_subscription_bytes")
    ),
    Target("route/s2_fast/*", "cpu_ns", 0.6),
    *(
        Target(f"latency/{name}*", metric, 0.8)
        for name in ("idle", "turns")
        for metric in ("p50_us", "p99_us")
    ),
    Target("memory/idle", "rss_mib", 1.0),
    Target("connections/1*k", "connection_kib", 0.5),
    Target("subscriptions/1M", "subscription_bytes", 0.7),
    Target("subscriptions/*", "subscribes_per_sec", 1.0, at_least=True),
    Target("subscriptions/1M", "matches_per_sec", 1.5, at_least=True),
    *(
        Target(f"js/pub/{storage}/{size}", metric, bound, at_least=metric == "msgs_per_sec")
        for storage in ("file", "memory")
        for size in ("128B", "1KiB")
        for metric, bound in (("msgs_per_sec", 3.0), ("cpu_ns", 0.33))
    ),
    *(
        Target(f"js/sync/{storage}*", metric, 0.7)
        for storage in ("file", "memory")
        for metric in ("p50_us", "p99_us")
    ),
    Target("js/pub/always", "msgs_per_sec", 10.0, at_least=True),
    *(
        Target(f"js/{name}/{size}", metric, bound, at_least=metric == "msgs_per_sec")
        for name in ("push", "ordered", "pull")
        for size in ("128B", "1KiB")
        for metric, bound in (("msgs_per_sec", 2.5), ("cpu_ns", 0.4))
    ),
    *(Target(f"js/kv/{name}*", metric, 0.7) for name in ("put", "get") for metric in ("p50_us", "p99_us")),
    *(Target(f"js/{name}", "rss_mib", 0.7) for name in ("consumers/10k", "keys/100k", "streams/1k")),
    Target("pollers/*", "msgs_per_sec", 1.0, at_least=True, keys=("gnats-2",), base="gnats-1"),
)


def target_for(scenario: str, metric: str, base: str) -> Target | None:
    """Return the target of a metric's ratio to `base`, if any."""
    for target in TARGETS:
        if (target.metric, target.base) == (metric, base) and fnmatchcase(scenario, target.scenario):
            return target
    return None
