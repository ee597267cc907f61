"""Streams with one replica in clusters that are joined by gateways: one meta group for all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from support.caller import Caller
from support.launch import launcher
from support.monitor import wait_meta_leader
from support.servers import REFERENCE, Kind, Server, selected, until
from support.superclusters import SuperCluster

from .conftest import require_all

pytestmark = pytest.mark.timeout(180)

ANSWER_WITHIN = 5.0
_inboxes = itertools.count(1)


def shapes() -> list[tuple[tuple[Kind, ...], ...]]:
    """Return two clusters of two servers, of gnats alone and with nats-servers."""
    gnats = [kind for kind in selected() if not kind.is_reference]
    return [*[((kind, kind),) * 2 for kind in gnats], ((gnats[0], REFERENCE), (gnats[-1], REFERENCE))]


def ask(server: Server, subject: str, body: object = None) -> dict[str, Any] | None:
    """Send a request once; return its answer, or None."""
    with Caller(server, inbox=f"_INBOX.s{next(_inboxes)}") as caller:
        caller.connection.sock.settimeout(ANSWER_WITHIN)
        try:
            message = caller.request(subject, body)
        except TimeoutError:
            return None
        found: dict[str, Any] = message.json if message.payload else {}
        return found


@pytest.fixture(scope="module", params=shapes(), ids=lambda shape: "+".join(k.name for c in shape for k in c))
def clusters(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sequence[Sequence[Server]]]:
    require_all(tuple(kind for cluster in request.param for kind in cluster))
    with launcher(REFERENCE, tmp_path_factory.mktemp("super")) as launch:
        joined = SuperCluster(launch, request.param, config="jetstream { store_dir: js }")
        joined.wait_mesh()
        servers = [server for cluster in joined.clusters for server in cluster]
        wait_meta_leader(servers)
        for server in servers:
            until(lambda server=server: ask(server, "$JS.API.INFO"), 60)  # type: ignore[misc]
        yield joined.clusters


def test_a_stream_is_in_the_cluster_of_its_client(clusters: Sequence[Sequence[Server]]) -> None:
    """Also where the meta group's leader is in the other one, over whose gateway the request has come."""
    servers = [server for cluster in clusters for server in cluster]
    for number, cluster in enumerate(clusters):
        for place, server in enumerate(cluster):
            name = f"S{number}{place}"
            config = {"name": name, "subjects": [f"{name}.>"]}
            made = ask(server, f"$JS.API.STREAM.CREATE.{name}", config)
            assert made and "error" not in made, made
            assert made["cluster"]["name"] == f"c{number}"
            assert made["did_create"], "the first request was answered"
            for other in servers:
                until(lambda other=other, name=name: "seq" in (ask(other, f"{name}.x", b"") or {}), 60)  # type: ignore[misc]
            for other in servers:
                info = ask(other, f"$JS.API.STREAM.INFO.{name}")
                assert info
                assert info["state"]["messages"] >= len(servers)
                assert info["cluster"]["leader"].startswith(f"c{number}")
    for server in servers:
        names = ask(server, "$JS.API.STREAM.NAMES")
        assert names
        assert sorted(names["streams"]) == ["S00", "S01", "S10", "S11"]


def test_a_stream_is_where_it_is_wanted(clusters: Sequence[Sequence[Server]]) -> None:
    for number in range(2):
        config = {"name": f"P{number}", "subjects": [f"p{number}"], "placement": {"cluster": f"c{number}"}}
        made = ask(clusters[1 - number][0], f"$JS.API.STREAM.CREATE.P{number}", config)
        assert made
        assert made["cluster"]["name"] == f"c{number}"
        deleted = ask(clusters[1 - number][1], f"$JS.API.STREAM.DELETE.P{number}")
        assert deleted
        assert deleted["success"]
