"""JetStream in operator mode: the limits of account JWTs, beside the reference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from support.jetstream import comparable
from support.launch import Launch
from support.servers import REFERENCE, Kind, Server
from support.trust import Account, Trust, request
from support.wire import Connection

from gnats.jwt.account import JetStreamLimits

pytestmark = pytest.mark.timeout(60)

MORE = "server_name: srv\njetstream { store_dir: js, max_mem: 10M, max_file: 100M }"
STREAM = {"name": "S", "subjects": ["s"]}


class Both:
    """A user's connections to the reference and to gnats."""

    def __init__(self, connections: list[Connection]) -> None:
        self._connections = connections

    def api(self, verb: str, body: object = None) -> Any:
        """Send a request to both; return the answer, which must be the same."""
        payload = b"" if body is None else json.dumps(body).encode()
        answers = [json.loads(request(each, f"$JS.API.{verb}", payload)) for each in self._connections]
        theirs, ours = (comparable(answer) for answer in answers)
        assert ours == theirs, verb
        return answers[1]


@contextmanager
def connected(account: Account, servers: list[Server]) -> Iterator[Both]:
    with ExitStack() as stack:
        user = account.user()
        yield Both([stack.enter_context(user.connect(server)) for server in servers])


def limited(account: Account, **limits: Any) -> None:
    for name, value in limits.items():
        setattr(account.nats.limits, name, value)


def create(both: Both, **changes: Any) -> int:
    """Create a stream; return the error code, 0 for none."""
    config = STREAM | changes
    answer = both.api(f"STREAM.CREATE.{config['name']}", config)
    return int(answer.get("error", {}).get("err_code", 0))


def test_limits_of_a_jwt(launch: Launch, kind: Kind) -> None:
    trust = Trust()
    account, without = trust.account(), trust.account()
    limited(account, mem_storage=1_000_000, disk_storage=5_000_000, streams=2, consumer=1)
    limited(account, max_ack_pending=100, mem_max_stream_bytes=500_000, disk_max_stream_bytes=-1)
    config = trust.config(account, without, more=MORE)
    servers = [launch(config=config, kind=each) for each in (REFERENCE, kind)]
    with connected(account, servers) as both, connected(without, servers) as outside:
        assert outside.api("INFO")["error"]["err_code"] == 10039
        both.api("INFO")
        assert create(both) == 0
        assert create(both, name="M", subjects=["m"], storage="memory", max_bytes=600_000)
        assert create(both, name="M", subjects=["m"], storage="memory", max_bytes=400_000) == 0
        assert create(both, name="T", subjects=["t"]) == 10027
        consumer = {"stream_name": "S", "config": {"durable_name": "D", "ack_policy": "explicit"}}
        assert both.api("CONSUMER.CREATE.S.D", consumer)["config"]["max_ack_pending"] == 100
        consumer["config"] = {"durable_name": "E", "ack_policy": "explicit"}
        assert both.api("CONSUMER.CREATE.S.E", consumer)["error"]["err_code"] == 10026
        both.api("INFO")

        limited(account, streams=3, disk_storage=6_000_000)
        for server in servers:
            trust.push(server, account)
        assert both.api("INFO")["limits"]["max_streams"] == 3
        assert create(both, name="T", subjects=["t"]) == 0

        limited(account, mem_storage=0, disk_storage=0)
        limited(without, mem_storage=-1, disk_storage=-1, streams=-1, consumer=-1)
        for server in servers:
            trust.push(server, account)
            trust.push(server, without)
        assert both.api("INFO")["error"]["err_code"] == 10039
        assert outside.api("INFO")["limits"]["max_streams"] == -1
        assert create(outside) == 0


def test_tiers(launch: Launch, kind: Kind) -> None:
    trust = Trust()
    account = trust.account()
    account.nats.limits.tiered_limits = {
        "R1": JetStreamLimits(mem_storage=100_000, disk_storage=1_000_000, streams=1, consumer=5),
        "R3": JetStreamLimits(disk_storage=2_000_000, streams=2, consumer=5),
    }
    config = trust.config(account, more=MORE)
    servers = [launch(config=config, kind=each) for each in (REFERENCE, kind)]
    with connected(account, servers) as both:
        assert set(both.api("INFO")["tiers"]) == {"R1", "R3"}
        assert create(both, max_bytes=2_000_000)
        assert create(both, max_bytes=500_000) == 0
        assert create(both, name="T", subjects=["t"]) == 10027
        assert create(both, name="T", subjects=["t"], num_replicas=3)
        assert both.api("INFO")["tiers"]["R1"]["reserved_storage"] == 500_000
