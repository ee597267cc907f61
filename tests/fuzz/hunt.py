"""Hunt for crashes and stalls: play sequences of several connections, and check the server after each."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from support.caller import Caller
from support.servers import TROUBLE, Kind, Server

from gnats.testing import rest
from gnats.testing.rest import NotAtRest, own_memory

from .draw import Draw
from .player import drain, say
from .steps import Maker, Step
from .wires import Stalled, Wire, pump, settle

PATIENCE = 20.0
"""Seconds without a byte after which a server counts as stalled."""
ANSWER = 1.0
"""Seconds that are waited for an answer where a sequence waits."""
MEMORY = 2 << 30
"""Bytes that a server may have in use."""
GROWTH = 192 << 20
"""Bytes that it may have more after its streams are gone than before."""
SANITIZER = re.compile(r"^.*(runtime error:|ERROR: \w+Sanitizer|WARNING: ThreadSanitizer)", re.MULTILINE)
SANITIZED = os.environ.get("GNATS_SANITIZED", "")

ACCOUNTS = """
server_name: fuzz
ping_interval: "30s"
write_deadline: "2s"
jetstream {{ store_dir: "{store}", max_mem: 256MB, max_file: 512MB{sync} }}
system_account: SYS
accounts {{
  A {{
    jetstream: {limits}
    users: [ {{ user: a, password: pw }} ]
    exports: [ {{ stream: "exp.>" }}, {{ service: "svc.>" }}, {{ stream: "push.>" }},
               {{ service: "$JS.API.CONSUMER.MSG.NEXT.>", response_type: stream }} ]
    mappings {{ "map.*": "mapped.{{{{wildcard(1)}}}}", "core.w": [ {{ destination: core.a, weight: 50% }} ] }}
  }}
  B {{
    jetstream: {{ max_mem: 32MB, max_file: 64MB, max_streams: 3 }}
    users: [ {{ user: b, password: pw }} ]
    imports: [ {{ stream: {{ account: A, subject: "exp.>" }}, prefix: from }},
               {{ service: {{ account: A, subject: "svc.>" }} {share} }},
               {{ service: {{ account: A, subject: "$JS.API.CONSUMER.MSG.NEXT.>" }}, to: "A.NEXT.>" }} ]
  }}
  C {{ users: [ {{ user: c, password: pw,
       permissions: {{ publish: [ "core.>", "_INBOX.>" ], subscribe: [ "core.*", "_INBOX.>" ] }} }} ] }}
  SYS {{ users: [ {{ user: sys, password: pw }} ] }}
}}
"""


def configuration(store: Path, variant: int, sync: bool) -> str:
    """Return the configuration in a variant; reloads change between the variants."""
    return ACCOUNTS.format(
        store=store,
        sync=", sync_interval: always" if sync else "",
        limits="enabled" if variant != 1 else "{ max_mem: 128MB, max_file: 256MB, max_streams: 4 }",
        share=", share: true" if variant == 2 else "",
    )


class Finding(Exception):
    """A fault of a server; `args[0]` describes it."""


class Hunt:
    """Plays sequences to one server, which it starts again when necessary."""

    def __init__(self, kind: Kind, *, sync: bool = False) -> None:
        self.kind = kind
        self._sync = sync
        self._directory = Path(tempfile.mkdtemp(prefix="gnats-fuzz-"))
        self._store = self._directory / "js"
        self._runs = 0
        self.server: Server | None = None
        self._memory = 0

    def start(self) -> Server:
        self._runs += 1
        directory = self._directory / f"run{self._runs}"
        config = configuration(self._store, 0, self._sync)
        try:
            self.server = Server(self.kind, directory, config=config)
        except RuntimeError as error:
            raise Finding(f"it does not start: {error}") from None
        return self.server

    def end(self) -> None:
        if self.server:
            self.server.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def play(self, steps: list[Step]) -> None:
        """Play steps and check the server. Raises Finding."""
        server = self.server or self.start()
        wires: dict[int, Wire] = {}
        try:
            for step in steps:
                server = self._step(server, wires, step)
            self._check(server, wires)
        except (ConnectionError, Stalled, NotAtRest, AssertionError) as error:
            raise Finding(self._told(error)) from None
        finally:
            for wire in wires.values():
                if not wire.closed:
                    wire.end()

    def _step(self, server: Server, wires: dict[int, Wire], step: Step) -> Server:
        what = step[0]
        if what == "connect":
            if (old := wires.get(step[1])) and not old.closed:
                old.end()
            wires[step[1]] = Wire(server.address, step[2], f"_INBOX.w{step[1]}")
        elif what in ("close", "reset", "mute"):
            if wire := wires.get(step[1]):
                if what == "mute":
                    wire.muted = True
                elif not wire.closed:
                    wire.end(reset=what == "reset")
        elif what == "wait":
            end = time.monotonic() + ANSWER
            if wire := wires.get(step[1]):
                while wire.answered < wire.asked and not wire.closed and time.monotonic() < end:
                    pump(wires.values(), 0.05)
        elif what == "pause":
            end = time.monotonic() + step[1]
            while time.monotonic() < end:
                drain(wires.values())
                time.sleep(0.005)
        elif what == "reload":
            server.conf.write_text(
                configuration(self._store, step[1], self._sync) + f"\nio_threads: {self.kind.io_threads}\n"
            )
            start = len(server.log)
            server.process.send_signal(signal.SIGHUP)
            server.wait_log("Reloaded server configuration|Failed to reload", start)
        elif what in ("restart", "kill"):
            drain(wires.values())
            for wire in wires.values():
                if not wire.closed:
                    wire.end()
            if what == "restart":
                server.stop(rested=False)
            else:
                server.kill()
            server = self.start()
            for c, wire in wires.items():
                wires[c] = Wire(server.address, wire.user, wire.inbox)
        elif wire := wires.get(step[1]):
            say(wire, step)
        drain(wires.values())
        if server.process.poll() is not None:
            raise Finding(self._told("it has ended"))
        if (memory := own_memory(server.process.pid)) > MEMORY * (3 if SANITIZED else 1):
            raise Finding(self._told(f"it takes {memory >> 20} MiB"))
        return server

    def _check(self, server: Server, wires: dict[int, Wire]) -> None:
        """Require that the server answers and rests, with the streams there and after they are deleted."""
        settle(wires.values(), PATIENCE)
        self._ask(server)
        server.wait_for_rest()
        for wire in wires.values():
            if not wire.closed:
                wire.end()
        for user in ("a", "b"):
            with Caller(server, user) as caller:
                names = caller.request("$JS.API.STREAM.NAMES").json.get("streams") or ()
                for name in names:
                    answer = caller.request(f"$JS.API.STREAM.DELETE.{name}").json
                    if "error" in answer:
                        raise Finding(self._told(f"a stream cannot be deleted: {answer}"))
        server.wait_for_rest()
        memory = own_memory(server.process.pid)
        if not SANITIZED and self._memory and memory - self._memory > GROWTH:
            raise Finding(self._told(f"{(memory - self._memory) >> 20} MiB more than before"))
        self._memory = self._memory or memory
        if TROUBLE.search(server.log):
            raise Finding(self._told("its log has a traceback"))
        if found := [
            line for line in server.log.splitlines() if "[ERR]" in line and "request failed" in line
        ]:
            raise Finding(self._told(f"a request failed: {found[-1]}"))

    def _ask(self, server: Server) -> None:
        with Caller(server, "a") as caller:
            caller.fence()
            answer = caller.request("$JS.API.INFO").json
            if "error" in answer:
                raise Finding(self._told(f"$JS.API.INFO answers {answer}"))

    def _told(self, error: object) -> str:
        told = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
        if server := self.server:
            code = server.process.poll()
            lines = [line for line in server.log.splitlines() if "Violation" not in line and line not in told]
            told += f"\n(exit code {code})\n  " + "\n  ".join(lines[-12:])
            if found := SANITIZER.search(server.log):
                told += "\n" + server.log[found.start() :][:4000]
        return told + reports()


def reports() -> str:
    """Return the paths and texts of sanitizer reports."""
    found = ""
    for option in os.environ.get("ASAN_OPTIONS", os.environ.get("TSAN_OPTIONS", "")).split(":"):
        if option.startswith("log_path="):
            path = Path(option.removeprefix("log_path="))
            for report in sorted(path.parent.glob(f"{path.name}.*")):
                found += f"\n{report}:\n{report.read_text(errors='replace')[:6000]}"
                report.unlink()
    return found


def sequence(seed: int, number: int) -> list[Step]:
    """Make a sequence; seed and number determine it."""
    draw = Draw(seed * 1_000_003 + number)
    return Maker(draw, draw.one(1, 2, 3, 4)).sequence(draw.one(10, 30, 60, 120))


def fails(kind: Kind, steps: list[Step], tries: int = 1) -> str:
    """Play steps to new servers; return the text of a finding, "" for none."""
    for _ in range(tries):
        hunt = Hunt(kind)
        try:
            hunt.play(steps)
        except Finding as finding:
            return str(finding)
        finally:
            hunt.end()
    return ""


def shorten(steps: list[Step], is_wrong: Callable[[list[Step]], bool], seconds: float) -> list[Step]:
    """Leave out steps, large parts first, while is_wrong() holds; stop after `seconds`."""
    end = time.monotonic() + seconds
    size = max(1, len(steps) // 2)
    while time.monotonic() < end:
        at, shorter = 0, False
        while at < len(steps) and time.monotonic() < end:
            fewer = steps[:at] + steps[at + size :]
            if fewer and is_wrong(fewer):
                steps, shorter = fewer, True
            else:
                at += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2) if not shorter or size > 1 else 1
    return steps


def hunt(kinds: list[Kind], seed: int, first: int, seconds: float, again: int, keep: Path | None) -> int:
    """Play sequences for so many seconds; print each finding, and return their number."""
    end = time.monotonic() + seconds
    number, found = first, 0
    hunts: dict[str, Hunt] = {}
    seen: set[str] = set()
    try:
        while time.monotonic() < end:
            kind = kinds[number % len(kinds)]
            running = hunts.get(kind.name)
            if running is None:
                running = hunts[kind.name] = Hunt(kind, sync=random.Random(number).random() < 0.2)
            steps = sequence(seed, number)
            try:
                running.play(steps)
            except Finding as finding:
                found += 1
                hunts.pop(kind.name).end()
                head, more = str(finding).partition("\n")[::2]
                mark = re.sub(r"\d+|\[.*?\]", "", head)
                print(f"\nFOUND by {kind.name} --seed {seed} --first {number}: {head}", flush=True)
                if mark not in seen:
                    print(more, flush=True)
                    if again:
                        tell(kind, steps, seed, again, keep)
                seen.add(mark)
            number += 1
        print(f"seed {seed}: sequences {first} to {number - 1}, {found} findings", flush=True)
    finally:
        for running in hunts.values():
            running.end()
    return found


def tell(kind: Kind, steps: list[Step], seed: int, seconds: float, keep: Path | None) -> None:
    """Shorten failing steps and print them; write them to the folder `keep`."""
    if not fails(kind, steps, 2):
        print("  alone the sequence does not fail: it needs those before it, or chance", flush=True)
        return
    patience, rest.PATIENCE = rest.PATIENCE, 1.5
    try:
        short = shorten(steps, lambda fewer: bool(fails(kind, fewer)), seconds)
    finally:
        rest.PATIENCE = patience
    print(f"  as it fails alone: {fails(kind, short, 3).splitlines()[0:3]}", flush=True)
    print("  " + "\n  ".join(json.dumps(step)[:500] for step in short), flush=True)
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{seed}-{len(list(keep.iterdir()))}.json").write_text(json.dumps(short))
