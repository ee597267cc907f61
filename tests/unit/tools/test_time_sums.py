"""Code adds times only with helpers that do not wrap around (includes/times)."""

from __future__ import annotations

import re
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "cython_src" / "gnats"
TIME = (
    r"(?:ps\.now|\bnow|\bwall|\bts|monotonic_ns\(\)|realtime_ns\(\)|\.deadline|\boldest|\.expires|\.heard"
    r"|\.pause_until|\.last)"
)
DURATION = (
    r"(?:(?:self\.|s\.|req\.|wr\.|limits\.|t\.)?(?:cfg\.)?(?:\w*(?:wait|ttl|interval|timeout|deadline|heartbeat|inactive"
    r"|duplicates|max_age|expires|threshold|delay)\b(?!\())|\bd\b|\bns\b|\bhb\b)"
)
SUM = re.compile(rf"{TIME} *[+-] *{DURATION}|{DURATION} *\+ *{TIME}")
FROM_CLIENTS = ("jetstream", "store", "core")


def test_no_deadline_is_added_by_hand() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{number}: {line.strip()}"
        for folder in FROM_CLIENTS
        for path in sorted((SOURCES / folder).rglob("*.pyx"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if SUM.search(line.partition("#")[0])
    ]
    assert found == []
