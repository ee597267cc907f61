"""`gnats bench`: load a server, and print its throughput and latency in the format of nats-bench."""

import argparse
import sys
from collections.abc import Callable, Sequence

from gnats.bench import text
from gnats.bench.loadgen import PubSub
from gnats.bench.probes import Requests
from gnats.bench.results import LoadError
from gnats.bench.target import Target

DEFAULT_SERVER = "nats://127.0.0.1:4222"


def positive(value: str) -> int:
    """Parse a whole number of at least 1; accepts 1k and 1m."""
    factor = {"k": 1_000, "m": 1_000_000}.get(value[-1:].lower(), 1)
    number = int(value[:-1] if factor > 1 else value) * factor
    if number < 1:
        raise ValueError(value)
    return number


positive.__name__ = "positive number"  # argparse shows the type's name in errors


def parser() -> argparse.ArgumentParser:
    """Return the parser of `gnats bench`'s command line."""
    root = argparse.ArgumentParser(prog="gnats bench", description="Measures what a NATS server moves.")
    modes = root.add_subparsers(dest="mode", required=True, metavar="pub|sub|pubsub|request")
    for mode, about in (
        ("pub", "publish only"),
        ("sub", "receive what others publish"),
        ("pubsub", "publish and receive"),
        ("request", "requests and replies"),
    ):
        command = modes.add_parser(mode, help=about, description=about.capitalize() + ".")
        command.add_argument("subject", metavar="SUBJECT")
        command.add_argument(
            "--server", "-s", default=DEFAULT_SERVER, help="server URL (default: %(default)s)"
        )
        command.add_argument(
            "--msgs", type=positive, default=100_000, help="messages in all (default: %(default)s)"
        )
        command.add_argument(
            "--timeout", type=float, default=300.0, help="seconds to give up after (%(default)g)"
        )
        command.add_argument("--no-progress", action="store_true", help="print only the result")
        if mode != "sub":
            command.add_argument(
                "--size", type=positive, default=128, help="bytes of payload (default: %(default)s)"
            )
            command.add_argument("--pub", type=positive, default=1, help="publishers (default: %(default)s)")
        if mode in ("sub", "pubsub"):
            command.add_argument("--sub", type=positive, default=1, help="subscribers (default: %(default)s)")
            command.add_argument("--queue", default="", help="queue group of the subscribers")
        if mode in ("pub", "pubsub"):
            command.add_argument(
                "--rate", type=float, default=0.0, help="messages a second, 0 for all it takes"
            )
        if mode == "request":
            command.add_argument(
                "--sub", type=int, default=1, help="responders, 0 when others answer (%(default)s)"
            )
            command.add_argument(
                "--window", type=positive, default=1, help="requests in flight for each publisher"
            )
    return root


class Progress:
    """A progress line that is rewritten on a terminal; nothing elsewhere."""

    def __init__(self, total: int, shown: bool) -> None:
        self.total = total
        self.shown = shown and sys.stderr.isatty()

    def __call__(self, *counts: int) -> None:
        if self.shown:
            done = max(counts)
            share = min(1.0, done / self.total)
            print(
                f"\r[{'=' * int(share * 40):40}] {share:4.0%} {done:,} msgs",
                end="",
                file=sys.stderr,
                flush=True,
            )

    def close(self) -> None:
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def run_pubsub(args: argparse.Namespace, target: Target, progress: Progress) -> str:
    """Run mode pub, sub or pubsub; return the text of the results."""
    publishers = 0 if args.mode == "sub" else args.pub
    subscribers = 0 if args.mode == "pub" else args.sub
    queue = "" if args.mode == "pub" else args.queue
    with PubSub(
        target,
        publishers=publishers,
        subjects=[args.subject],
        subscriptions=[[args.subject]] * subscribers,
        queue=queue,
        size=0 if args.mode == "sub" else args.size,
        timeout=args.timeout,
    ) as load:
        rate = 0.0 if args.mode == "sub" else args.rate
        return text.pubsub(load.run(args.msgs, timeout=args.timeout, rate=rate, progress=progress))


def run_requests(args: argparse.Namespace, target: Target, progress: Progress) -> str:
    """Run mode request; return the text of the results."""
    with Requests(
        target,
        requesters=args.pub,
        responders=args.sub,
        window=args.window,
        size=args.size,
        subject=args.subject,
        timeout=args.timeout,
    ) as load:
        return text.requests(load.run(args.msgs, timeout=args.timeout, progress=progress))


def bench_main(argv: Sequence[str] | None = None) -> int:
    """Run `gnats bench` with `argv`; return 0, or 1 after an error line on stderr."""
    args = parser().parse_args(argv)
    run: Callable[[argparse.Namespace, Target, Progress], str]
    run = run_requests if args.mode == "request" else run_pubsub
    fanout = 1 if args.mode in ("pub", "request") or args.queue else args.sub
    progress = Progress(args.msgs * fanout, not args.no_progress)
    try:
        report = run(args, Target.parse(args.server), progress)
    except (LoadError, ValueError) as error:
        progress.close()
        print(f"gnats bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        progress.close()
        return 130
    progress.close()
    print(report)
    return 0
