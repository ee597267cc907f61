"""Run the scenarios on every server found, in turn, and record the results.

python perf/run.py [--quick] [--only PATTERN ...] [--servers PATTERN ...] [--rounds N] [--name NAME]
"""

import argparse
import datetime
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path

if not __package__:  # run as a script: the package is the folder that holds it
    sys.path.append(str(Path(__file__).resolve().parent.parent))

from gnats.bench.results import LoadError
from gnats.bench.text import human_bytes
from perf import machine, natscli, report
from perf.clusters import CLUSTER_SCENARIOS
from perf.holdings import HOLDING_SCENARIOS
from perf.interest import INTEREST_SCENARIOS
from perf.mesh import MESH_SCENARIOS
from perf.results import METRICS, Record, Results
from perf.scenarios import SCENARIOS, Scenario, Settings
from perf.servers import Kind, Server, ServerError, find, raise_file_limit
from perf.streams import STREAM_SCENARIOS

BUSY = 0.5  # load average from which on the numbers are unreliable
RESULTS = Path(__file__).resolve().parent / "results"
QUICK = Settings(rounds=3, seconds=0.25, probes=2000)
FULL = Settings(rounds=5, seconds=0.6, probes=5000)
BUDGET = {True: 390.0, False: 2900.0}  # quick or not: seconds after which no further scenario begins


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="perf", description="Measures gnats and nats-server side by side.")
    parser.add_argument(
        "--quick", action="store_true", help="fewer scenarios, shorter: less than seven minutes"
    )
    parser.add_argument("--only", nargs="+", metavar="PATTERN", help="scenarios by name, such as '1:1/*'")
    parser.add_argument("--servers", nargs="+", metavar="PATTERN", help="servers by key, such as 'gnats-*'")
    parser.add_argument("--rounds", type=int, help="measurements of each scenario and server")
    parser.add_argument("--seconds", type=float, help="length of one throughput measurement")
    parser.add_argument("--name", help="name of the results (default: quick, full or partial)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--list", action="store_true", help="list scenarios and servers, and end")
    return parser.parse_args(argv)


def chosen(args: argparse.Namespace) -> list[Scenario]:
    """Return the requested scenarios: by name, or the quick ones, or all."""
    links = (*CLUSTER_SCENARIOS, *INTEREST_SCENARIOS, *MESH_SCENARIOS)
    every = (*SCENARIOS, *STREAM_SCENARIOS, *HOLDING_SCENARIOS, *links)
    if args.only:
        return [s for s in every if any(fnmatchcase(s.name, pattern) for pattern in args.only)]
    return [s for s in every if s.quick or not args.quick]


def line(label: str, scenario: Scenario, metrics: dict[str, float]) -> str:
    """Format one measurement as nats-bench does, with its other metrics."""
    parts = []
    if "msgs_per_sec" in metrics:
        size = human_bytes(metrics["bytes_per_sec"])
        parts.append(f"{metrics['msgs_per_sec']:,.0f} msgs/sec ~ {size}/sec")
    parts += [
        f"{METRICS[name].title} {METRICS[name].show(value)}"
        for name, value in metrics.items()
        if name in METRICS and name != "msgs_per_sec"
    ]
    return f" {label:<18} {scenario.name} stats: {' | '.join(parts)}"


def measure(scenario: Scenario, kinds: Sequence[Kind], settings: Settings) -> Record:
    """Measure all rounds of one scenario. Servers take turns; their order changes from round to round."""
    record = Record(scenario.group, scenario.about)
    with ExitStack() as stack:
        takers = [
            (kind, stack.enter_context(scenario.open(kind, settings)))
            for kind in kinds
            if scenario.runs_on(kind)
        ]
        if scenario.awake:
            stack.enter_context(machine.awake())
        for number in range(min(settings.rounds, scenario.rounds)):
            for kind, take in takers if number % 2 == 0 else reversed(takers):
                metrics = take()
                record.rounds.setdefault(kind.key, []).append(metrics)
                print(line(kind.label, scenario, metrics), flush=True)
    return record


def measure_all(
    results: Results, scenarios: Sequence[Scenario], kinds: Sequence[Kind], settings: Settings, budget: float
) -> list[str]:
    """Fill `results`; return errors, a line each."""
    problems = []
    start = time.monotonic()
    for scenario in scenarios:
        if time.monotonic() - start > budget:
            problems.append(f"{scenario.name}: skipped, {budget:g} seconds are over")
            continue
        print(f"{scenario.name}: {scenario.about}", flush=True)
        try:
            results.scenarios[scenario.name] = measure(scenario, kinds, settings)
        except (LoadError, ServerError) as error:
            problems.append(f"{scenario.name}: {error}")
            print(f" {error}", flush=True)
    results.seconds = round(time.monotonic() - start, 1)
    return problems


def measure_nats_bench(results: Results, kinds: Sequence[Kind]) -> list[str]:
    """Run the nats CLI's benchmark where it is installed; return errors, a line each."""
    program = natscli.find()
    if program is None:
        return []
    problems = []
    for kind in kinds:
        try:
            with Server(kind) as server:
                results.nats_bench[kind.key] = natscli.run(program, server.url)
        except (subprocess.SubprocessError, ServerError) as error:
            problems.append(f"{program.name}, {kind.label}: {error}")
            continue
        print(f"{program.name}, {kind.label}:", *results.nats_bench[kind.key], sep="\n ", flush=True)
    return problems


def main(argv: Sequence[str] | None = None) -> int:
    """Run the harness; return 0 if everything requested was measured."""
    args = arguments(argv)
    settings = QUICK if args.quick else FULL
    settings = Settings(args.rounds or settings.rounds, args.seconds or settings.seconds, settings.probes)
    scenarios = chosen(args)
    try:
        kinds = [k for k in find() if not args.servers or any(fnmatchcase(k.key, p) for p in args.servers)]
    except ServerError as error:
        print(f"perf: {error}", file=sys.stderr)
        return 1
    if args.list or not scenarios or not kinds:
        print(*(f"{scenario.name:<20} {scenario.about}" for scenario in scenarios), sep="\n")
        print(*(f"{kind.key:<20} {kind.label} ({kind.version})" for kind in kinds), sep="\n")
        return 0 if args.list else 1
    raise_file_limit()
    if os.getloadavg()[0] > BUSY:
        print(
            f"perf: the machine is busy (load average {os.getloadavg()[0]:.1f}): expect noise",
            file=sys.stderr,
        )
    name = args.name or ("partial" if args.only or args.servers else "quick" if args.quick else "full")
    date = datetime.date.today().isoformat()
    results = Results.new(name, date, machine.describe(), settings, kinds)
    problems = measure_all(results, scenarios, kinds, settings, BUDGET[args.quick])
    if not args.only:
        problems += measure_nats_bench(results, kinds)
    results.save(args.out / f"{name}.json")
    page = report.markdown(results)
    (args.out / f"{name}.md").write_text(page)
    try:
        from perf import plots
    except ImportError:
        problems.append("no plots: pip install matplotlib")
    else:
        plots.draw(results, args.out)
    print(page)
    print(*(f"perf: {problem}" for problem in problems), sep="\n", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
