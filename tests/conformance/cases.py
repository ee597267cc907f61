"""What the tables of cases share: lines that clients send, answers that servers give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from support.exchange import INFO, OPEN, TOKEN

__all__ = [
    "CLOSED",
    "HEADERS",
    "INFO",
    "NO_RESPONDERS",
    "OK",
    "OPEN",
    "PEDANTIC",
    "QUIET",
    "TOKEN",
    "UNKNOWN",
    "params",
]

# Sent first by most connections: without it a connection is verbose, pedantic and without headers.
QUIET = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
HEADERS = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
NO_RESPONDERS = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
PEDANTIC = b'CONNECT {"verbose":false,"pedantic":true}\r\n'

# Answers. A connection that is kept ends its answer with OPEN, one that is closed without a word says CLOSED.
OK = b"+OK\r\n"
CLOSED = b""
UNKNOWN = b"-ERR 'Unknown Protocol Operation'\r\n"


def params(cases: Mapping[str, tuple[Any, ...]]) -> list[Any]:
    """The cases of a table as parameters of a test, named by their keys."""
    return [pytest.param(*case, id=name) for name, case in cases.items()]
