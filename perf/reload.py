"""Measure reloads of a large configuration, and message latency meanwhile: `python -m perf.reload`.

The configuration has 10,000 users in 100 accounts, with passwords, permissions, exports and imports. Each
reload changes the permissions of a tenth of the users and the passwords of another tenth. Latency is measured
one way, in an account of its own, while nothing else happens, and then while one reload follows another.
"""

import argparse
import json
import statistics
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from gnats.bench.probes import Latency
from gnats.bench.results import LatencyResult
from gnats.bench.target import Target

from . import machine
from .servers import Kind, Server, find

USERS, ACCOUNTS = 10_000, 100
CLIENTS = 50
ALONE = 3
"""Reloads that are timed while nothing else happens."""
INTERVAL = 0.0005
"""Seconds between two messages, on average."""


@dataclass
class Result:
    """The result of one server: medians of the rounds, in seconds and microseconds."""

    server: str
    reload_seconds: float
    reload_cpu_seconds: float
    idle_p50: float
    idle_p99: float
    reloading_p50: float
    reloading_p99: float
    reloads: int

    @property
    def ratio(self) -> float:
        return self.reloading_p99 / self.idle_p99


def configuration(version: int) -> str:
    """Return the configuration's text; versions differ in some users."""
    lines = ["accounts {", '  BENCH { users: [ { user: "bench", password: "bench" } ] }']
    for account in range(ACCOUNTS):
        lines.append(f'  A{account} {{ exports: [ {{ stream: "pub.>" }}, {{ service: "svc.{account}" }} ]')
        if account:
            source = f'{{ account: "A{account - 1}", subject: "pub.>" }}'
            lines.append(f'    imports: [ {{ stream: {source}, prefix: "from" }} ]')
        lines.append("    users: [")
        for user in range(USERS // ACCOUNTS):
            extra = version if user % 10 == 1 else 0
            password = f"secret-{version if user % 10 == 2 else 0}"
            publish = f'publish: [ "a.{user}.>", "svc.>", "x.{extra}" ]'
            subscribe = f'subscribe {{ allow: [ "a.{user}.>", "_INBOX.>" ], deny: "a.{user}.private" }}'
            permissions = f"permissions {{ {publish}, {subscribe} }}"
            lines.append(f'      {{ user: "u{account}-{user}", password: "{password}", {permissions} }}')
        lines.append("    ]\n  }")
    return "\n".join([*lines, "}"]) + "\n"


def measure(kind: Kind, rounds: int, messages: int) -> Result:
    """Measure one server."""
    idle: list[LatencyResult] = []
    reloading: list[LatencyResult] = []
    seconds: list[float] = []
    with Server(kind, text=configuration(0)) as server:
        host, port = server.target.host, server.target.port
        texts = [configuration(version) for version in (1, 2)]
        clients = [
            Latency(Target(host, port, f"u{n}-{n}", "secret-0"), subject=f"a.{n}.x") for n in _steady()
        ]
        probe = Latency(Target(host, port, "bench", "bench"))
        probe.run(messages, interval=INTERVAL)
        cpu = server.cpu_ns()
        alone = [server.reload(texts[number % 2]) for number in range(ALONE)]
        cpu = server.cpu_ns() - cpu
        for _ in range(rounds):
            idle.append(probe.run(messages, interval=INTERVAL))
            reloading.append(_while_reloading(server, probe, texts, messages, seconds))
        for each in (probe, *clients):
            each.close()
    return Result(
        kind.label,
        statistics.median(alone),
        cpu / 1e9 / ALONE,
        _percentile(idle, 50),
        _percentile(idle, 99),
        _percentile(reloading, 50),
        _percentile(reloading, 99),
        len(seconds),
    )


def _steady() -> list[int]:
    """Return the numbers of users that no version changes, each of another account."""
    return [n for n in range(ACCOUNTS) if n % 10 not in (1, 2)][:CLIENTS]


def _while_reloading(
    server: Server, probe: Latency, texts: list[str], messages: int, seconds: list[float]
) -> LatencyResult:
    ended = threading.Event()

    def reload() -> None:
        number = 0
        while not ended.is_set():
            seconds.append(server.reload(texts[number % 2]))
            number += 1

    thread = threading.Thread(target=reload)
    thread.start()
    try:
        return probe.run(messages, interval=INTERVAL)
    finally:
        ended.set()
        thread.join()


def _percentile(results: list[LatencyResult], percent: float) -> float:
    return statistics.median(result.latency.percentile(percent) / 1000 for result in results)


def report(results: list[Result]) -> str:
    """Return the table in Markdown."""
    lines = [
        f"Reload of {USERS} users in {ACCOUNTS} accounts; one-way latency p50 / p99 in microseconds.",
        "",
        "| server | reload, s | of CPU, s | idle | while reloading | p99 ratio | reloads |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r.server} | {r.reload_seconds:.2f} | {r.reload_cpu_seconds:.2f}"
        f" | {r.idle_p50:.0f} / {r.idle_p99:.0f} | {r.reloading_p50:.0f} / {r.reloading_p99:.0f}"
        f" | {r.ratio:.2f} | {r.reloads} |"
        for r in results
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every server that is found; print the table, or write it and the numbers to files."""
    parser = argparse.ArgumentParser(prog="python -m perf.reload", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=10_000, help="messages of a latency measurement")
    parser.add_argument("--only", nargs="*", help="keys of servers, like gnats-1")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md, too")
    args = parser.parse_args()
    kinds = [kind for kind in find() if not args.only or kind.key in args.only]
    conditions = machine.describe()
    results = [measure(kind, args.rounds, args.messages) for kind in kinds]
    page = report(results)
    print(page, end="")
    if args.out:
        numbers = {"machine": conditions, "results": [asdict(result) for result in results]}
        args.out.with_suffix(".json").write_text(json.dumps(numbers, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(page)


if __name__ == "__main__":
    main()
