"""Atomic and fast batches: the limits of the configuration, and advisories of abandoned batches."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from support.caller import INBOX, Caller, Message
from support.launch import Launch
from support.reload import reload, without_always
from support.servers import REFERENCE, Kind, Server

pytestmark = pytest.mark.timeout(60)

Json = dict[str, Any]
LIMITED = "jetstream {{ store_dir: js, limits {{ batch {{ {} }} }} }}"
ABANDONED = "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED"
UNKNOWN, TOO_MANY_ATOMIC, TOO_MANY_FAST = 10208, 10210, 10211
INCOMPLETE, TOO_LARGE, ATOMIC_OFF, FAST_OFF = 10176, 10199, 10174, 10205


class Publisher(Caller):
    """A client that publishes atomic and fast batches."""

    def add(self, name: str, **config: object) -> None:
        both = {"allow_atomic": True, "allow_batched": True, "storage": "memory"}
        body = {"name": name, "subjects": [f"{name}.>"]} | both | config
        assert "error" not in self.request(f"$JS.API.STREAM.CREATE.{name}", body).json

    def atomic(self, stream: str, batch: str, seq: int, *more: str) -> Message:
        lines = [f"Nats-Batch-Id: {batch}", f"Nats-Batch-Sequence: {seq}", *more]
        header = "NATS/1.0\r\n" + "".join(line + "\r\n" for line in lines) + "\r\n"
        return self.request(f"{stream}.a", b"x", header.encode())

    def atomic_or_told(self, batch: str, seq: int) -> Message:
        """Publish a message of an atomic batch; return the next message, which may be an advisory."""
        header = f"NATS/1.0\r\nNats-Batch-Id: {batch}\r\nNats-Batch-Sequence: {seq}\r\n\r\n"
        self.ask("S.a", b"x", header.encode())
        return self.next()

    def fast(self, stream: str, batch: str, seq: int, op: int, flow: int = 10, gap: str = "fail") -> Message:
        """Publish a message of a fast batch; return its first reply."""
        self._requests += 1
        reply = f"{INBOX}.fast.{self._requests}.{batch}.{flow}.{gap}.{seq}.{op}.$FI"
        self.publish(f"{stream}.a", b"x", reply)
        return self.next_on(reply)


def publisher(server: Server, user: str = "") -> Publisher:
    made = Publisher(server, user)
    made.subscribe(f"{INBOX}.fast.>")
    return made


def code(reply: Message) -> int:
    """Return the error code of a reply, 0 where it is no error."""
    number: int = reply.json.get("error", {}).get("err_code", 0) if reply.payload else 0
    return number


def test_how_many_may_be_open(launch: Launch) -> None:
    server = launch(config=LIMITED.format("max_inflight_per_stream: 2, max_inflight_total: 3"))
    with publisher(server) as client:
        client.add("S")
        client.add("T")
        for kind, too_many in (("atomic", TOO_MANY_ATOMIC), ("fast", TOO_MANY_FAST)):

            def begin(stream: str, batch: str, kind: str = kind) -> int:
                if kind == "atomic":
                    return code(client.atomic(stream, batch, 1))
                return code(client.fast(stream, batch, 1, 0))

            assert [begin("S", batch) for batch in "abc"] == [0, 0, too_many]
            assert [begin("T", batch) for batch in "ab"] == [0, too_many]
        assert (
            code(client.fast("S", "a", 2, 3)) == code(client.atomic("S", "a", 2, "Nats-Batch-Commit: 1")) == 0
        )
        assert code(client.fast("T", "b", 1, 0)) == code(client.atomic("T", "b", 1)) == 0
        client.request("$JS.API.STREAM.DELETE.T")
        assert code(client.fast("S", "a", 1, 0)) == code(client.atomic("S", "a", 1)) == 0


def test_how_large_they_may_be(launch: Launch) -> None:
    server = launch(config=LIMITED.format("max_msgs: 3"))
    with publisher(server) as client:
        client.add("S")
        assert [code(client.atomic("S", "a", seq)) for seq in (1, 2, 3, 4, 5)] == [
            0,
            0,
            0,
            TOO_LARGE,
            TOO_LARGE,
        ]
        assert [code(client.atomic("S", "b", seq)) for seq in (1, 2, 3)] == [0, 0, 0]
        assert client.atomic("S", "b", 4, "Nats-Batch-Commit: eob").json["count"] == 3
        assert "batch is too large: 3" in client.atomic("S", "c", 9).json["error"]["description"]
        assert code(client.fast("S", "a", 1, 0, flow=1)) == 0
        assert client.next().json == {"type": "ack", "seq": 1, "msgs": 1}
        for seq in range(2, 9):
            assert client.fast("S", "a", seq, 1).json == {"type": "ack", "seq": seq, "msgs": 1}


def test_a_silent_batch_is_forgotten(launch: Launch) -> None:
    server = launch(config=LIMITED.format("timeout: 400ms"))
    with publisher(server) as client:
        client.subscribe(f"{ABANDONED}.>")
        client.add("S")
        assert code(client.fast("S", "f", 1, 0)) == 0
        for batch in ("b", "a"):
            assert code(client.atomic("S", batch, 1)) == 0
            told = client.next_on(f"{ABANDONED}.S").json
            assert (told["batch"], told["reason"]) == (batch, "timeout")
        assert code(client.fast("S", "f", 2, 4)) == UNKNOWN  # silent while both atomic batches timed out
        assert code(client.atomic("S", "a", 2)) == INCOMPLETE
        assert code(client.fast("S", "f", 1, 0)) == 0


def test_one_that_is_heard_of_stays(launch: Launch) -> None:
    """Batches that receive messages outlive the timeout of a silent one."""
    server = launch(config=LIMITED.format("timeout: 3s, max_msgs: 1000000"))
    with publisher(server) as client:
        client.subscribe(f"{ABANDONED}.>")
        client.add("S")
        client.fast("S", "f", 1, 0)
        client.atomic("S", "silent", 1)
        seq = 0
        while ABANDONED not in (message := client.atomic_or_told("a", seq := seq + 1)).subject:
            assert code(message) == 0
            assert client.fast("S", "f", 1, 4).json == {"type": "ack", "seq": 0, "msgs": 10}
        assert message.json["batch"] == "silent"
        assert code(client.fast("S", "f", 2, 3)) == 0


ACCOUNTS = """
server_name: srv
jetstream {{ store_dir: js, domain: {domain}, limits {{ batch {{ max_msgs: 2, timeout: 300ms }} }} }}
accounts {{
  A {{ jetstream: enabled, users: [{{user: a, password: pw}}] }}
  SYS {{ users: [{{user: sys, password: pw}}] }}
}}
system_account: SYS
"""


@pytest.mark.parametrize("domain", ["hub", '""'])
def test_advisories(kind: Kind, launch: Launch, domain: str) -> None:
    """The account and the system account receive the same advisories as from the reference."""
    kinds = [kind] if kind.is_reference else [kind, REFERENCE]
    told = [abandon(launch(config=ACCOUNTS.format(domain=domain), kind=each)) for each in kinds]
    assert len(told[0]) == 8
    assert all(each == told[0] for each in told[1:])


def abandon(server: Server) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Abandon a batch in each way; return the advisories that the account and the system account receive."""
    with publisher(server, "a") as client, Caller(server, "sys") as system:
        listeners: list[Caller] = [client, system]
        for listener in listeners:
            listener.subscribe(f"{ABANDONED}.>")
        client.add("S")
        told = []

        def hear() -> None:
            for listener in listeners:
                message = listener.next_on(f"{ABANDONED}.S")
                event = message.json
                for name in ("id", "timestamp"):
                    event[name] = len(event[name]) > 20
                told.append((message.subject, list(event.items())))

        client.atomic("S", "gap", 1)
        client.atomic("S", "gap", 3)
        hear()
        client.atomic("S", 'level"<', 1, "Nats-Required-Api-Level: 100")
        hear()
        for seq in (1, 2, 3):
            client.atomic("S", "large", seq)
        hear()
        client.atomic("S", "late", 1)
        hear()
        # These cause no advisory.
        client.atomic("S", "unknown", 2)
        client.atomic("S", "word", 1, "Nats-Batch-Commit: 2")
        client.atomic("S", "sequence", 1, "Nats-Batch-Commit: 1", "Nats-Expected-Last-Sequence: 9")
        client.fast("S", "gap", 1, 0)
        client.fast("S", "gap", 3, 1)
        client.request("$JS.API.STREAM.DELETE.S")
        for listener in listeners:
            listener.fence()
            left = [message.subject for message in listener._waiting]
            assert not [subject for subject in left if subject.startswith(ABANDONED)]
        return told


def test_an_update_may_end_them(launch: Launch) -> None:
    with publisher(launch(config="jetstream { store_dir: js }")) as client:
        client.subscribe(f"{ABANDONED}.>")
        body = {"name": "S", "subjects": ["S.>"], "storage": "memory"}
        on = {"allow_atomic": True, "allow_batched": True}
        client.add("S")

        def update(**config: object) -> None:
            assert "error" not in client.request("$JS.API.STREAM.UPDATE.S", body | config).json

        for batch in "ab":
            assert code(client.fast("S", batch, 1, 0)) == code(client.atomic("S", batch, 1)) == 0
        update(**on, description="others stay")
        assert code(client.fast("S", "a", 2, 3)) == code(client.atomic("S", "a", 2)) == 0
        update(allow_atomic=True)
        assert code(client.fast("S", "b", 2, 4)) == FAST_OFF
        assert code(client.atomic("S", "b", 2)) == 0
        update(allow_batched=True)
        assert code(client.fast("S", "b", 2, 4)) == UNKNOWN
        assert code(client.atomic("S", "b", 3)) == ATOMIC_OFF
        update(**on)
        assert code(client.fast("S", "b", 2, 4)) == UNKNOWN
        assert code(client.atomic("S", "b", 3)) == INCOMPLETE
        client.fence()
        assert not [message for message in client._waiting if message.subject.startswith(ABANDONED)]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: how.name)
def test_a_restart_ends_them(kind: Kind, tmp_path: Path, how: signal.Signals) -> None:
    """After a restart a fast batch's messages are there, an uncommitted atomic batch's are not."""
    config = f'jetstream {{ store_dir: "{tmp_path}/js" }}'
    server = Server(kind, tmp_path, config=config)
    with publisher(server) as client:
        client.add("S", storage="file")
        client.atomic("S", "a", 1)
        client.fast("S", "f", 1, 0, flow=1)
        assert client.next().json["seq"] == 1
    server.process.send_signal(how)
    server.process.wait(30)
    server = Server(kind, tmp_path, config=config)
    with publisher(server) as client:
        state = client.request("$JS.API.STREAM.INFO.S").json["state"]
        assert (state["messages"], state["last_seq"]) == (1, 1)
        assert code(client.atomic("S", "a", 2)) == INCOMPLETE
        assert code(client.fast("S", "f", 2, 1)) == UNKNOWN
    server.stop()


def test_other_limits_at_a_reload(launch: Launch) -> None:
    server = launch(config=LIMITED.format("max_msgs: 3, max_inflight_per_stream: 1, timeout: 1h"))
    with publisher(server) as client:
        client.subscribe(f"{ABANDONED}.>")
        client.add("S")
        assert [code(client.fast("S", batch, 1, 0)) for batch in "ab"] == [0, TOO_MANY_FAST]
        assert [code(client.atomic("S", "a", seq)) for seq in (1, 2)] == [0, 0]
        said = reload(server, LIMITED.format("max_msgs: 2, max_inflight_per_stream: 2, timeout: 1h"))
        assert without_always(said) == ["Reloaded: JetStream limits"]
        assert code(client.atomic("S", "a", 3)) == TOO_LARGE
        client.next_on(f"{ABANDONED}.S")
        assert [code(client.fast("S", batch, 1, 0)) for batch in "cd"] == [0, TOO_MANY_FAST]
        assert [code(client.atomic("S", batch, 1)) for batch in "abc"] == [0, 0, TOO_MANY_ATOMIC]
        assert without_always(reload(server, "")) == ["Reloaded: JetStream", "Reloaded: JetStream limits"]
        said = reload(server, LIMITED.format("timeout: 300ms"))
        assert without_always(said) == ["Reloaded: JetStream", "Reloaded: JetStream limits"]
    with publisher(server) as client:
        client.subscribe(f"{ABANDONED}.>")
        client.add("T")
        assert code(client.atomic("T", "a", 1)) == 0
        assert client.next_on(f"{ABANDONED}.T").json["reason"] == "timeout"


IMPORTS = """
jetstream { store_dir: js }
accounts {
  A {
    jetstream: enabled
    users: [{user: a, password: pw}]
    exports: [{service: "S.a", response: stream}, {service: "echo"}]
  }
  B {
    users: [{user: b, password: pw}]
    imports: [{service: {account: A, subject: "S.a"}}, {service: {account: A, subject: "echo"}}]
    exports: [{service: "S.a", response: stream}, {service: "echo"}]
  }
  C {
    users: [{user: c, password: pw}]
    imports: [{service: {account: B, subject: "S.a"}}, {service: {account: B, subject: "echo"}}]
  }
}
"""


@pytest.mark.parametrize("user", ["a", "b", "c"])
def test_through_imports(kind: Kind, launch: Launch, user: str) -> None:
    """A service import replaces the reply subject; the stream finds the publisher's own beside it."""
    told = []
    for each in [kind] if kind.is_reference else [kind, REFERENCE]:
        server = launch(config=IMPORTS, kind=each)
        with publisher(server, "a") as owner, publisher(server, user) as client:
            owner.add("S")
            replies = [
                client.fast("S", "f", 1, 0, flow=2),
                client.fast("S", "f", 2, 1, flow=2),
                client.fast("S", "f", 4, 4, flow=2),
                client.fast("S", 'q"<', 1, 2),
                client.fast("S", "x", 1, 9),
                client.request("S.a", b"plain"),
            ]
            told.append([(reply.subject, reply.payload) for reply in replies])
            owner.subscribe("echo")
            client.publish("echo", b"", f'{INBOX}.<"é.10.ok.1.0.$FI')
            header = owner.next_on("echo").header
            told[-1].append((header.partition(b'"reply":')[2], b'"reply":' in header))
            stored = owner.request("$JS.API.STREAM.INFO.S").json["state"]
            told[-1].append(stored["messages"])
    assert all(each == told[0] for each in told[1:])
