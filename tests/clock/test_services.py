"""Timers of services: responses that cross accounts, and latency measurements."""

from __future__ import annotations

from typing import Any

import pytest
from support.clock import HeldClock

from gnats.options.values.accounts import AccountConfig, ServiceExport, ServiceImport, ServiceLatency
from gnats.options.values.auth import User

from .conftest import Connect, Start


def options(**export: Any) -> dict[str, Any]:
    """Return options in which account C imports a service of account S."""
    service = ServiceExport("svc", threshold=5.0, **export)
    return {
        "accounts": [
            AccountConfig("S", exports=(service,)),
            AccountConfig("C", imports=(ServiceImport("S", "svc"),)),
        ],
        "users": [User("s", "pw", account="S"), User("c", "pw", account="C")],
        "ping_interval": 1e6,
    }


async def test_a_response_has_its_time(start: Start, connect: Connect, clock: HeldClock) -> None:
    server = await start(**options(latency=ServiceLatency("measured", 100)))
    service = await connect(server, user="s", password="pw")
    client = await connect(server, user="c", password="pw")
    requests = await service.subscribe("svc")
    measured = await service.subscribe("measured")
    answers = await client.ask("svc", b"one")
    await clock.advance(4.999)
    assert await measured.nothing()
    service.publish((await requests.next()).reply, b"in time")
    assert (await answers.next()).payload == b"in time"
    told = (await measured.next()).json
    assert told["status"] == 200
    assert told["total"] >= 4_999_000_000  # round trips count as well
    answers = await client.ask("svc", b"two")
    await clock.advance(5)
    late = (await measured.next()).json
    assert (late["status"], late["description"]) == (504, "Service Timeout")
    service.publish((await requests.next()).reply, b"late")
    await service.fence()
    assert await answers.nothing()


@pytest.mark.parametrize("kind", ["stream", "chunked"])
async def test_each_of_many_responses_has_its_time(
    start: Start, connect: Connect, clock: HeldClock, kind: str
) -> None:
    server = await start(**options(response_type=kind))
    service = await connect(server, user="s", password="pw")
    client = await connect(server, user="c", password="pw")
    requests = await service.subscribe("svc")
    answers = await client.ask("svc", b"one")
    reply = (await requests.next()).reply
    for wait in (4.999, 4.999, 4.999):
        await clock.advance(wait)
        service.publish(reply, b"part")
        assert (await answers.next()).payload == b"part"
    await clock.advance(5.01)
    service.publish(reply, b"late")
    await service.fence()
    assert await answers.nothing()
