"""`gnats cluster up`: the command line."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import uvloop

from gnats.commands.cluster.output import Output
from gnats.commands.cluster.plan import NAME, PORT, Member, Plan, configuration, plan_members
from gnats.commands.cluster.running import Running
from gnats.errors import OptionError, ServerError
from gnats.go.text import os_error
from gnats.system.ports import port_of, reserve_port

_ABOUT = """\
Starts a cluster of gnats servers on 127.0.0.1, to try and to test: each in a process of its own, and
connected to all others; with --gateways, several clusters that gateways join; with --leaf, servers that are
leaf nodes, too. Prints their URLs, then follows their logs. Ctrl-C stops all; so does the end of one.
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; {self.prog} -h tells more\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of `gnats cluster`'s command line."""
    root = _Parser(prog="gnats cluster", description="Runs clusters of gnats servers on this machine.")
    actions = root.add_subparsers(dest="action", required=True, metavar="up", parser_class=_Parser)
    up = actions.add_parser("up", help="start a cluster, and stop it at Ctrl-C", description=_ABOUT)
    up.add_argument("size", metavar="N", type=int, help="number of servers (of each cluster)")
    up.add_argument("--name", default=NAME, help="name of the cluster (default: %(default)s)")
    up.add_argument(
        "--port",
        type=int,
        default=PORT,
        metavar="PORT",
        help="client port of the first server; the next ones are the others', then leaf nodes'; -1: free ones"
        " (%(default)s)",
    )
    up.add_argument("--threads", type=int, metavar="N", help="I/O threads of each server (default: auto)")
    up.add_argument(
        "--js",
        action="store_true",
        help="with JetStream, for streams with one replica",
    )
    up.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help="folder for configuration files and streams, which stays (default: a temporary one)",
    )
    up.add_argument(
        "--gateways",
        type=int,
        default=1,
        metavar="C",
        help="number of clusters, joined by gateways; they are called NAME-1, NAME-2 ... (default: 1)",
    )
    up.add_argument("--leaf", type=int, default=0, metavar="K", help="number of leaf nodes (default: 0)")
    return root


def cluster_main(argv: Sequence[str] | None = None) -> int:
    """Run `gnats cluster` with `argv`; return 0 after Ctrl-C, or 1 after an error line on stderr.

    Raises BrokenPipeError when the reader of its output has gone.
    """
    args = parser().parse_args(argv)
    try:
        plan = Plan(args.size, args.name, args.port, args.threads, args.js, args.leaf, args.gateways)
        plan.validate()
        _up(plan, args.store)
    except (OptionError, ServerError) as exc:
        print(f"gnats cluster: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before signals are handled
        return 130
    return 0


def _up(plan: Plan, store: Path | None) -> None:
    """Run a cluster. Raises ServerError, BrokenPipeError."""
    with ExitStack() as stack:
        try:
            temporary = Path(stack.enter_context(TemporaryDirectory(prefix="gnats-cluster-")))
            members = plan_members(plan, lambda: port_of(stack.enter_context(reserve_port())))
            configs = _write_configs(plan, members, store.absolute() if store else temporary)
        except OSError as exc:
            raise ServerError(f"{exc.filename or 'no port is free'}: {os_error(exc)}") from None
        output = Output([member.name for member in members])
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Running(plan.names, members, configs, temporary, output).run())
    if isinstance(output.error, BrokenPipeError):
        raise output.error
    if output.error:
        raise ServerError(f"cannot print: {os_error(output.error)}")


def _write_configs(plan: Plan, members: list[Member], folder: Path) -> list[Path]:
    """Write a configuration file for each member; return their paths. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for member in members:
        paths.append(folder / f"{member.name}.conf")
        paths[-1].write_text(configuration(plan, member, members, folder))
    return paths
