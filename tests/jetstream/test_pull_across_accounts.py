"""Pull requests from another account, through an imported service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.js import Peer
from support.launch import Launch
from support.servers import Server

from gnats.go.text import SECOND

pytestmark = pytest.mark.timeout(60)

CONFIG = """
jetstream: {store_dir: "%s"}
accounts {
  A {
    jetstream: enabled
    users: [{user: a, password: a}]
    exports: [{service: "$JS.API.CONSUMER.MSG.NEXT.S.C", response_type: stream}, {service: "$JS.ACK.S.C.>"}]
  }
  B {
    users: [{user: b, password: b}]
    imports: [
      {service: {account: A, subject: "$JS.API.CONSUMER.MSG.NEXT.S.C"}}
      {service: {account: A, subject: "$JS.ACK.S.C.>"}}
    ]
  }
}
"""


def login(server: Server, user: str) -> Peer:
    """Connect as a user whose password is the name."""
    return Peer(server.address, user, password=user)


@pytest.fixture
def server(launch: Launch, tmp_path: Path) -> Server:
    return launch(config=CONFIG % (tmp_path / "store"))


def ask(peer: Peer, subject: str, body: object) -> dict[str, object]:
    answer: dict[str, object] = json.loads(peer.request(subject, json.dumps(body).encode()).payload)
    assert "error" not in answer, answer
    return answer


def waiting(peer: Peer) -> object:
    return json.loads(peer.request("$JS.API.CONSUMER.INFO.S.C").payload)["num_waiting"]


def test_requests_of_another_account(server: Server) -> None:
    with login(server, "a") as owner, login(server, "b") as peer:
        ask(owner, "$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": "memory"})
        config = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 30 * SECOND}
        ask(owner, "$JS.API.CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"name": "C"} | config})
        inbox = peer.inbox()
        body = json.dumps({"batch": 3, "expires": 30 * SECOND}).encode()
        peer.pub("$JS.API.CONSUMER.MSG.NEXT.S.C", body, inbox)
        peer.flush()
        for _ in range(2):
            owner.request("s", b"payload")
        first, second = peer.msgs(2)
        # The first one's pending count depends on when it is delivered.
        assert (first.ack[:3], second.ack) == ((1, 1, 1), (1, 2, 2, 0))
        assert first.payload == b"payload"
        peer.request(first.reply)
        info = json.loads(owner.request("$JS.API.CONSUMER.INFO.S.C").payload)
        assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"], info["num_waiting"]) == (1, 1, 1)
        # Without a subscription to the inbox the third message has no receiver.
        peer.unsub("1")
        assert waiting(owner) == 0
        owner.request("s", b"payload")
        assert json.loads(owner.request("$JS.API.CONSUMER.INFO.S.C").payload)["num_pending"] == 1
