"""Requests about JWTs in the system account: failures, and many requests at once."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
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


async def ask(server: Server, *subjects: str) -> list[dict[str, Any]]:
    """Send requests in the system account at once; return the answers in order."""
    assert server.system_account
    client = server.internal_clients.new(server.system_account)
    answers: list[dict[str, Any]] = []
    done = asyncio.Event()

    def answered(message: Message) -> None:
        answers.append(json.loads(message.payload))
        if len(answers) == len(subjects):
            done.set()

    client.subscribe(b"answers", answered)
    for subject in subjects:
        client.publish(subject.encode(), b"", reply=b"answers")
    async with asyncio.timeout(30):
        await done.wait()
    return answers


async def test_a_change_that_fails_is_answered_and_others_go_on(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def update(mode: OperatorMode, account: str, payload: bytes) -> Reply:
        if account == "BAD":
            raise KeyError("nobody has foreseen that")
        return {"data": account}

    monkeypatch.setattr(OperatorMode, "account_claim_update", update)
    conf = tmp_path / "server.conf"
    conf.write_text(Trust().config())
    log = Log()
    server = await start(log, opts=Options.from_file(conf))
    bad, good = await ask(server, *(f"$SYS.REQ.ACCOUNT.{name}.CLAIMS.UPDATE" for name in ("BAD", "GOOD")))
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
    conf.write_text(Trust().config(resolver=f"{{ type: full, dir: '{tmp_path / 'jwt'}' }}"))
    log = Log()
    server = await start(log, opts=Options.from_file(conf))
    answers = await ask(server, "$SYS.REQ.CLAIMS.LIST", "$SYS.REQ.CLAIMS.LIST")
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
