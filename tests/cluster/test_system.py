"""The system account of two servers of every two kinds."""

from __future__ import annotations

import json

import pytest
from support.clusters import Cluster
from support.servers import until

from .members import Client

pytestmark = pytest.mark.timeout(120)


def ids(pair: Cluster) -> list[str]:
    """Return the ids of the members."""
    found = []
    for server in pair.servers:
        with Client(server) as client:
            found.append(client.connection.info["server_id"])
    return found


def test_both_servers_answer_a_ping(pair: Cluster, ends: tuple[int, int]) -> None:
    with Client(pair[ends[0]], "s") as client:
        inbox = client.ask("$SYS.REQ.SERVER.PING")
        answers = [client.next_on(inbox) for _ in range(2)]
        assert {answer.json["server"]["name"] for answer in answers} == {"s0", "s1"}
        assert {answer.json["server"]["id"] for answer in answers} == set(ids(pair))


@pytest.mark.parametrize("page", ["VARZ", "CONNZ", "SUBSZ", "ROUTEZ", "STATSZ", "HEALTHZ", "ACCOUNTZ"])
def test_the_other_server_is_asked(pair: Cluster, ends: tuple[int, int], page: str) -> None:
    asked = ids(pair)[ends[1]]
    with Client(pair[ends[0]], "s") as client:
        answer = client.request(f"$SYS.REQ.SERVER.{asked}.{page}").json
        assert "error" not in answer
        assert answer["server"]["id"] == asked


def test_events_of_the_other_server(pair: Cluster, ends: tuple[int, int]) -> None:
    with Client(pair[ends[0]], "s") as watcher, Client(pair[ends[1]], "s") as there:
        watcher.subscribe("$SYS.ACCOUNT.*.*CONNECT")
        watcher.subscribe("$SYS.ACCOUNT.*.CONNECT")
        watcher.subscribe("$SYS.ACCOUNT.*.DISCONNECT")
        watcher.reachable_from(there)
        with Client(pair[ends[1]], "b", name="watched"):
            pass
        seen: dict[str, str] = {}

        def both() -> bool:
            watcher.fence()
            for message in watcher.kept():
                if b'"watched"' in message.payload:
                    seen[message.subject] = json.loads(message.payload)["server"]["name"]
            return len(seen) == 2

        until(both)
        assert seen == {
            "$SYS.ACCOUNT.B.CONNECT": f"s{ends[1]}",
            "$SYS.ACCOUNT.B.DISCONNECT": f"s{ends[1]}",
        }


def test_other_accounts_see_none_of_it(pair: Cluster, ends: tuple[int, int]) -> None:
    with (
        Client(pair[ends[0]]) as client,
        Client(pair[ends[1]]) as there,
        Client(pair[ends[1]], "s") as system,
    ):
        client.subscribe("$SYS.>")
        client.reachable_from(there)
        system.publish("$SYS.ACCOUNT.A.CONNECT", b"x")
        system.request(f"$SYS.REQ.SERVER.{ids(pair)[ends[1]]}.VARZ")
        assert client.payloads(there) == []
