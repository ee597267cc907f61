"""Every monitoring page beside the reference's: the same keys in the same order, with the same values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from support.launch import Launch
from support.monitor import monitor, wait_connections
from support.servers import REFERENCE, TIMEOUT, Server
from support.wire import Connection

from .differences import MONITOR_EXTRA, MONITOR_MISSING, MONITOR_OTHER

pytestmark = pytest.mark.timeout(60)

CONNECT = {
    "verbose": False,
    "pedantic": False,
    "headers": True,
    "lang": "py<&>",
    "version": "1.2",
    "name": "n\u00e4me",
}

# Members that differ from run to run or request to request, or count the system account's subscriptions.
VOLATILE_NAMES = """
    server_id server_name now start stop last_activity uptime idle rtt port cid mem cpu config_load_time
    config_digest http_port http_req_stats update_time num_inserts num_removes num_subscriptions
    pending_bytes
"""
VOLATILE = frozenset((*VOLATILE_NAMES.split(), *MONITOR_OTHER))
INTERNAL = ("varz", "accountz", "subsz")
"""Pages whose `subscriptions` and `total` count the server's own."""

PAGES = """
    varz routez routez?subs=1 routez?subs=detail gatewayz gatewayz?accs=1 gatewayz?gw_name=A
    gatewayz?acc_name=A leafz leafz?subs=1 leafz?acc=x jsz jsz?streams=1&consumers=1&config=1
    jsz?acc=x&offset=1&limit=2 healthz healthz?js-enabled=1 healthz?js-enabled-only=1
    healthz?js-server-only=1 healthz?js-meta-only=1 healthz?details=1 healthz?account=x ipqueuesz
    connz connz?auth=1 connz?subs=1 connz?subs=detail&auth=true connz?limit=1 connz?limit=1&offset=1
    connz?offset=9 connz?offset=-1&limit=-1 connz?state=closed connz?state=closed&subs=1
    connz?state=closed&subs=detail&auth=1 connz?state=closed&sort=stop
    connz?state=closed&sort=reason connz?state=any connz?state=ALL&sort=subs connz?cid={cid}
    connz?cid={cid}&state=closed connz?cid={closed} connz?cid={closed}&state=closed
    connz?cid={closed}&state=any&limit=7 connz?cid=99999 connz?user=bob connz?user=nobody
    connz?acc=$G connz?acc=nope connz?mqtt_client=x connz?sort=cid
    connz?sort=start connz?sort=subs connz?sort=msgs_to
    connz?sort=msgs_from connz?sort=bytes_to connz?sort=bytes_from subsz subsz?acc=nope
    subsz?acc=nope&subs=1 subsz?acc=$G&subs=1&test=a subsz?acc=$G&subs=1&test=a.b
    subsz?subs=1&test=nobody subsz?subs=1&test=a&offset=5 subscriptionsz?offset=3&limit=5 accountz
    accountz?acc=$G accountz?acc=$SYS accstatz accstatz?unused=0
"""

ERRORS = """
    connz?auth=x connz?subs=x connz?offset=1x connz?limit=0x1 connz?limit=99999999999999999999
    connz?limit=1_0 connz?limit=+ connz?cid=-1 connz?cid=+1 connz?cid=99999999999999999999
    connz?state=bad connz?sort=bad connz?sort=stop connz?sort=reason&state=any connz?auth=TrUe
    connz?auth=%22%0A routez?subs=2 gatewayz?accs=x leafz?subs=detail subsz?subs=detail
    subsz?test=a.* subsz?test=a..b subsz?limit=1.5 subsz?offset=x accountz?acc=nope
    accstatz?unused=x jsz?leader-only=1 jsz?accounts=x jsz?limit=x healthz?details=x
    healthz?js-enabled=x healthz?stream=s healthz?account=a&consumer=c healthz?stream=s&details=1
    ipqueuesz?all=x raftz nosuch varz/ nats/varz
"""


@dataclass
class Busy:
    """A server with two open and two closed connections; `cid` and `closed` are ids of one of each."""

    server: Server
    cid: int
    closed: int

    def page(self, path: str) -> Any:
        return monitor(self.server, "/" + path.format(cid=self.cid, closed=self.closed))


@pytest.fixture(scope="module")
def busy(launch_shared: Launch) -> Iterator[tuple[Busy, Busy]]:
    """The server under test and the reference after the same session."""
    with ExitStack() as stack:
        yield (
            converse(launch_shared("-m", "-1"), stack),
            converse(launch_shared("-m", "-1", kind=REFERENCE), stack),
        )


def converse(server: Server, stack: ExitStack) -> Busy:
    with Connection(server.address) as gone, Connection(server.address) as bad:
        closed = gone.info["client_id"]
        gone.send(connect(name="gone") + b"SUB old 1\r\nSUB old.* q 22\r\nUNSUB 1 5\r\nPUB old 2\r\nhi\r\n")
        gone.fence()
        bad.send(connect(name="bad") + b"NONSENSE\r\n")
        bad.rest()
        wait_connections(server, 1)  # so that the closed connections have an order
    wait_connections(server, 0)
    first, second = (stack.enter_context(Connection(server.address)) for _ in range(2))
    first.send(connect(user="bob") + b"SUB a 1\r\nSUB a.* q 2\r\nSUB b 3\r\nUNSUB 3 9\r\n")
    first.fence()
    second.send(
        connect() + b"SUB c 1\r\nPUB a 5\r\nhello\r\nPUB a.b 0\r\n\r\nPUB b 3\r\nabc\r\nPUB none 1\r\nx\r\n"
    )
    second.fence()
    first.fence()
    return Busy(server, first.info["client_id"], closed)


def connect(**more: object) -> bytes:
    return b"CONNECT " + json.dumps(CONNECT | more).encode() + b"\r\n"


def comparable(page: Any, name: str, key: str = "") -> Any:
    """Replace volatile members by their types; make objects lists of pairs, so that order counts."""
    if key in VOLATILE or (name in INTERNAL and key in ("subscriptions", "total")):
        return type(page).__name__.replace("float", "int")
    if isinstance(page, dict):
        kept = {k: v for k, v in page.items() if k not in MONITOR_MISSING and k not in MONITOR_EXTRA}
        return [(k, comparable(v, name, k)) for k, v in kept.items()]
    if isinstance(page, list):
        items = [comparable(item, name) for item in page if not of_system(item)]
        # The servers list these two in any order.
        return sorted(items, key=str) if key.startswith("subscriptions_list") or key == "accounts" else items
    return page


def of_system(item: Any) -> bool:
    """Return True for a service of the system account; other tests compare these."""
    return isinstance(item, dict) and str(item.get("subject", "")).startswith("$SYS")


@pytest.mark.parametrize("path", PAGES.split())
def test_page(busy: tuple[Busy, Busy], path: str) -> None:
    tested, expected = busy
    name = path.split("?")[0]
    ours, theirs = (comparable(side.page(path), name) for side in (tested, expected))
    if path.startswith("accountz?acc"):  # the system account's imports and exports are left out
        ours, theirs = (
            re.sub(r"\('(imports|exports)', \[\]\)(, )?", "", str(side)) for side in (ours, theirs)
        )
    assert ours == theirs, difference(ours, theirs)


def difference(ours: Any, theirs: Any) -> str:
    """Return the innermost parts of two comparable pages that differ; pytest cuts long values off."""
    if isinstance(ours, list | tuple) and isinstance(theirs, type(ours)) and len(ours) == len(theirs):
        return next((difference(*pair) for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]), "")
    return f"{ours} instead of {theirs}"


@pytest.mark.parametrize("path", ERRORS.split())
def test_what_cannot_be_answered(busy: tuple[Busy, Busy], path: str) -> None:
    ours, theirs = (refusal(side.server, path) for side in busy)
    assert ours == theirs


def refusal(server: Server, path: str) -> tuple[int, dict[str, str | None], str]:
    with pytest.raises(HTTPError) as caught:
        monitor(server, "/" + path)
    with caught.value as error:
        headers = ("Content-Type", "Access-Control-Allow-Origin", "X-Content-Type-Options", "Content-Length")
        return error.code, {name: error.headers[name] for name in headers}, error.read().decode()


@pytest.mark.parametrize(
    "path", ["varz", "connz?subs=detail", "subsz", "healthz", "accstatz", "ipqueuesz?all=1", "jsz"]
)
def test_layout_of_the_text(busy: tuple[Busy, Busy], path: str) -> None:
    """The texts have the reference's indentation, and end with a brace."""
    ours, theirs = (raw(side.server, path) for side in busy)
    assert ours[0] == theirs[0]
    layout = re.compile(r'^( *)(?:"[^"]*"(: ))?(?:[\[{]|.*?(?:[\]}]|$))', re.MULTILINE)
    indents = [{match[1] for match in layout.finditer(text)} for _, text in (ours, theirs)]
    assert indents[0] == indents[1]
    assert ours[1].endswith("}")


def test_html_is_escaped(busy: tuple[Busy, Busy]) -> None:
    for side in busy:
        _, text = raw(side.server, "connz")
        assert '"lang": "py\\u003c\\u0026\\u003e"' in text
        assert '"name": "n\u00e4me"' in text


def raw(server: Server, path: str, method: str = "GET") -> tuple[dict[str, str | None], str]:
    request = Request(f"http://127.0.0.1:{server.monitor_port}/{path}", method=method)
    with urlopen(request, timeout=TIMEOUT) as response:
        headers = {name: response.headers[name] for name in ("Content-Type", "Access-Control-Allow-Origin")}
        return headers, response.read().decode()


@pytest.mark.parametrize("path", ["", "varz", "healthz", "stacksz", "debug/vars"])
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
def test_methods_and_types(busy: tuple[Busy, Busy], path: str, method: str) -> None:
    ours, theirs = (raw(side.server, path, method) for side in busy)
    assert ours[0] == theirs[0]
    assert bool(ours[1]) == bool(theirs[1]) == (method != "HEAD")


def test_requests_are_counted(launch: Launch) -> None:
    def counts(server: Server) -> Any:
        for path in ("", "varz", "connz", "subsz", "subscriptionsz", "healthz", "jsz", "routez", "accstatz"):
            raw(server, path)
        for path in ("ipqueuesz", "stacksz", "debug/vars"):
            raw(server, path)
        for path in ("connz?auth=x", "subsz?subs=x", "nosuch"):
            refusal(server, path)
        return list(monitor(server, "/varz")["http_req_stats"].items())

    assert counts(launch("-m", "-1")) == counts(launch("-m", "-1", kind=REFERENCE))
