"""What a service imported with `share` hears of requesters behind a leaf node."""

from __future__ import annotations

import json

import pytest
from support.caller import Caller
from support.launch import Launch
from support.leafpeer import FakeLeaf, accepting, launch_accepting
from support.reload import reload
from support.servers import until

pytestmark = pytest.mark.timeout(60)

CONFIG = """
server_name: S
cluster { name: C, listen: '127.0.0.1:-1', compression: off, no_advertise: true }
accounts {
    A { users [ { user: a, password: p } ], exports [ { service: "svc.*" } ] }
    B { users [ { user: b, password: p } ], imports [
        { service { account: A, subject: "svc.*" }, to: "ask.*", share: SHARE } ] }
}
"""


@pytest.mark.parametrize("when", ["at the start", "after a reload"])
def test_details_of_a_leaf_node(launch: Launch, when: str) -> None:
    """It is the requester, and names its server; the cluster is that of the server which it has dialled."""
    shares = CONFIG.replace("SHARE", "true")
    config = shares if when == "at the start" else CONFIG.replace("SHARE", "false")
    server = launch_accepting(launch, config=config)
    with Caller(server, "a", "p") as service, FakeLeaf("behind") as fake:
        service.subscribe("svc.*")
        leaf = fake.dial(server, user="b", **{"pass": "p"})
        if when == "after a reload":
            reload(server, accepting(config=shares))

        def details() -> dict[str, object]:
            leaf.publish(b"ask.it", to=b"answer")
            found: dict[str, object] = json.loads(service.next().headers["Nats-Request-Info"])
            return found

        until(lambda: "server" in details())
        found = details()
        found.pop("rtt", None)
        start = found.pop("start")
        assert isinstance(start, str) and start.endswith("Z")
        assert list(found.items()) == [
            *[("host", "127.0.0.1"), ("id", found["id"]), ("acc", "B"), ("user", "b"), ("name", "behind")],
            *[("ver", "2.15.1"), ("server", "behind"), ("cluster", "C"), ("kind", "Leafnode")],
        ]
