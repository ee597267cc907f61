"""Tracing of the server's own clients."""

import pytest

from .conftest import Start
from .peer import Log

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({}, []),
        (
            {"trace_verbose": True},
            ["<<- [SUB a q 1]", "<<- [PUB b  5]", '<<- MSG_PAYLOAD: ["hello"]', "<<- [PUB c d 0]"],
        ),
        (
            {"trace_verbose": True, "max_traced_msg_len": 2},
            ["<<- [SUB a q 1]", "<<- [PUB b  5]", '<<- MSG_PAYLOAD: ["he..."]', "<<- [PUB c d 0]"],
        ),
        (
            {"trace_verbose": True, "trace_headers": True},
            ["<<- [SUB a q 1]", "<<- [PUB b  5]", "<<- [PUB c d 0]"],
        ),
    ],
)
async def test_the_system_accounts_clients_are_traced_verbosely(
    start: Start, options: dict[str, object], lines: list[str]
) -> None:
    log = Log()
    log.trace_on = True
    server = await start(log, **options)
    log.lines.clear()
    for account in (server.global_account, server.system_account):
        client = server.internal_clients.new(account)
        client.subscribe(b"a", lambda message: None, b"q")
        client.publish(b"b", b"hello")
        client.publish(b"c", b"", reply=b"d")
    assert log.with_text("[TRC] SYSTEM - ") == [f"[TRC] SYSTEM - {line}" for line in lines]
