"""The examples of the documentation: two clusters that name each other, and have the same accounts."""

from __future__ import annotations

from pathlib import Path

from gnats.options.options import Options

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples" / "gateways"


def test_the_clusters_name_each_other() -> None:
    east, west = (Options.from_file(str(EXAMPLES / f"{name}.conf")).baseline() for name in ("east", "west"))
    assert (east.cluster.name, west.cluster.name) == ("east", "west")
    assert east.gateway.gateways == west.gateway.gateways
    assert {remote.name for remote in east.gateway.gateways} == {"east", "west"}
    (url,) = east.gateway.gateways[1].urls
    assert (url.user, url.password) == (west.gateway.username, west.gateway.password)
    assert [account.name for account in east.accounts] == [account.name for account in west.accounts]
    assert east.system_account == west.system_account
