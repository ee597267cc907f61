"""CONNECT of gateways: a password whose check fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from gnats.connection.closed_state import ClosedState
from gnats.gateways.gateway import Gateway
from gnats.gateways.handshake import Handshake
from gnats.options.options import Options
from gnats.options.values.gateway import GatewayOptions

from .fakes import Log

pytestmark = pytest.mark.timeout(60)


class Session:
    """The session of a connection that is to be closed."""

    cid = 1
    closed_reason = 0

    def close_connection(self, reason: int, err: str | None = None) -> None:
        self.closed_reason = int(reason)


class Gateways:
    """What follows from handshakes: a refusal."""

    def __init__(self) -> None:
        self.refusals: list[Gateway] = []

    def refused(self, gateway: Gateway) -> None:
        self.refusals.append(gateway)


async def test_a_check_that_fails_refuses_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_thread(*_: object) -> bool:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("gnats.cluster.login.check_password_async", no_thread)
    hashed = "$2a$04$AykRcg9LkYrDFVnwQtHwUO5wkH0chBZs4dSnmkL2EkZPkLoCwyIPe"
    opts = Options(gateway=GatewayOptions(name="G", port=1, username="u", password=hashed))
    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    gateways, log, session = Gateways(), Log(), Session()
    gateway = Gateway(session, "127.0.0.1", 5)  # type: ignore[arg-type]
    handshake = Handshake(gateways, log, options=lambda: opts, spawn=spawn)  # type: ignore[arg-type]
    handshake.process_connect(gateway, json.dumps({"user": "u", "pass": "p", "gateway": "H"}).encode())
    await asyncio.wait(tasks)
    assert session.closed_reason == ClosedState.AUTHENTICATION_VIOLATION
    assert gateways.refusals == [gateway]
    assert f'{gateway} - Authentication failed: RuntimeError("can\'t start new thread")' in log.lines
