"""JetStream on a hub and on a spoke of every two kinds: each in its own domain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.launch import launcher
from support.servers import REFERENCE, Kind, reserve_port, until

from .conftest import require_all
from .members import Client, named
from .test_leafnodes import NEWER, leafs

pytestmark = pytest.mark.timeout(120)

ACCOUNTS = "accounts { A { jetstream: enabled, users [ { user: a, password: p } ] } }"


def domain(client: Client, api: str) -> Any:
    """Return the domain of the JetStream that answers a request for the account's limits."""
    return client.request(f"{api}.INFO").json.get("domain")


@pytest.mark.parametrize("kinds", NEWER, ids=named)
def test_each_server_answers_for_its_domain(tmp_path: Path, kinds: tuple[Kind, Kind]) -> None:
    require_all(kinds)
    with launcher(REFERENCE, tmp_path) as launch:
        port = reserve_port(launch)
        url = json.dumps(f"nats-leaf://a:p@127.0.0.1:{port}")
        blocks = (
            f"listen: '127.0.0.1:{port}'",
            f"reconnect: '0.2s'\nremotes [ {{ url: {url}, account: A }} ]",
        )
        servers = []
        for name, block, kind in zip(("hub", "spoke"), blocks, kinds, strict=True):
            store = f'jetstream {{ domain: {name}, store_dir: "{tmp_path}/{name}" }}'
            config = f"server_name: {name}\nleafnodes {{ {block}\n}}\n{store}\n{ACCOUNTS}"
            servers.append(launch("-m", "-1", "-D", config=config, kind=kind))
        for server in servers:
            until(lambda server=server: len(leafs(server)) == 1)  # type: ignore[misc]
        with Client(servers[0]) as hub, Client(servers[1]) as spoke:
            hub.reachable_from(spoke), spoke.reachable_from(hub)
            assert domain(hub, "$JS.API") == "hub"
            assert domain(spoke, "$JS.API") == "spoke"
            for client in hub, spoke:
                assert domain(client, "$JS.hub.API") == "hub"
                assert domain(client, "$JS.spoke.API") == "spoke"
            made = spoke.request("$JS.hub.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]}).json
            assert made["config"]["name"] == "S"
            assert spoke.request("s.1", b"x").json == {"stream": "S", "domain": "hub", "seq": 1}
            assert spoke.request("$JS.API.STREAM.NAMES").json["streams"] in (None, [])
            assert hub.request("$JS.API.STREAM.NAMES").json["streams"] == ["S"]
