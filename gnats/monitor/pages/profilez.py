"""PROFILEZ: profiles of the running process, requested in the system account (monitor.go).

The profiles have nats-server's names where there is a counterpart. They are text, see
gnats.monitor.profiling.
"""

import asyncio
import threading
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass

from gnats.go.text import SECOND, duration, quote
from gnats.monitor.pages.options import PageOptions
from gnats.monitor.pages.render import Page
from gnats.system.memory import memory_report
from gnats.system.sampling import cpu_profile, thread_stacks

MAX_DURATION = 15_000_000_000

_PROFILES: dict[str, Callable[[], str]] = {"heap": memory_report, "goroutine": thread_stacks}
_measuring = asyncio.Lock()


@dataclass(frozen=True, slots=True)
class ProfilezOptions(PageOptions):
    """`duration` is of a CPU profile, in nanoseconds. `debug` has no effect: all profiles are text."""

    name: str = ""
    debug: int = 0
    duration: int = 0


async def profilez(options: ProfilezOptions) -> Page:
    """Make a page with a `profile` in base64, or an `error`. A CPU profile takes its `duration`."""
    if not options.name:
        return _refused("Profile name not specified")
    if options.name == "cpu":
        if not 0 < options.duration <= MAX_DURATION:
            return _refused(f"Duration {duration(options.duration)} should be between 0s and 15s")
        if _measuring.locked():
            return _refused("Failed to start CPU profile: cpu profiling already in use")
        async with _measuring:
            stop = threading.Event()
            try:
                stacks = await asyncio.to_thread(cpu_profile, options.duration / SECOND, stop)
            finally:
                stop.set()
        lines = sorted(stacks.items(), key=lambda item: -item[1])
        return _profile("".join(f"{stack} {weight}\n" for stack, weight in lines))
    take = _PROFILES.get(options.name)
    if take is None:
        return _refused(f"Profile {quote(options.name)} not found")
    return _profile(await asyncio.to_thread(take))


def _profile(text: str) -> Page:
    return {"profile": b64encode(text.encode()).decode(), "error": ""}


def _refused(why: str) -> Page:
    return {"profile": None, "error": why}
