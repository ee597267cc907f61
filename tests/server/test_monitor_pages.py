"""The monitoring endpoints of gnats, one by one."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from gnats import Options, Server, ServerError
from gnats.version import NATS_VERSION

from .conftest import Connect, Start
from .peer import Log, Peer

pytestmark = pytest.mark.timeout(60)


class Browser:
    """Requests pages of a server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def get(self, server: Server, path: str) -> tuple[int, str, str]:
        url = f"http://127.0.0.1:{server.monitor_port}{path}"
        async with self._session.get(url) as response:
            return response.status, response.headers["Content-Type"], await response.text()

    async def json(self, server: Server, path: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{server.monitor_port}{path}"
        async with self._session.get(url) as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == "application/json"
            assert response.headers["Access-Control-Allow-Origin"] == "*"
            found: dict[str, Any] = await response.json()
            return found


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession() as session:
        yield Browser(session)


async def test_varz(start: Start, connect: Connect, browser: Browser) -> None:
    server = await start(http_port=-1, server_name="here", max_subs=9, write_deadline=1.5)
    peer = await connect(server)
    await peer.connected()
    await peer.ask(b"SUB a 1\r\nPUB a 5\r\nhello\r\n")
    page = await browser.json(server, "/varz")
    assert page == await browser.json(server, "/varz") | {
        name: page[name] for name in ("now", "uptime", "mem", "cpu", "http_req_stats")
    }
    expected = {
        "server_id": server.id,
        "server_name": "here",
        "version": NATS_VERSION,
        "port": server.port,
        "max_subscriptions": 9,
        "write_deadline": 1_500_000_000,
        "connections": 1,
        "total_connections": 1,
        "in_msgs": 1,
        "in_bytes": 5,
        "out_msgs": 1,
        "out_client_bytes": 5,
        "http_req_stats": {"/varz": 1},
        "subscriptions": server.num_subscriptions,
    }
    assert {name: page[name] for name in expected} == expected
    assert page["mem"] > 1_000_000
    assert "auth_required" not in page


async def test_varz_without_http_is_the_same(start: Start) -> None:
    server = await start(authorization="tok")
    page = server.varz()
    assert (page["server_id"], page["connections"], page["auth_required"]) == (server.id, 0, True)


async def test_connz(start: Start, connect: Connect, browser: Browser) -> None:
    server = await start(http_port=-1)
    peer = await connect(server)
    await peer.connected(name="me", lang="py", version="1", user="bob")
    await peer.ask(b"SUB a q 1\r\nSUB b 2\r\nUNSUB 2 5\r\nPUB b 2\r\nhi\r\n")
    page = await browser.json(server, "/connz?auth=1")
    assert (page["num_connections"], page["total"], page["offset"], page["limit"]) == (1, 1, 0, 1024)
    (info,) = page["connections"]
    host, port = peer.address.split(":")
    expected = {
        "cid": peer.info["client_id"],
        "kind": "Client",
        "type": "nats",
        "ip": host,
        "port": int(port),
        "in_msgs": 1,
        "in_bytes": 2,
        "out_msgs": 1,
        "out_bytes": 2,
        "pending_bytes": 0,
        "subscriptions": 2,
        "name": "me",
        "lang": "py",
        "version": "1",
        "authorized_user": "bob",
        "name_tag": "$G",
    }
    assert {name: info[name] for name in expected} == expected
    assert info["start"] <= info["last_activity"]
    assert not info.keys() & {"stop", "reason", "stalls", "subscriptions_list", "account"}


async def test_connz_lists_subscriptions(start: Start, connect: Connect, browser: Browser) -> None:
    server = await start(http_port=-1)
    peer = await connect(server)
    await peer.connected()
    await peer.ask(b"SUB a q 1\r\nSUB b 2\r\nUNSUB 2 5\r\nPUB b 2\r\nhi\r\n")
    (listed,) = (await browser.json(server, "/connz?subs=1"))["connections"]
    (detailed,) = (await browser.json(server, "/connz?subs=DETAIL"))["connections"]
    cid = peer.info["client_id"]
    assert sorted(listed["subscriptions_list"]) == ["a", "b"]
    assert sorted(detailed["subscriptions_list_detail"], key=lambda sub: sub["sid"]) == [
        {"subject": "a", "qgroup": "q", "sid": "1", "msgs": 0, "cid": cid},
        {"subject": "b", "sid": "2", "msgs": 1, "max": 5, "cid": cid},
    ]


async def test_connz_pages_and_sorts(start: Start, connect: Connect, browser: Browser) -> None:
    server = await start(http_port=-1)
    cids = []
    for count in (2, 0, 1):
        peer = await connect(server)
        await peer.connected()
        await peer.ask(b"".join(b"SUB a %d\r\n" % sid for sid in range(count)))
        cids.append(peer.info["client_id"])

    async def listed(query: str) -> list[int]:
        page = await browser.json(server, f"/connz?{query}")
        assert (page["total"], page["num_connections"]) == (3, len(page["connections"]))
        return [info["cid"] for info in page["connections"]]

    assert await listed("") == cids
    assert await listed("offset=1") == cids[1:]
    assert await listed("limit=1&offset=1") == cids[1:2]
    assert await listed("offset=9") == []
    assert await listed(f"cid={cids[2]}") == cids[2:]
    assert await listed("cid=99999") == []
    assert await listed("sort=subs") == [cids[0], cids[2], cids[1]]
    assert await listed("sort=msgs_to&limit=0") == cids
    assert await listed("user=nobody") == []


@pytest.mark.parametrize("sort", ["cid", "msgs_to"])
async def test_a_page_may_be_larger_than_any(
    start: Start, connect: Connect, browser: Browser, sort: str
) -> None:
    server = await start(http_port=-1)
    for _ in range(2):
        await (await connect(server)).connected()
    page = await browser.json(server, f"/connz?sort={sort}&limit={2**63 - 1}&offset=1")
    assert page["num_connections"] == 1


async def test_connz_remembers_closed_connections(start: Start, connect: Connect, browser: Browser) -> None:
    log = Log()
    server = await start(log, http_port=-1)
    peer = await Peer.connect(server.port)
    await peer.connected(name="gone")
    await peer.ask(b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
    await peer.close()
    await log.seen("connection closed")
    open_one = await connect(server)
    (info,) = (await browser.json(server, "/connz?state=closed&subs=1"))["connections"]
    assert (info["subscriptions"], info["subscriptions_list"]) == (1, ["a"])
    assert (info["cid"], info["name"], info["reason"]) == (peer.info["client_id"], "gone", "Client Closed")
    assert (info["in_msgs"], info["out_msgs"]) == (1, 1)
    assert info["start"] < info["stop"]
    cids = [peer.info["client_id"], open_one.info["client_id"]]
    for state in ("any", "ALL"):
        page = await browser.json(server, f"/connz?state={state}")
        assert [info["cid"] for info in page["connections"]] == cids
    page = await browser.json(server, "/connz?state=closed&sort=stop")
    assert len(page["connections"]) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/connz?state=bad", "Error decoding state for bad"),
        (
            "/connz?subs=x",
            "Error decoding boolean for 'subs': strconv.ParseBool: parsing \"x\": invalid syntax",
        ),
        ("/connz?limit=x", "Error decoding int for 'limit': strconv.Atoi: parsing \"x\": invalid syntax"),
        ("/connz?sort=zz", "invalid sorting option: zz"),
        ("/connz?sort=stop", "sort by stop only valid on closed connections"),
        ("/connz?sort=reason&state=any", "sort by reason only valid on closed connections"),
        (
            "/subsz?subs=2",
            "Error decoding boolean for 'subs': strconv.ParseBool: parsing \"2\": invalid syntax",
        ),
    ],
)
async def test_a_bad_question_is_answered_with_its_reason(
    start: Start, browser: Browser, path: str, text: str
) -> None:
    status, _, answer = await browser.get(await start(http_port=-1), path)
    assert (status, answer) == (400, text)


async def test_subsz(start: Start, connect: Connect, browser: Browser) -> None:
    server = await start(http_port=-1)
    peer = await connect(server)
    await peer.connected()
    await peer.ask(b"SUB a 1\r\nSUB b q 2\r\n")
    page = await browser.json(server, "/subsz")
    assert (page["num_subscriptions"], page["total"], page["limit"]) == (server.num_subscriptions, 0, 1024)
    assert "subscriptions_list" not in page
    page = await browser.json(server, "/subscriptionsz?subs=1&acc=$G")
    cid = peer.info["client_id"]
    about = {"account": "$G", "account_tag": "$G"}
    assert page["total"] == len(page["subscriptions_list"]) == server.global_account.sublist.count()
    mine = [sub for sub in page["subscriptions_list"] if sub["cid"] == cid]
    assert sorted(mine, key=lambda sub: sub["sid"]) == [
        about | {"subject": "a", "sid": "1", "msgs": 0, "cid": cid},
        about | {"subject": "b", "qgroup": "q", "sid": "2", "msgs": 0, "cid": cid},
    ]
    assert (await browser.json(server, "/subsz?subs=1&acc=other"))["total"] == 0


async def test_subsz_pages_go_through_all_connections(
    start: Start, connect: Connect, browser: Browser
) -> None:
    server = await start(http_port=-1)
    for count in (3, 0, 2, 4):
        peer = await connect(server)
        await peer.connected()
        await peer.ask(b"".join(b"SUB a.%d q %d\r\n" % (sid, sid) for sid in range(count)))
    whole = await browser.json(server, "/subsz?subs=1")
    seen: list[dict[str, Any]] = []
    while page := (await browser.json(server, f"/subsz?subs=1&limit=2&offset={len(seen)}")).get(
        "subscriptions_list"
    ):
        assert len(page) <= 2
        seen += page
    assert seen == whole["subscriptions_list"]
    assert len(seen) == whole["total"] == server.num_subscriptions
    tested = await browser.json(server, "/subsz?subs=1&test=a.1&offset=1&limit=1")
    assert (tested["total"], len(tested["subscriptions_list"])) == (3, 1)
    assert (await browser.json(server, "/subsz"))["max_fanout"] >= 1


async def test_healthz_and_the_index(start: Start, browser: Browser) -> None:
    server = await start(http_port=-1)
    assert await browser.get(server, "/healthz") == (200, "application/json", '{"status":"ok"}')
    status, kind, text = await browser.get(server, "/")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert 'href="/connz"' in text


async def test_a_taken_port_is_an_error_and_clients_are_not_listened_for(start: Start) -> None:
    other = await start()
    server = Server(Options(host="127.0.0.1", port=-1, http_port=other.port))
    with pytest.raises(ServerError) as caught:
        await server.start()
    reason = f"can't listen to the monitor port: listen tcp 127.0.0.1:{other.port}: address already in use"
    assert str(caught.value) == f"Can't start monitoring: {reason}"
    assert server.monitor_port == 0
