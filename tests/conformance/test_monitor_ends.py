"""Every argument of every monitoring page at the ends of its range, beside the reference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import pytest
from support.caller import Caller
from support.launch import Launch
from support.servers import REFERENCE, Kind, Server

pytestmark = pytest.mark.timeout(120)

CONFIG = "server_name: srv, http: '127.0.0.1:-1', jetstream { store_dir: js, max_mem: 100M, max_file: 1G }"
NUMBERS = (
    "", "0", "-1", "1", "2147483648", "4294967296", "9007199254740993", "4611686018427387904",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615",
    "18446744073709551616", "1e400", "1.5", "+1", " 1", "0x10", "1_0", "\0", "\xff", "\u0661", "9" * 5000,
)  # fmt: skip
TEXTS = ("", "\0", "a\0b", "\xff", "*", ">", "a b", "..", "true", "0", "x" * 10_000)
ARGUMENTS: dict[str, dict[str, tuple[str, ...]]] = {
    "connz": {
        "limit": NUMBERS, "offset": NUMBERS, "cid": NUMBERS, "subs": TEXTS, "auth": TEXTS, "state": TEXTS,
        "sort": TEXTS, "user": TEXTS, "acc": TEXTS, "mqtt_client": TEXTS,
    },
    "subsz": {"limit": NUMBERS, "offset": NUMBERS, "subs": TEXTS, "test": TEXTS, "acc": TEXTS},
    "jsz": {
        "limit": NUMBERS, "offset": NUMBERS, "accounts": TEXTS, "streams": TEXTS, "consumers": TEXTS,
        "config": TEXTS, "acc": TEXTS, "leader-only": TEXTS, "raft": TEXTS,
    },
    "accountz": {"acc": TEXTS},
    "accstatz": {"unused": TEXTS},
    "healthz": {"js-enabled": TEXTS, "js-enabled-only": TEXTS, "js-server-only": TEXTS, "account": TEXTS,
                "stream": TEXTS, "consumer": TEXTS, "details": TEXTS},
    "leafz": {"subs": TEXTS, "acc": TEXTS},
    "routez": {"subs": TEXTS},
    "gatewayz": {"accs": TEXTS, "gw_name": TEXTS, "acc_name": TEXTS},
}  # fmt: skip
COMPARED = ("limit", "offset", "num_connections", "status", "error")


@pytest.fixture(scope="module")
def both(kind: Kind, launch_shared: Launch) -> Iterator[list[Server]]:
    if kind.is_reference:
        pytest.skip("compares another server with the reference")
    servers = [launch_shared(config=CONFIG, kind=REFERENCE), launch_shared(config=CONFIG)]
    with ExitStack() as stack:
        for server in servers:
            caller = stack.enter_context(Caller(server))
            caller.subscribe("a.*")
            caller.request("$JS.API.STREAM.CREATE.S", {"name": "S"})
        yield servers


def get(server: Server, path: str) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", server.monitor_port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    try:
        found = json.loads(body)
    except ValueError:
        return response.status, body
    return response.status, {name: found[name] for name in COMPARED if name in found}


@pytest.mark.parametrize("page", ARGUMENTS)
def test_arguments(both: list[Server], page: str) -> None:
    different = []
    for name, values in ARGUMENTS[page].items():
        for value in values:
            path = f"/{page}?{name}={quote(value)}"
            first, second = (get(server, path) for server in both)
            if first != second:
                different.append(f"{path!s:.100}\n  reference {first!s:.300}\n  gnats     {second!s:.300}")
    assert not different, "\n".join(different)
    assert get(both[-1], f"/{page}")[0] == get(both[0], f"/{page}")[0]


def test_together(both: list[Server]) -> None:
    """The sum of two values at their ends does not overflow."""
    for query in (
        "limit=9223372036854775807&offset=9223372036854775807",
        "limit=1&offset=9223372036854775807",
    ):
        for page in ("connz", "subsz?subs=1", "jsz?accounts=1&streams=1"):
            path = f"/{page}{'&' if '?' in page else '?'}{query}"
            assert get(both[-1], path)[0] == 200
