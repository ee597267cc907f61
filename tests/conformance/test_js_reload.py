"""JetStream when the configuration is reloaded."""

from __future__ import annotations

import pytest
from support.caller import Caller
from support.launch import Launch
from support.reload import refused, reload, without_always

pytestmark = pytest.mark.timeout(60)

BASE = "jetstream { store_dir: js, max_mem: 1M, max_file: 10M }"
DYNAMIC = "jetstream { store_dir: js }"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (BASE, "jetstream { store_dir: other, max_mem: 1M, max_file: 10M }", "jetstream storage directory"),
        (BASE, "jetstream { max_mem: 1M, max_file: 10M }", "jetstream storage dir"),
        (
            BASE,
            "jetstream { store_dir: js, max_mem: 1M, max_file: 5M }",
            "decreasing jetstream max memory and store",
        ),
        (BASE, DYNAMIC, "jetstream max memory and max store"),
        (
            DYNAMIC,
            "jetstream { store_dir: js, max_mem: 1G }",
            "jetstream dynamic max memory and store",
        ),
        (
            BASE,
            "jetstream { store_dir: js, max_mem: 1M, max_file: 10M, domain: d }",
            "JetStreamDomain: old=, new=d",
        ),
        (
            BASE,
            "jetstream { store_dir: js, max_mem: 1M, max_file: 10M, strict: false }",
            "NoJetStreamStrict: old=false, new=true",
        ),
        (
            BASE,
            "jetstream { store_dir: js, max_mem: 1M, max_file: 10M, request_queue_limit: 7 }",
            "JetStreamRequestQueueLimit: old=10000, new=7",
        ),
        (
            BASE,
            "jetstream { store_dir: js, max_mem: 1M, max_file: 10M, sync: '5s' }",
            "SyncInterval: old=2m0s, new=5s",
        ),
    ],
)
def test_what_cannot_change(launch: Launch, before: str, after: str, why: str) -> None:
    server = launch(config=before)
    assert refused(server, after) == f"config reload not supported for {why}"
    with Caller(server) as caller:
        assert "error" not in caller.request("$JS.API.INFO").json


def test_more_memory_and_storage(launch: Launch) -> None:
    server = launch(config=BASE)
    with Caller(server) as caller:
        stream = {"name": "S", "max_bytes": 20_000_000}
        assert caller.request("$JS.API.STREAM.CREATE.S", stream).json["error"]["err_code"] == 10047
        said = reload(server, "jetstream { store_dir: js, max_mem: 2M, max_file: 100M }")
        assert sorted(without_always(said)) == [
            "Reloaded: JetStream max_file_store = 95.37 MB",
            "Reloaded: JetStream max_mem_store = 1.91 MB",
        ]
        assert "error" not in caller.request("$JS.API.STREAM.CREATE.S", stream).json


def test_jetstream_ends_and_begins_again(launch: Launch) -> None:
    server = launch(config=BASE)
    with Caller(server, no_responders=True) as caller:
        assert "error" not in caller.request("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}).json
        assert caller.request("s", b"hello").json["seq"] == 1
        assert "Reloaded: JetStream" in reload(server, "")
        assert caller.request("s", b"nobody").header.startswith(b"NATS/1.0 503")
    with Caller(server) as caller:
        assert "jetstream" not in caller.connection.info
        assert "Reloaded: JetStream" in reload(server, BASE)
        assert caller.request("$JS.API.STREAM.INFO.S").json["state"]["messages"] == 1
        assert caller.request("s", b"again").json["seq"] == 2


def test_accounts_get_and_lose_jetstream(launch: Launch) -> None:
    def config(a: str, b: str) -> str:
        return BASE + (
            f"\naccounts {{ A {{ {a} users: [{{user: a, password: pw}}] }},"
            f" B {{ {b} users: [{{user: b, password: pw}}] }} }}"
        )

    server = launch(config=config("jetstream: enabled,", ""))
    with Caller(server, "a") as a, Caller(server, "b") as b:
        assert "error" not in a.request("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}).json
        assert b.request("$JS.API.INFO").json["error"]["err_code"] == 10039
        reload(server, config("jetstream { max_streams: 1 },", "jetstream { max_mem: 1000 },"))
        assert a.request("$JS.API.INFO").json["limits"]["max_streams"] == 1
        assert a.request("$JS.API.STREAM.CREATE.T", {"name": "T"}).json["error"]["err_code"] == 10027
        assert b.request("$JS.API.INFO").json["limits"]["max_memory"] == 1000
        assert a.request("s", b"hello").json["seq"] == 1
        reload(server, config("", "jetstream: enabled,"))
        assert a.request("$JS.API.INFO").json["error"]["err_code"] == 10039
        reload(server, config("jetstream: enabled,", ""))
        assert a.request("$JS.API.STREAM.INFO.S").json["state"]["messages"] == 1
