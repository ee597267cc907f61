"""Play the same sequences to nats-server and to gnats, from one connection: both must answer alike.

A step ends with the answer to its PING; a request ends when its answer has come too, if it has one. Messages
that may come at any moment are compared by subject, over the whole sequence.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from support.caller import Caller, Message, parse
from support.jetstream import comparable, config
from support.servers import REFERENCE, Kind, Server
from support.wire import PING, PONG

from .draw import Draw
from .hunt import shorten
from .player import say
from .steps import Maker, Step
from .wires import Wire, pump

ANSWER = 1.0
"""Seconds after which a request counts as unanswered."""
QUIET = 0.015
"""Seconds that nothing may come before a step is over."""
_ACK = re.compile(r"(\$JS\.ACK\.[^.]+\.[^.]+\.\d+\.\d+\.\d+\.)\d+(\.\d+)")
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT[0-9:.]+Z")
_ON_PURPOSE = ("there are no more sequences",)
"""Answers after which servers differ on purpose: a sequence that leads to one is not compared further."""
_UNCLEAR = frozenset(("inactive_threshold_left", "avg", "last_active", "active", "lag"))


def simple(op: bytes) -> Any:
    """Return an operation without the values that differ from run to run."""
    if not op.startswith((b"MSG ", b"HMSG ")):
        return op
    message: Message = parse(re.sub(rb"  +", b" ", op[: op.index(b"\r\n")]) + op[op.index(b"\r\n") :])
    header = _TIME.sub(b"time", message.header)
    header = re.sub(rb"(Nats-Pin-Id: )\S+", rb"\1id", header)
    header = re.sub(_ACK.pattern.encode(), rb"\1T\2", header)
    try:
        payload: Any = comparable(_without(json.loads(message.payload)))
    except ValueError:
        payload = (
            message.payload if len(message.payload) < 200 else (len(message.payload), hash(message.payload))
        )
    return message.subject, message.sid, _ACK.sub(r"\1T\2", message.reply), header, payload


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        hidden: set[str] = set()
        if value.get("deleted") == [0]:  # nats-server's for a stream that never had a message
            hidden |= {"deleted", "num_deleted"}
        if value.get("last_seq") == 0 and value.get("messages") == 0:  # 1 in nats-server after a purge
            hidden |= {"first_seq"}
        if "lag" in value:  # a mirror: these two depend on its progress
            hidden |= {"filter_subject", "error"}
        return {key: _without(each) for key, each in value.items() if key not in _UNCLEAR | hidden}
    return [_without(each) for each in value] if isinstance(value, list) else value


class Listener(Wire):
    """A connection that keeps what came, answers apart from other messages."""

    def __init__(self, server: Server) -> None:
        self.ops: list[bytes] = []
        super().__init__(server.address, "", "_INBOX.w")

    def look_at(self, op: bytes) -> None:
        super().look_at(op)
        if op not in (PING, PONG) and not op.startswith(b"INFO "):
            self.ops.append(op)

    def has(self, inbox: str) -> bool:
        return any(op.split(b" ", 2)[1] == inbox.encode() for op in self.ops if b"MSG " in op[:5])


class Playing:
    """One server, and its answers to a sequence."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._directory = Path(tempfile.mkdtemp(prefix="gnats-fuzz-"))
        self.server = Server(kind, self._directory, config=config(self._directory / "js"))

    def end(self, *, killed: bool = False) -> None:
        """Stop or kill the server. Raises AssertionError when it does not rest, or ends with an error."""
        try:
            if killed:
                self.server.kill()
            else:
                self.server.stop()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def play(self, steps: list[Step]) -> tuple[list[Any], dict[str, list[Any]]]:
        """Play steps; return the answers to each step, and other messages by subject."""
        answers: list[Any] = []
        pushed: dict[str, list[Any]] = defaultdict(list)
        with Caller(self.server) as caller:
            for name in caller.request("$JS.API.STREAM.NAMES").json.get("streams") or ():
                caller.request(f"$JS.API.STREAM.DELETE.{name}")
        wire = Listener(self.server)
        try:
            for step in steps:
                if step[0] == "connect":
                    continue
                inbox = ""
                if step[0] in ("request", "ack"):
                    inbox = f"{wire.inbox}.{wire.asked + 1}"
                say(wire, step)
                self._over(wire, inbox if self._is_answered(step) else "")
                answers.append(sorted((simple(op) for op in wire.ops if self._answers(op, inbox)), key=repr))
                for op in wire.ops:
                    if not self._answers(op, inbox) and b" $JS.EVENT." not in op[:20]:
                        said = simple(op)
                        pushed[said[0] if isinstance(said, tuple) else "errors"].append(said)
                wire.ops.clear()
                if wire.closed:
                    answers.append("closed")
                    break
        finally:
            if not wire.closed:
                wire.end()
        return answers, {subject: sorted(found, key=repr) for subject, found in pushed.items()}

    @staticmethod
    def _answers(op: bytes, inbox: str) -> bool:
        return bool(inbox) and op.startswith((b"MSG ", b"HMSG ")) and op.split(b" ", 2)[1] == inbox.encode()

    @staticmethod
    def _is_answered(step: Step) -> bool:
        """Return False for pull requests and acknowledgements, which may have no answer."""
        return step[0] == "request" and ".MSG.NEXT." not in step[2]

    def _over(self, wire: Listener, inbox: str) -> None:
        wire.ping()
        end = time.monotonic() + 20
        while not wire.is_settled and time.monotonic() < end:
            pump([wire], 0.1)
        end = time.monotonic() + ANSWER
        while inbox and not wire.closed and not wire.has(inbox) and time.monotonic() < end:
            pump([wire], 0.05)
        while pump([wire], QUIET):
            pass


def apart(wrong: Any, right: Any, at: str = "") -> str:
    """Describe where gnats's answer `wrong` differs from nats-server's answer `right`."""
    if isinstance(wrong, list | tuple) and isinstance(right, list | tuple) and len(wrong) == len(right):
        if len(wrong) == 2 and isinstance(wrong[0], str) and wrong[0] == right[0]:
            return apart(wrong[1], right[1], f"{at}.{wrong[0]}")
        different = [pair for pair in zip(wrong, right, strict=True) if pair[0] != pair[1]]
        return "; ".join(apart(*pair, at) for pair in different)
    return f"{at}: {_cut(wrong)}  <>  {_cut(right)}"


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) < 700 else f"{text[:500]}...{text[-200:]}"


class Comparison:
    """Plays sequences to nats-server and to other servers."""

    def __init__(self, kinds: list[Kind]) -> None:
        self._kinds = [REFERENCE, *kinds]
        self._playing: list[Playing] = []
        self._pool = ThreadPoolExecutor(len(self._kinds))

    def end(self, *, killed: bool = False) -> None:
        """Stop or kill the servers. Raises AssertionError when one does not rest, or ends with an error."""
        with ExitStack() as stack:  # a server that fails keeps no other one running
            for playing in self._playing:
                stack.callback(playing.end, killed=killed)
            self._playing.clear()

    def difference(self, steps: list[Step]) -> str:
        """Play steps to all servers; describe the first difference, "" for none."""
        asked = [step for step in steps if step[0] != "connect"]
        try:
            for kind in self._kinds[len(self._playing) :]:
                self._playing.append(Playing(kind))
            (expected, pushed), *others = self._pool.map(lambda each: each.play(steps), self._playing)
        except Exception as error:  # noqa: BLE001 - a failing server is a finding
            self.end(killed=True)
            return f"{type(error).__name__}: {error}"
        for playing, (answers, also) in zip(self._playing[1:], others, strict=True):
            for step, right, wrong in zip(asked, expected, answers, strict=False):
                if right != wrong:
                    if any(text in str(wrong) for text in _ON_PURPOSE):
                        return ""
                    return f"{playing.kind.name} to {json.dumps(step)[:300]}\n  {apart(wrong, right)}"
            for subject in sorted({*pushed, *also}):
                if pushed.get(subject, []) != also.get(subject, []):
                    return (
                        f"{playing.kind.name} on {subject}\n  {apart(also.get(subject), pushed.get(subject))}"
                    )
        return ""

    def certain(self, steps: list[Step], tries: int = 3) -> str:
        """Describe a difference that new servers show in each of several tries, "" for none."""
        found = ""
        for _ in range(tries):
            self.end()
            if not (found := self.difference(steps)):
                return ""
        return found


def sequence(seed: int, number: int) -> list[Step]:
    draw = Draw(seed * 1_000_003 + number)
    return Maker(draw, 1, alone=True).sequence(draw.one(8, 15, 30))


def compare(
    kinds: list[Kind],
    seed: int,
    first: int,
    seconds: float,
    again: float,
    keep: Path | None,
    known: Callable[[str], bool] = lambda difference: False,
) -> int:
    """Play sequences for so many seconds; print each difference, and return their number."""
    comparison = Comparison(kinds)
    end = time.monotonic() + seconds
    number, found = first, 0
    seen: set[str] = set()
    try:
        while time.monotonic() < end:
            steps = sequence(seed, number)
            if comparison.difference(steps) and (difference := comparison.certain(steps)):
                if not known(difference):
                    found += 1
                    print(f"\nDIFFERENT --seed {seed} --first {number}: {difference}", flush=True)
                    mark = re.sub(r"\d+", "", difference.rpartition("\n")[2])[:60]
                    if again and mark not in seen:
                        seen.add(mark)
                        short = shorten(steps, lambda fewer: bool(comparison.difference(fewer)), again)
                        print(f"  in short: {comparison.difference(short)}", flush=True)
                        print("  " + "\n  ".join(json.dumps(step)[:500] for step in short), flush=True)
                        if keep:
                            keep.mkdir(parents=True, exist_ok=True)
                            (keep / f"compare-{seed}-{number}.json").write_text(json.dumps(short))
                comparison.end()
            number += 1
        print(f"seed {seed}: sequences {first} to {number - 1}, {found} differences", flush=True)
    except AssertionError:
        print(f"\nFAILED --seed {seed} --first {number}", flush=True)
        raise
    finally:
        comparison.end()
    return found


def replay(kinds: list[Kind], steps: list[Step]) -> int:
    comparison = Comparison(kinds)
    try:
        found = comparison.difference(steps)
        print(found or "no difference")
        return bool(found)
    finally:
        comparison.end()
