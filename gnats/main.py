"""The gnats-server command: its actions, the server's run, signals (main.go and signal.go)."""

import os
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from gnats.commands.flags import HELP, CommandLine, configure_options, reload_options
from gnats.errors import OptionError, ServerError
from gnats.version import NATS_VERSION

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from gnats.log.logger import Logger
    from gnats.server.server import Server

PROGRAM = "gnats-server"


def main(args: list[str] | None = None) -> int:
    """Carry out a command line, by default this process's. Return the exit status."""
    try:
        command = configure_options(sys.argv[1:] if args is None else args)
    except OptionError as exc:
        return _fail(str(exc))
    if command.action == "version":
        print(f"nats-server: v{NATS_VERSION}")
        return 0
    if command.action == "help":
        print(HELP, end="")
        return 0
    if command.action == "help_tls":
        from gnats.options.keys.tls import tls_help

        print(tls_help(), end="")
        return 0
    if command.action == "signal":
        return _send_signal(*command.signal)
    if command.action == "check":
        return _checked(command)
    for warning in command.warnings:
        print(warning, file=sys.stderr)
    return run(command)


def _checked(command: CommandLine) -> int:
    """Print that the configuration file is valid; if it has warnings, print those and fail."""
    if command.warnings:
        return _fail("\n".join(command.warnings))
    opts = command.options
    print(
        f"{PROGRAM}: configuration file {opts.config_file} is valid ({opts.config_digest})", file=sys.stderr
    )
    return 0


def _send_signal(command: str, pid_expr: str) -> int:
    from gnats.commands.signals import process_signal

    try:
        process_signal(command, pid_expr)
    except ServerError as exc:
        return _fail(str(exc))
    return 0


def run(command: CommandLine) -> int:
    """Run the server until a signal ends it. Return the exit status."""
    opts = command.options
    if not (opts.http_port or opts.https_port):  # monitoring loads ssl anyway, with aiohttp
        from gnats.commands.footprint import import_loop_without_ssl

        import_loop_without_ssl()
    import asyncio

    import uvloop

    from gnats.server.log import configure_logger

    try:
        log = configure_logger(opts)
    except ServerError as exc:
        return _fail(str(exc))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                runner.run(_serve(command, log))
            finally:
                _ignore_signals(runner.get_loop())
    except ServerError as exc:
        log.fatal(str(exc))
        return 1
    except KeyboardInterrupt:  # SIGINT came before handle_signals()
        return 130
    return 0


async def _serve(command: CommandLine, log: "Logger") -> None:
    import gc

    from gnats.server.log import configure_logger
    from gnats.server.server import Server

    server = Server(command.options, log)
    server.make_log = configure_logger
    server.options_reader = partial(reload_options, command)
    handle_signals(server)
    await server.start()
    if "NOTIFY_SOCKET" in os.environ:
        from gnats.commands.systemd import start_service

        start_service(server)
    gc.collect()
    gc.freeze()  # the objects of the start stay alive: exclude them from later collections
    await server.wait_for_shutdown()


def handle_signals(server: "Server") -> None:
    """Handle the process's signals in the running loop as nats-server does."""
    import asyncio
    from signal import SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, Signals, strsignal

    loop = asyncio.get_running_loop()

    async def reload() -> None:
        with suppress(OptionError, ServerError):  # reload() has logged them
            await server.reload()

    def handle(signal: Signals) -> None:
        server.log.notice(f'Trapped "{(strsignal(signal) or signal.name).lower()}" signal')
        if signal == SIGINT or (signal == SIGTERM and not server.in_lame_duck_mode):
            server.begin_shutdown()
        elif signal == SIGUSR1:
            server.reopen_log()
        elif signal == SIGUSR2:
            server.lame_duck_mode()
        elif signal == SIGHUP:
            server.spawn(reload())

    for signal in (SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP):
        loop.add_signal_handler(signal, handle, signal)


def _ignore_signals(loop: "AbstractEventLoop") -> None:
    """Ignore the signals of handle_signals() from now on: the server has ended, and the process will.

    The end of the loop would bring back their defaults, and with them an end by a late signal.
    """
    import signal

    handled = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP
    signal.pthread_sigmask(signal.SIG_BLOCK, handled)  # the loop sets the default when it removes a handler
    for number in handled:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)


def _fail(reason: str) -> int:
    print(f"{PROGRAM}: {reason}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
