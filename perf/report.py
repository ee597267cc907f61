"""Results as a Markdown page: the targets first, then everything by group."""

from collections.abc import Iterable, Sequence

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
}
GENERATOR_BOUND = 0.85  # share of its core from which on the generator may be what limits the rate


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table, numbers to the right."""
    rule = ["---"] * 2 + ["---:"] * (len(header) - 2)
    return ["| " + " | ".join(row) + " |" for row in (header, rule, *rows)]


def _cell(record: Record, key: str, metric: str) -> str:
    value = record.median(key, metric)
    if value is None:
        return ""
    busy = record.median(key, "generator_busy") if metric == "msgs_per_sec" else None
    return METRICS[metric].show(value) + (" *" if busy and busy > GENERATOR_BOUND else "")


def _ratio(record: Record, key: str, metric: str, base: str) -> str:
    ratio = record.ratio(key, metric, base)
    return "" if ratio is None else f"{ratio:.2f}"


def _rows(results: Results, names: Sequence[str], keys: Sequence[str], only_targets: bool) -> list[list[str]]:
    ours = [key for key in keys if key.startswith("gnats")]
    rows = []
    for name in names:
        record = results.scenarios[name]
        for metric in record.metrics():
            target = target_for(name, metric)
            if only_targets and target is None:
                continue
            base = target.base if target else REFERENCE_KEY
            met = target.met(record) if target else None
            rows.append(
                [
                    name,
                    METRICS[metric].title,
                    *(_cell(record, key, metric) for key in keys),
                    *("" if key == base else _ratio(record, key, metric, base) for key in ours),
                    str(target) if target else "",
                    "" if met is None else "yes" if met else "**no**",
                ]
            )
    return rows


def _section(results: Results, names: Sequence[str], only_targets: bool = False) -> list[str]:
    measured = {key for name in names for key in results.scenarios[name].rounds}
    keys = [key for key in results.servers if key in measured]
    ours = [f"ratio {results.label(key).removeprefix('gnats, ')}" for key in keys if key.startswith("gnats")]
    header = ["scenario", "measure", *(results.label(key) for key in keys), *ours, "target", "met"]
    rows = _rows(results, names, keys, only_targets)
    return table(header, rows) if rows else []


def markdown(results: Results) -> str:
    """The whole page."""
    settings, machine = results.settings, results.machine
    lines = [
        f"# {results.name}",
        "",
        f"{results.date}, {results.seconds / 60:.1f} minutes, "
        f"medians of up to {settings['rounds']:.0f} rounds. "
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['kernel']}, "
        f"Python {machine['python']}, TCP {machine['tcp_congestion_control']}, "
        f"load average before {machine['load_before']}.",
        "",
        "Servers: " + ", ".join(f"{s['label']} ({s['version']})" for s in results.servers.values()) + ".",
        f"Ratios are to nats-server {REFERENCE_KEY.removeprefix('nats-')} in the same run, "
        "and for two pollers to one. An asterisk marks a rate that the load generator may have limited. "
        "What it all means: perf/README.md.",
        "",
    ]
    targets = _section(results, list(results.scenarios), only_targets=True)
    if targets and any(key.startswith("gnats") for key in results.servers):
        lines += ["## Targets", "", *targets, ""]
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
