"""/ipqueuesz, /debug/vars and /stacksz (monitor.go): queues, variables and stacks of the process."""

import asyncio
import gc
import io
import re
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Protocol

from gnats.monitor.pages.options import IpqueueszOptions
from gnats.monitor.pages.render import Page
from gnats.system.usage import resident_bytes

if TYPE_CHECKING:
    from gnats.runtime.pollers import Pollers

INBOX = "Poller events"
_SECRET = re.compile(r"--?(user|pass|auth)(=.*)?", re.DOTALL)


class Polled(Protocol):
    """The server as these pages see it; it has pollers while it runs."""

    @property
    def pollers(self) -> "Pollers | None": ...


def ipqueuesz(server: Polled, options: IpqueueszOptions) -> Page:
    """Return the number of events that wait between the data plane and the control plane."""
    pending = server.pollers.pending_events if server.pollers else 0
    if (pending or options.all) and options.filter in INBOX:
        return {INBOX: {"pending": pending}}
    return {}


def expvarz() -> Page:
    """Return the command line without secrets, and the memory of the process in bytes."""
    collected = sum(generation["collections"] for generation in gc.get_stats())
    return {
        "cmdline": redact_args(sys.argv),
        "memstats": {"Sys": resident_bytes(), "NumGC": collected, "EnableGC": gc.isenabled()},
    }


def redact_args(args: list[str]) -> list[str]:
    """Hide the values of flags with secrets in a command line (RedactArgs in opts.go)."""
    shown: list[str] = []
    hide = False
    for arg in args:
        match = _SECRET.fullmatch(arg)
        if hide:
            shown.append("[REDACTED]")
        elif match and match[2] is not None:
            shown.append(arg.split("=", 1)[0] + "=[REDACTED]")
        else:
            shown.append(arg)
        hide = not hide and match is not None and match[2] is None
    return shown


def stacksz() -> str:
    """Return the stacks of all threads and of the loop's tasks."""
    out = io.StringIO()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        out.write(f"thread {names.get(ident, ident)}:\n")
        traceback.print_stack(frame, file=out)
        out.write("\n")
    for task in asyncio.all_tasks():
        task.print_stack(file=out)
        out.write("\n")
    return out.getvalue()
