"""The gnats command: the server and the tools around it."""

import os
import select
import signal
import sys

from gnats.version import NATS_VERSION, __version__

HELP = """\
Usage: gnats <command> [options]

    server     run the server, as gnats-server does
    bench      measure a server
    cluster    start a cluster on this machine, to try and to test
    archive    JetStream streams to Parquet files, and back
    version    print the versions
    help       print this text

gnats <command> -h tells more about a command.
"""


def main(args: list[str] | None = None) -> int:
    """Run a command, by default this process's. Return the exit status.

    When the reader of its output closes the pipe (`| head`), a command ends silently, as if by SIGPIPE.
    """
    try:
        status = run(sys.argv[1:] if args is None else args)
        sys.stdout.flush()
    except BrokenPipeError:
        if not output_is_closed():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's own flush at the end
        return 128 + signal.SIGPIPE
    return status


def output_is_closed() -> bool:
    """Whether standard output is a pipe whose reading end is closed."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def run(args: list[str]) -> int:
    """Run the command that `args` begin with. Return the exit status."""
    command, rest = (args[0], args[1:]) if args else ("", [])
    if command == "server":
        from gnats.main import main as server_main

        return server_main(rest)
    if command == "bench":
        from gnats.bench.cli import bench_main

        return bench_main(rest)
    if command == "cluster":
        from gnats.commands.cluster.cli import cluster_main

        return cluster_main(rest)
    if command == "archive":
        return archive(rest)
    if command in ("version", "-v", "--version"):
        print(f"gnats: v{__version__} (as nats-server v{NATS_VERSION})")
        return 0
    if command in ("help", "-h", "--help"):
        print(HELP, end="")
        return 0
    problem = f"gnats: unknown command {command!r}; gnats help lists the commands" if command else HELP
    print(problem, file=sys.stderr)
    return 1


def archive(args: list[str]) -> int:
    """Run `gnats archive`; fail when pyarrow is not installed. Return the exit status."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        print("gnats archive: pyarrow is needed: pip install gnats[archive]", file=sys.stderr)
        return 1
    from gnats.archive.cli import archive_main

    return archive_main(args)


if __name__ == "__main__":
    sys.exit(main())
