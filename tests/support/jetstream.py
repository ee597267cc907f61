"""Ask several servers' JetStream the same, and compare their answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from .caller import Caller, Message

API = "$JS.API."
TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
NO_TIME = "0001-01-01T00:00:00Z"
VOLATILE = frozenset(("id", "server_id", "inactive_threshold_left", "pause_remaining"))


def config(directory: Path, options: str = "", more: str = "") -> str:
    """Return configuration text: JetStream in `directory` with `options`, and `more` at the top level."""
    return f"server_name: srv, jetstream {{ store_dir: '{directory}', {options} }}\n{more}"


def comparable(value: Any, key: str = "") -> Any:
    """Replace times and ids in a JSON document; make objects lists of pairs, so that order counts."""
    if isinstance(value, dict):
        return [(name, comparable(each, name)) for name, each in value.items()]
    if isinstance(value, list):
        return [comparable(each) for each in value]
    if key in VOLATILE:
        return type(value).__name__
    if isinstance(value, str) and TIME.match(value) and value != NO_TIME:
        return "time"
    return value


def comparable_message(message: Message) -> Any:
    """Return (header, payload) with times replaced; a JSON payload is made comparable()."""
    header = re.sub(rb"\d{4}-\d\d-\d\dT[0-9:.]+Z", b"time", message.header)
    try:
        payload = comparable(json.loads(message.payload))
    except ValueError:
        payload = message.payload
    return header, payload


class Asker:
    """Sends each request to all servers and asserts that they answer alike."""

    def __init__(self, *callers: Caller) -> None:
        self.callers = callers

    def ask(self, subject: str, body: object = None, header: bytes = b"") -> Any:
        """Return the answer of the last server: parsed if it is JSON, else the Message."""
        answers = [caller.request(subject, body, header) for caller in self.callers]
        first, *others = [comparable_message(answer) for answer in answers]
        for other in others:
            assert other == first, (subject, body, other, first)
        try:
            return answers[-1].json
        except ValueError:
            return answers[-1]

    def api(self, verb: str, body: object = None, header: bytes = b"") -> Any:
        """Ask the subject `verb` of the JetStream API, such as "STREAM.INFO.S"."""
        return self.ask(API + verb, body, header)
