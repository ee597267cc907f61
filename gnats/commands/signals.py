"""Send signals to other servers on this machine: `gnats-server --signal command[=pid]` (signal.go)."""

import os
import re
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1, SIGUSR2

from gnats.errors import ServerError
from gnats.go.text import os_error, quote

PROCESS_NAME = "gnats-server"
MODULE = "gnats.main"

COMMANDS = {
    "stop": SIGKILL,
    "quit": SIGINT,
    "term": SIGTERM,
    "reopen": SIGUSR1,
    "reload": SIGHUP,
    "ldm": SIGUSR2,
}

_PID = re.compile(r"[1-9]\d*")


def process_signal(command: str, pid_expr: str) -> None:
    """Send a command's signal to one or more servers.

    `pid_expr` is a pid, the path of a file with one, the beginning of pids followed by * (* alone: every
    server), or empty for the only running server. Raises ServerError.
    """
    given = _maybe_read_pid_file(pid_expr)
    is_glob = given.endswith("*")
    prefix = given.removesuffix("*")
    if prefix and not _PID.fullmatch(prefix):
        raise ServerError(f"invalid pid: {prefix}")
    pids = resolve_pids() if is_glob or not prefix else [int(prefix)]
    if len(pids) > 1 and not is_glob:
        raise ServerError("\n".join([f"multiple {PROCESS_NAME} processes running:", *map(str, pids)]))
    if not pids:
        raise ServerError(f"no {PROCESS_NAME} processes running")
    if command not in COMMANDS:
        raise ServerError(f"unknown signal {quote(command)}")
    failures = []
    for pid in pids:
        if is_glob and not str(pid).startswith(prefix):
            continue
        try:
            os.kill(pid, COMMANDS[command])
        except (OSError, OverflowError) as exc:
            reason = os_error(exc) if isinstance(exc, OSError) else "no such process"
            failures.append(f"signal {quote(command)} {pid}: {reason}")
    if failures:
        raise ServerError("\n".join(failures))


def resolve_pids() -> list[int]:
    """Return the sorted pids of all servers on this machine, except this process."""
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # the process has ended, or is not readable
            continue
        if is_server([os.fsdecode(word) for word in words]):
            pids.append(int(entry.name))
    return sorted(pids)


def is_server(words: list[str]) -> bool:
    """Whether a command line is a server's: the script, alone or after Python, or `python -m` the module."""
    names = [word.rpartition("/")[2] for word in words]
    if names[0].startswith("python"):
        names.pop(0)
        while names and names[0].startswith("-"):
            option = names.pop(0)
            if option == "-m":
                return names[:1] == [MODULE]
            if option in ("-X", "-W"):  # a value follows
                del names[:1]
    return names[:1] == [PROCESS_NAME] or names[:2] == ["gnats", "server"]


def _maybe_read_pid_file(expr: str) -> str:
    try:
        return Path(expr).read_text().strip()
    except (OSError, ValueError):
        return expr
