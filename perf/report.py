"""Write results as a Markdown page: the targets first, then everything by group."""

from collections.abc import Iterable, Iterator, Sequence

from perf.results import METRICS, REFERENCE_KEY, Record, Results
from perf.targets import target_for

GROUPS = {
    "throughput": "Throughput",
    "pollers": "Two pollers",
    "subjects": "Subjects",
    "latency": "Latency",
    "requests": "Request and reply",
    "memory": "Memory",
    "connections": "Connections",
    "subscriptions": "Subscriptions",
    "routes": "Routes",
    "leaf nodes": "Leaf nodes",
    "gateways": "Gateways",
    "mesh": "Many routes",
    "jetstream": "JetStream",
    "js/stored": "JetStream: messages in a stream",
    "js/keys": "JetStream: keys in a bucket",
    "js/consumers": "JetStream: consumers of a stream",
    "js/streams": "JetStream: streams",
}
Rows = Iterator[list[str]]
GENERATOR_BOUND = 0.85  # share of its core from which on the load generator may limit the rate


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table, with numbers aligned right."""
    rule = ["---"] * 2 + ["---:"] * (len(header) - 2)
    return ["| " + " | ".join(row) + " |" for row in (header, rule, *rows)]


def _cell(record: Record, key: str, metric: str) -> str:
    value = record.median(key, metric)
    if value is None:
        return ""
    busy = record.median(key, "generator_busy") if metric == "msgs_per_sec" else None
    return METRICS[metric].show(value) + (" *" if busy and busy > GENERATOR_BOUND else "")


def _rows(results: Results, names: Sequence[str], keys: Sequence[str], base: str, only_targets: bool) -> Rows:
    for name in names:
        record = results.scenarios[name]
        for metric in record.metrics():
            target = target_for(name, metric, base)
            if only_targets and target is None:
                continue
            ratios = [record.ratio(key, metric, base) for key in _compared(keys, base)]
            met = target.met(record) if target else None
            yield [
                name,
                METRICS[metric].title,
                *(_cell(record, key, metric) for key in keys),
                *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
                str(target) if target else "",
                "" if met is None else "yes" if met else "**no**",
            ]


def _compared(keys: Sequence[str], base: str) -> list[str]:
    """Return the keys of the servers to show a ratio of."""
    return [key for key in keys if key.startswith("gnats") and key != base]


def _section(
    results: Results,
    names: Sequence[str],
    keys: Sequence[str] = (),
    base: str = REFERENCE_KEY,
    only_targets: bool = False,
) -> list[str]:
    """Return a table of these scenarios for these servers (default: all measured ones); may be empty."""
    measured = {key for name in names for key in results.scenarios[name].rounds}
    keys = [key for key in keys or results.servers if key in measured]
    ratios = [f"ratio {results.label(key).removeprefix('gnats, ')}" for key in _compared(keys, base)]
    rows = list(_rows(results, names, keys, base, only_targets))
    header = ["scenario", "measure", *(results.label(key) for key in keys), *ratios, "target", "met"]
    if not any(row[-2] for row in rows):
        header, rows = header[:-2], [row[:-2] for row in rows]
    return table(header, rows) if rows and base in measured else []


def _targets(results: Results) -> list[str]:
    """Return tables of everything with a target, against the reference and against one thread."""
    names = list(results.scenarios)
    lines = []
    for base, ours in ((REFERENCE_KEY, ("gnats-0", "gnats-1")), ("gnats-1", ("gnats-2",))):
        if any(key in results.servers for key in ours):
            found = _section(results, names, (base, *ours), base, only_targets=True)
            lines += [*found, ""] if found else []
    return lines


def markdown(results: Results) -> str:
    """Return the whole page."""
    settings, machine = results.settings, results.machine
    gnats_version = next((s["version"] for key, s in results.servers.items() if key.startswith("gnats")), "-")
    lines = [
        f"# {results.name}",
        "",
        f"{results.date}, {results.seconds / 60:.1f} minutes, "
        f"medians of up to {settings['rounds']:.0f} rounds. "
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['kernel']}, "
        f"Python {machine['python']}, TCP {machine['tcp_congestion_control']}, "
        f"load average before {machine['load_before']}.",
        "",
        f"gnats {gnats_version}. "
        f"Ratios are to nats-server {REFERENCE_KEY.removeprefix('nats-')} in the same run, "
        "for two threads among the targets to one thread. "
        "An asterisk marks a rate that the load generator may have limited. "
        "What it all means: perf/README.md.",
        "",
    ]
    targets = _targets(results)
    if targets:
        lines += ["## Targets", "", *targets]
    for group, title in GROUPS.items():
        names = [name for name, record in results.scenarios.items() if record.group == group]
        if names:
            lines += [f"## {title}", "", *_section(results, names), ""]
            lines += [*(f"- `{name}`: {results.scenarios[name].about}" for name in names), ""]
    if results.nats_bench:
        lines += ["## The nats CLI's own benchmark", ""]
        for key, printed in results.nats_bench.items():
            lines += [f"{results.label(key)}:", "", "```", *printed, "```", ""]
    return "\n".join(lines)
