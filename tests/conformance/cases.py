"""Parts of the tables of cases: lines that clients send, answers of servers."""

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

# The first line of most connections: without CONNECT a connection is verbose, pedantic and without headers.
QUIET = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
HEADERS = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
NO_RESPONDERS = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
PEDANTIC = b'CONNECT {"verbose":false,"pedantic":true}\r\n'

# Answers. One ends with OPEN where the server kept the connection; CLOSED is a close without -ERR.
OK = b"+OK\r\n"
CLOSED = b""
UNKNOWN = b"-ERR 'Unknown Protocol Operation'\r\n"


def params(cases: Mapping[str, tuple[Any, ...]]) -> list[Any]:
    """Make the cases of a table parameters of a test, with their keys as ids."""
    return [pytest.param(*case, id=name) for name, case in cases.items()]
