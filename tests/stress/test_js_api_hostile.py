"""Random requests to the JetStream API: the server may refuse or ignore them, and goes on."""

from __future__ import annotations

import random

import pytest
from support.caller import Caller
from support.launch import Launch

pytestmark = pytest.mark.timeout(120)

VERB_NAMES = """
    INFO STREAM.CREATE.S STREAM.UPDATE.S STREAM.NAMES STREAM.LIST STREAM.INFO.S STREAM.DELETE.T
    STREAM.PURGE.S STREAM.MSG.GET.S STREAM.MSG.DELETE.S STREAM.SNAPSHOT.S STREAM.RESTORE.T
    CONSUMER.CREATE.S CONSUMER.CREATE.S.C CONSUMER.CREATE.S.C.s.x CONSUMER.DURABLE.CREATE.S.C
    CONSUMER.NAMES.S CONSUMER.LIST.S CONSUMER.INFO.S.C CONSUMER.DELETE.S.C CONSUMER.PAUSE.S.C
    CONSUMER.UNPIN.S.C CONSUMER.RESET.S.D CONSUMER.MSG.NEXT.S.D DIRECT.GET.S STREAM.PEER.REMOVE.S
    META.LEADER.STEPDOWN ACCOUNT.PURGE.$G SERVER.REMOVE no.such.verb STREAM CONSUMER.CREATE
"""
VERBS = VERB_NAMES.split()
TOKEN_TEXT = rb'{ } [ ] : , "name" "S" "config" "seq" "\u0000" 1 -1 1e9 null true'
TOKENS = TOKEN_TEXT.split()
PIECES = [
    *TOKENS,
    b'"subjects":["s.>"]',
    b'"name":"S"',
    b'"stream_name":"S"',
    b'"config":{"durable_name":"C"}',
    b'"mirror":{"name":"S"}',
    b'"max_bytes":9223372036854775807',
    b'"offset":-9223372036854775808',
    b'"seq":18446744073709551615',
    b'"start_time":"9999-12-31T23:59:59Z"',
    b'"start_time":"0001-01-01T00:00:00Z"',
    b'"pause_until":"9999-12-31T23:59:59.999999999Z"',
    b"\xff\xfe",
    b"[" * 5000,
    b'{"a":' * 5000,
    b"9" * 5000,
]
HEADERS = [
    b"",
    b"NATS/1.0\r\nNats-Required-Api-Level: x\r\n\r\n",
    b"NATS/1.0\r\nNats-Request-Info: {\r\n\r\n",
    b'NATS/1.0\r\nNats-Request-Info: {"acc":"nobody"}\r\n\r\n',
    b"NATS/1.0\r\nNats-Request-Info: 5\r\n\r\n",
]


def body(rng: random.Random) -> bytes:
    pieces = rng.choices(PIECES, k=rng.randrange(6))
    text = b",".join(pieces)
    return b"{%s}" % text if rng.random() < 0.6 else text


@pytest.mark.parametrize("seed", range(4))
def test_anything_may_be_sent(launch: Launch, seed: int) -> None:
    server = launch(config="jetstream { store_dir: js }")
    rng = random.Random(seed)
    with Caller(server) as caller:
        good = {"name": "S", "subjects": ["s.>"], "allow_direct": True}
        assert "error" not in caller.request("$JS.API.STREAM.CREATE.S", good).json
        consumer = {"durable_name": "D", "ack_policy": "explicit"}
        request = {"stream_name": "S", "config": consumer}
        assert "error" not in caller.request("$JS.API.CONSUMER.CREATE.S.D", request).json
        for round_ in range(40):
            for _ in range(25):
                caller.ask(f"$JS.API.{rng.choice(VERBS)}", body(rng), rng.choice(HEADERS))
            assert caller.request("$JS.API.INFO").json["streams"] >= 1
            assert caller.request(f"s.{round_}", b"x").json["stream"] == "S"
        assert caller.request("$JS.API.STREAM.INFO.S").json["config"]["name"] == "S"
    assert "JetStream API request failed" not in server.log
