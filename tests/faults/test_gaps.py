"""Gaps of any size between messages cost no memory."""

from __future__ import annotations

from typing import Any

import pytest
from support.caller import Caller
from support.faults import Home, create, info, stored
from support.process import resident
from support.servers import until

pytestmark = pytest.mark.timeout(120)

FAR = 2**40
MOST = 64 << 20
"""Bytes that may come to a server's memory."""


def last(caller: Caller, name: str) -> Any:
    return caller.request(f"$JS.API.STREAM.INFO.{name}").json["state"]["last_seq"]


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_mirror_of_a_stream_that_was_purged_far_ahead(home: Home, storage: str) -> None:
    server = home.start()
    with Caller(server) as caller:
        create(caller, "O", storage=storage)
        caller.request("O.a", b"one")
        config = {"name": "M", "mirror": {"name": "O"}, "storage": storage}
        assert "error" not in caller.request("$JS.API.STREAM.CREATE.M", config).json
        until(lambda: last(caller, "M") == 1)
        before = resident(server.process.pid)
        assert caller.request("$JS.API.STREAM.PURGE.O", {"seq": FAR}).json["purged"] == 1
        assert caller.request("O.a", b"two").json["seq"] == FAR
        until(lambda: last(caller, "M") == FAR)
        state = info(caller, "M")["state"]
        assert state["num_deleted"] == FAR - 2
        # gnats lists only the first of the deleted sequences; nats-server ends here.
        assert (
            state["deleted"] == list(range(2, 2 + len(state["deleted"]))) and len(state["deleted"]) >= 100_000
        )
        body = {"stream_name": "M", "config": {"durable_name": "C", "ack_policy": "explicit"}}
        assert caller.request("$JS.API.CONSUMER.CREATE.M.C", body).json["num_pending"] == 2
        caller.ask("$JS.API.CONSUMER.MSG.NEXT.M.C", b"2")
        assert [caller.next().payload for _ in range(2)] == [b"one", b"two"]
        assert resident(server.process.pid) - before < MOST
    home.stop()
    if storage == "file":
        with Caller(home.start()) as caller:
            assert last(caller, "M") == FAR
        home.kill()
        (home.stream("M") / "msgs" / "index.db").unlink(missing_ok=True)
        server = home.start()
        with Caller(server) as caller:
            assert last(caller, "M") == FAR
            assert stored(caller, "O") == {FAR: ("O.a", b"two")}
            assert resident(server.process.pid) < before + MOST
        home.stop()
