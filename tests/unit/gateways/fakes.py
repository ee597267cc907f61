"""Fakes of the log and of the data plane's side of a connection."""

from __future__ import annotations

import itertools

from gnats.log.logger import Logger

_cids = itertools.count(1)


class Log(Logger):
    """Keeps its lines, without their levels."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        super().__init__(self._keep, logtime=False, debug=True, trace=True)

    def _keep(self, line: bytes) -> None:
        self.lines.append(line.decode().split("] ", 2)[2].rstrip("\n"))


class Session:
    """The session of a connection whose round trip time is known."""

    def __init__(self, rtt: int) -> None:
        self.cid = next(_cids)
        self.rtt = rtt

    def snapshot(self) -> dict[str, int]:
        return {"rtt": self.rtt}
