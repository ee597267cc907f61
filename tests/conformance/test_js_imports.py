"""Streams, mirrors and sources of messages from another account, while reloads change the imports."""

from __future__ import annotations

import pytest
from support.caller import Caller
from support.launch import Launch
from support.reload import reload
from support.servers import until

pytestmark = pytest.mark.timeout(120)

IMPORTS = """
imports [{stream: {account: B, subject: "b.>"}}
         {service: {account: B, subject: "$JS.API.>"}, to: "FROM_B.API.>"}
         {service: {account: B, subject: "$JS.FC.>"}}
         {stream: {account: B, subject: "deliver.A.>"}}]
"""
EXPORTS = """
exports [{stream: "b.>"}, {stream: "deliver.A.>"}
         {service: "$JS.API.>", response_type: stream}, {service: "$JS.FC.>"}]
"""


def config(*, shared: bool) -> str:
    """Describe accounts A and B. shared: A imports b.>, B's JetStream API and its deliver subjects."""
    imports, exports = (IMPORTS, EXPORTS) if shared else ("", "")
    return f"""
server_name: srv
jetstream {{ store_dir: js }}
accounts {{
  A {{ jetstream: enabled, users: [{{user: a, password: pw}}], {imports} }}
  B {{ jetstream: enabled, users: [{{user: b, password: pw}}], {exports} }}
}}
"""


def create(caller: Caller, name: str, **settings: object) -> None:
    answer = caller.request(f"$JS.API.STREAM.CREATE.{name}", {"name": name} | settings).json
    assert "error" not in answer, answer


def messages(caller: Caller, name: str) -> int:
    return int(caller.request(f"$JS.API.STREAM.INFO.{name}").json["state"]["messages"])


def test_a_stream_follows_the_imports_of_its_account(launch: Launch) -> None:
    server = launch(config=config(shared=False))
    with Caller(server, "a", inbox="_INBOX.a") as a, Caller(server, "b", inbox="_INBOX.b") as b:
        create(a, "S", subjects=["b.>"])
        for stored in (1, 2):
            reload(server, config(shared=True))
            assert messages(a, "S") == stored - 1
            b.publish("b.1", b"x")
            b.fence()
            until(lambda stored=stored: messages(a, "S") == stored)
            reload(server, config(shared=False))
            assert messages(a, "S") == stored
            b.publish("b.2", b"not for A")
            b.fence()
            assert messages(a, "S") == stored


def test_a_mirror_and_a_source_end_with_their_imports(launch: Launch) -> None:
    server = launch(config=config(shared=True))
    with Caller(server, "a", inbox="_INBOX.a") as a, Caller(server, "b", inbox="_INBOX.b") as b:
        create(b, "O", subjects=["o"])
        origin = {"name": "O", "external": {"api": "FROM_B.API", "deliver": "deliver.A"}}
        create(a, "MIRROR", mirror=origin)
        create(a, "SOURCES", sources=[origin])
        assert b.request("o", b"1").json["seq"] == 1
        for name in ("MIRROR", "SOURCES"):
            until(lambda name=name: messages(a, name) == 1)
        reload(server, config(shared=False))
        for _ in range(100):
            b.request("o", b"not for A")
        assert [messages(a, name) for name in ("MIRROR", "SOURCES")] == [1, 1]
        reload(server, config(shared=True))
        for name in ("MIRROR", "SOURCES"):
            until(lambda name=name: messages(a, name) == 101, 60)
