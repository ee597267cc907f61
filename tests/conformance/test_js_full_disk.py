"""A full disk: a stream whose write failed stores nothing more, everything else goes on.

A publisher gets no answer for a message that was not written, as with nats-server: it may be stored, or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.caller import Caller
from support.disks import Mount, NotPossible, tmpfs
from support.faults import create, info, stored
from support.launch import Launch
from support.servers import Server

pytestmark = pytest.mark.timeout(60)

SIZE = 8 << 20
BALLAST = 2 << 20
PAYLOAD = 100_000
FULL = r"JetStream stream '\$G > S' (is read-only|critical write error): write .*[Nn]o space left on device"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Mount]:
    try:
        disk = tmpfs(tmp_path / "disk", SIZE)
    except NotPossible as exc:
        pytest.skip(f"cannot mount a file system: {exc}")
    with disk:
        (disk.root / "ballast").write_bytes(bytes(BALLAST))
        yield disk


@pytest.fixture(params=["", "sync_interval: always"], ids=["", "always"])
def sync(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def start(launch: Launch, disk: Mount, sync: str = "") -> Server:
    return launch(config=f"jetstream {{\nstore_dir: '{disk.root}/js'\nmax_file_store: 1G\n{sync}\n}}")


def fill(server: Server, caller: Caller) -> dict[int, tuple[str, bytes]]:
    """Publish more than the disk holds; return the acknowledged (subject, payload) by sequence."""
    sent = {}
    for number in range(SIZE // PAYLOAD):
        payload = b"%d " % number + bytes(PAYLOAD)
        sent[caller.ask(f"S.{number % 3}", payload)] = f"S.{number % 3}", payload
    server.wait_log(FULL)
    acked = {}
    marker = caller.ask("OTHER.1", b"still here")
    while (message := caller.next()).subject != marker:
        assert "error" not in message.json
        acked[message.json["seq"]] = sent[message.subject]
    assert message.json["stream"] == "OTHER"
    return acked


def test_a_full_disk(launch: Launch, disk: Mount, sync: str) -> None:
    server = start(launch, disk, sync)
    with Caller(server) as caller:
        create(caller, "S", storage="file")
        create(caller, "OTHER", storage="file")
        body = {"stream_name": "OTHER", "config": {"durable_name": "D", "ack_policy": "explicit"}}
        assert "error" not in caller.request("$JS.API.CONSUMER.CREATE.OTHER.D", body).json
        acked = fill(server, caller)
        # nats-server sometimes stops earlier.
        assert len(acked) > (0 if server.kind.is_reference else (SIZE - BALLAST) // PAYLOAD // 2)

        assert caller.unanswered("S.1", b"small", "OTHER.1")
        found = stored(caller, "S")
        assert all(found[seq] == each for seq, each in acked.items())
        assert info(caller, "S")["state"]["messages"] == len(found)
        caller.ask("$JS.API.CONSUMER.MSG.NEXT.OTHER.D", b"1")
        assert caller.request(caller.next().reply, b"+ACK").payload == b""

        (disk.root / "ballast").unlink()
        assert caller.unanswered("S.1", b"small", "OTHER.1")
        create(caller, "LATER", storage="file")
        assert caller.request("LATER.1", b"x").json["seq"] == 1
        others = stored(caller, "OTHER")
    server.stop()
    server.start_again()
    with Caller(server) as caller:
        found = stored(caller, "S")
        assert all(found[seq] == each for seq, each in acked.items())
        assert stored(caller, "OTHER") == others
        assert caller.request("S.1", b"goes on").json["seq"] > max(acked)
        assert caller.request("$JS.API.CONSUMER.INFO.OTHER.D").json["ack_floor"]["stream_seq"] == 1


def test_a_trace_tells_why_a_message_was_not_stored(launch: Launch, disk: Mount) -> None:
    server = start(launch, disk)
    with Caller(server) as caller:
        create(caller, "S", storage="file")
        create(caller, "OTHER", storage="file")
        fill(server, caller)
        caller.subscribe("dest")
        caller.publish("S.1", b"x", "", b"NATS/1.0\r\nNats-Trace-Dest: dest\r\n\r\n")
        events = caller.next_on("dest").json["events"]
        assert events[1]["stream"] == "S" and events[1]["error"].endswith("no space left on device")
