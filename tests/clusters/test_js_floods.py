"""A flood of requests of one account to a JetStream cluster does not keep the other accounts waiting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.clusters import Cluster
from support.launch import launcher
from support.monitor import wait_meta_leader
from support.servers import REFERENCE, Kind, selected, until

from .conftest import require_all

pytestmark = pytest.mark.timeout(120)

CONFIG = """
accounts {
  $SYS: { users: [{ user: sys, password: pw }] }
  A: { jetstream: enabled, users: [{ user: a, password: pw }] }
  B: { jetstream: enabled, users: [{ user: b, password: pw }] }
}
"""
LISTS = 300
"""Lists at the same time, each of which waits 4 s for a server that is silent."""
WITHIN = 3.0
"""Seconds within which another account is answered meanwhile."""


class Accounts:
    """A cluster with the accounts A and B, each member with a tag."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def ask(self, user: str, member: int, api: str, body: object = None, within: float = 5.0) -> Any:
        """Send a request; return the answer, None if there is none in time."""
        with Caller(self.cluster[member], user, inbox=f"_INBOX.{user}") as caller:
            caller.connection.sock.settimeout(within)
            try:
                return json.loads(caller.request(f"$JS.API.{api}", body).payload)
            except TimeoutError:
                return None

    def stream(self, user: str, at: int, name: str, member: int, within: float = 5.0) -> Any:
        config = {"name": name, "subjects": [name], "placement": {"tags": [f"n{member}"]}}
        return self.ask(user, at, f"STREAM.CREATE.{name}", config, within)

    def leader(self) -> int:
        """Return the member that leads the meta group, as all that run say."""
        return int(wait_meta_leader(self.cluster[member] for member in self.cluster.running())[1:])


@pytest.fixture(params=[kind for kind in selected() if not kind.is_reference], ids=lambda kind: kind.name)
def accounts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Accounts]:
    kind: Kind = request.param
    require_all((kind,))
    with launcher(REFERENCE, tmp_path) as launch:
        cluster = Cluster(
            launch,
            (kind,) * 3,
            config=lambda number: (
                f"jetstream {{ store_dir: '{tmp_path / str(number)}' }}\nserver_tags: [n{number}]\n{CONFIG}"
            ),
        )
        cluster.wait_mesh()
        accounts = Accounts(cluster)
        accounts.leader()
        for user in "ab":
            until(lambda user=user: "error" not in (accounts.ask(user, 0, "INFO") or {"error": 0}), 60)  # type: ignore[misc]
        yield accounts


def test_lists_that_wait_for_a_silent_server_hold_up_no_other_account(accounts: Accounts) -> None:
    leader = accounts.leader()
    silent = (leader + 1) % 3
    assert "error" not in accounts.stream("a", leader, "A1", silent)
    assert "error" not in accounts.stream("b", leader, "B1", leader)
    accounts.cluster.kill(silent)
    try:
        with Caller(accounts.cluster[leader], "a") as flood:
            for _ in range(LISTS):
                flood.publish("$JS.API.STREAM.LIST", b"", "_INBOX.flood")
            flood.fence()
            assert accounts.stream("b", leader, "B2", leader, WITHIN)["did_create"]
            listed = accounts.ask("b", leader, "STREAM.LIST", within=WITHIN)["streams"]
            assert [each["config"]["name"] for each in listed] == ["B1", "B2"]
            # One of the account itself, which does not wait for other servers.
            assert accounts.ask("a", leader, "STREAM.NAMES", within=WITHIN)["streams"] == ["A1"]
    finally:
        accounts.cluster.start_again(silent)
