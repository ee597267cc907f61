"""JetStream of a server that is tested: its API as a test asks it, and answers made comparable."""

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
    """A server with JetStream in a directory."""
    return f"server_name: srv, jetstream {{ store_dir: '{directory}', {options} }}\n{more}"


def comparable(value: Any, key: str = "") -> Any:
    """A document with times and ids replaced, objects as pairs to keep their order."""
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
    """A message: JSON as comparable() makes it, anything else as it is, with its header."""
    header = re.sub(rb"\d{4}-\d\d-\d\dT[0-9:.]+Z", b"time", message.header)
    try:
        payload = comparable(json.loads(message.payload))
    except ValueError:
        payload = message.payload
    return header, payload


class Asker:
    """Asks servers the same, and requires that they answer alike."""

    def __init__(self, *callers: Caller) -> None:
        self.callers = callers

    def ask(self, subject: str, body: object = None, header: bytes = b"") -> Any:
        """The answer of the last of them, as JSON where it is."""
        answers = [caller.request(subject, body, header) for caller in self.callers]
        first, *others = [comparable_message(answer) for answer in answers]
        for other in others:
            assert other == first, (subject, body, other, first)
        try:
            return answers[-1].json
        except ValueError:
            return answers[-1]

    def api(self, verb: str, body: object = None, header: bytes = b"") -> Any:
        """The same for a request to the API."""
        return self.ask(API + verb, body, header)
