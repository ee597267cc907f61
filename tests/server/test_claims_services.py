"""Requests about JWTs in the system account: failures, and many requests at once."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from support.natspy import joined
from support.trust import Trust

from gnats import Options, Server
from gnats.accounts.internal_client import Message
from gnats.operator.mode import OperatorMode
from gnats.operator.requests import MOST_WAITING, InOrder
from gnats.resolver.directory import DirectoryResolver
from gnats.resolver.requests import Reply

from .conftest import Start
from .peer import Log

pytestmark = pytest.mark.timeout(60)


async def ask(server: Server, trust: Trust, *subjects: str) -> list[dict[str, Any]]:
    """Send requests at once as a user of the system account; return the answers in order."""
    user = trust.system.user()
    async with joined(
        server.client_url,
        user_jwt_cb=user.jwt.encode,
        signature_cb=lambda nonce: base64.b64encode(user.key.sign(nonce.encode())),
    ) as client:
        inbox = client.new_inbox()
        answers = await client.subscribe(inbox)
        for subject in subjects:
            await client.publish(subject, reply=inbox)
        return [json.loads((await answers.next_msg(timeout=30)).data) for _ in subjects]


async def test_a_change_that_fails_is_answered_and_others_go_on(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def update(mode: OperatorMode, account: str, payload: bytes) -> Reply:
        if account == "BAD":
            raise KeyError("nobody has foreseen that")
        return {"data": account}

    monkeypatch.setattr(OperatorMode, "account_claim_update", update)
    conf = tmp_path / "server.conf"
    trust = Trust()
    conf.write_text(trust.config())
    log = Log()
    server = await start(log, opts=Options.from_file(conf))
    bad, good = await ask(
        server, trust, *(f"$SYS.REQ.ACCOUNT.{name}.CLAIMS.UPDATE" for name in ("BAD", "GOOD"))
    )
    assert bad["server"]["id"] == good["server"]["id"] == server.id
    assert bad["error"] == {"code": 500, "description": "internal error"}
    assert good["data"] == "GOOD"
    where = '[ERR] Request "$SYS.REQ.ACCOUNT.BAD.CLAIMS.UPDATE" failed: KeyError'
    assert len(log.with_text(where)) == 1


async def test_a_question_that_fails_is_answered(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def list_accounts(resolver: DirectoryResolver) -> Reply:
        raise KeyError("nobody has foreseen that")

    monkeypatch.setattr(DirectoryResolver, "list_accounts", list_accounts)
    conf = tmp_path / "server.conf"
    trust = Trust()
    conf.write_text(trust.config(resolver=f"{{ type: full, dir: '{tmp_path / 'jwt'}' }}"))
    log = Log()
    server = await start(log, opts=Options.from_file(conf))
    answers = await ask(server, trust, "$SYS.REQ.CLAIMS.LIST", "$SYS.REQ.CLAIMS.LIST")
    assert [each["error"]["description"] for each in answers] == ["internal error"] * 2


async def test_too_many_requests_cost_the_connection_with_the_most_its_latest(start: Start) -> None:
    log = Log()
    server = await start(log)
    gate, done, carried, refused = asyncio.Event(), asyncio.Event(), list[Message](), list[Message]()

    async def carry(request: Message) -> None:
        carried.append(request)
        if request is few[-1]:
            done.set()
        await gate.wait()

    def refuse(request: Message, why: str) -> None:
        assert why == "too many requests wait"
        refused.append(request)

    queue = InOrder(server.spawn, server.log, refuse)
    most = MOST_WAITING // (64 << 10)
    few = [Message(b"few", b"", b"", b"", 1) for _ in range(3)]
    many = [Message(b"many %d" % number, b"", b"", b"", 2) for number in range(most)]
    for request in (few[0], *many, *few[1:]):
        queue.add(carry, request)
    assert refused == [many[-1], many[-2]]
    assert len(log.with_text("[WRN] Dropped requests about JWTs: too many wait")) == 1
    large = Message(b"large", b"", b"", bytes(MOST_WAITING), 3)
    queue.add(carry, large)
    assert refused[2:] == [large]
    gate.set()
    async with asyncio.timeout(30):
        await done.wait()
    assert carried == [few[0], *many[:-2], *few[1:]]
