"""Draw results: CPU by scenario, latency percentiles, costs that grow with what a server holds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from perf.results import METRICS, Results
from perf.scenarios import PATTERNS, SIZES, human_size

INK, FAINT = "#24292f", "#d8dee4"
OTHER_REFERENCE = "#bcc4cd"
COLOURS = {"nats-2.15.1": "#7d8894", "gnats-0": "#0b6e99", "gnats-1": "#45b0d6", "gnats-2": "#0b3a53"}
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "ytick.major.size": 0,
    "xtick.major.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


def compare(
    axes: Axes,
    results: Results,
    groups: Sequence[tuple[str, str, str]],
    keys: Sequence[str],
    dots: bool = False,
) -> None:
    """Draw medians side by side, as bars or dots, with a line from the least to the most of the rounds.

    A group is (tick, scenario, metric); one without measurements leaves a gap.
    """
    width = 0.8 / len(keys)
    for place, key in enumerate(keys):
        for x, (_, name, metric) in enumerate(groups):
            record = results.scenarios.get(name)
            middle = record.median(key, metric) if record else None
            if record is None or middle is None:
                continue
            values = record.values(key, metric)
            at = x + (place - (len(keys) - 1) / 2) * width
            colour = COLOURS.get(key, OTHER_REFERENCE)
            if dots:
                axes.plot(at, middle, "o", markersize=7, color=colour, label=results.label(key))
            else:
                axes.bar(at, middle, width * 0.92, color=colour, label=results.label(key))
            axes.plot([at, at], [min(values), max(values)], color=INK, linewidth=0.7)
            shown = f"{middle:,.0f}" if middle >= 10 else f"{middle:.1f}"
            axes.annotate(
                shown,
                (at, max(values)),
                (0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=6,
            )
    axes.set_xticks(range(len(groups)), [tick for tick, _, _ in groups])
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.margins(y=0.12)


def legend(figure: Figure) -> None:
    """Draw one legend at the bottom, with each server once."""
    found: dict[str, Artist] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=len(found))


def save(figure: Figure, path: Path) -> None:
    """Write a PNG and close the figure."""
    legend(figure)
    figure.savefig(path, dpi=160)
    pyplot.close(figure)


def cpu(results: Results, keys: Sequence[str], path: Path) -> None:
    """Draw CPU per message, a panel for each payload size."""
    panels = []
    for size in SIZES:
        names = [(pattern, f"{pattern}/{human_size(size)}", "cpu_ns") for pattern in PATTERNS]
        if any(name in results.scenarios for _, name, _ in names):
            panels.append((size, names))
    if not panels:
        return
    figure, grid = pyplot.subplots(len(panels), 1, figsize=(9, 1.2 + 1.9 * len(panels)), squeeze=False)
    figure.suptitle(
        "Server CPU per message, published plus delivered (ns, lower is better)", x=0.01, ha="left"
    )
    for axes, (size, names) in zip(grid[:, 0], panels, strict=True):
        compare(axes, results, names, keys)
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_title(human_size(size))
    save(figure, path)


def latencies(results: Results, keys: Sequence[str], path: Path) -> None:
    """Draw p50, p99 and p99.9 of each scenario that has them, on a logarithmic axis."""
    names = [name for name, record in results.scenarios.items() if "p50_us" in record.metrics()]
    if not names:
        return
    rows = -(-len(names) // 3)
    figure, grid = pyplot.subplots(rows, 3, figsize=(12, 0.8 + 2.6 * rows), sharey=True, squeeze=False)
    figure.suptitle("Latency (us, lower is better)", x=0.01, ha="left")
    for axes in grid.flat[len(names) :]:
        axes.set_axis_off()
    for axes, name in zip(grid.flat, names, strict=False):
        groups = [(METRICS[metric].title, name, metric) for metric in ("p50_us", "p99_us", "p999_us")]
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        compare(axes, results, groups, keys, dots=True)
        axes.set_title(name)
    save(figure, path)


GROWTH = (
    ("connections", "connects_per_sec"),
    ("connections", "connection_kib"),
    ("connections", "beside_cpu_ns"),
    ("spread", "cpu_ns"),
    ("subscriptions", "subscribes_per_sec"),
    ("subscriptions", "subscription_bytes"),
    ("subscriptions", "match_cpu_ns"),
    ("subjects", "cpu_ns"),
    ("js/stored", "beside_cpu_ns"),
    ("js/stored", "get_cpu_ns"),
    ("js/keys", "beside_cpu_ns"),
    ("js/keys", "get_cpu_ns"),
    ("js/keys", "rss_mib"),
    ("js/consumers", "beside_cpu_ns"),
    ("js/consumers", "creates_per_sec"),
    ("js/consumers", "rss_mib"),
    ("js/streams", "creates_per_sec"),
    ("js/streams", "rss_mib"),
)
STEPS = {"1": 1, "100": 100, "1k": 1000, "10k": 10_000, "100k": 100_000, "1M": 1_000_000}
COUNTED = {
    "spread": "connections",
    "js/stored": "messages in the stream",
    "js/keys": "keys in the bucket",
    "js/consumers": "consumers of the stream",
    "js/streams": "streams",
}
TITLES = {
    "spread": "server CPU per message, to connections in turn",
    "subjects": "server CPU per message, to subjects in turn",
}


def growth(results: Results, keys: Sequence[str], path: Path) -> None:
    """Draw each cost as a curve for each server, over the number of connections, subscriptions, subjects."""
    panels = []
    for group, metric in GROWTH:
        steps = [
            (STEPS[name.rpartition("/")[2]], name)
            for name, record in results.scenarios.items()
            if name.startswith(f"{group}/") and metric in record.metrics()
        ]
        if len(steps) > 1:
            panels.append((group, metric, steps))
    if not panels:
        return
    rows = -(-len(panels) // 2)
    figure, grid = pyplot.subplots(rows, 2, figsize=(9, 0.8 + 2.3 * rows), squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, (group, metric, steps) in zip(grid.flat, panels, strict=False):
        shown = METRICS[metric]
        for key in keys:
            medians = [(x, results.scenarios[name].median(key, metric)) for x, name in steps]
            points = [(x, y / shown.scale) for x, y in medians if y is not None]
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=COLOURS.get(key, OTHER_REFERENCE),
                marker="o",
                markersize=3.5,
                linewidth=1.6,
                label=results.label(key),
            )
        axes.set_xscale("log")
        axes.set_xticks([x for x, _ in steps], [name.rpartition("/")[2] for _, name in steps])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(f"number of {COUNTED.get(group, group)}")
        axes.set_ylabel(shown.unit)
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.set_ylim(bottom=0)
        axes.set_title(TITLES.get(group, shown.title))
    save(figure, path)


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw `<name>-cpu.png`, `-latency.png` and `-growth.png` where there are results; return their paths."""
    keys = [key for key in results.servers if key != "gnats-2"]
    paths = []
    with pyplot.rc_context(STYLE):
        for name, plot in (("cpu", cpu), ("latency", latencies), ("growth", growth)):
            path = folder / f"{results.name}-{name}.png"
            plot(results, keys, path)
            if path.exists():
                paths.append(path)
    return paths
