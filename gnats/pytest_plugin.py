"""pytest fixtures with servers that run in threads of their own, for tests with and without asyncio."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gnats.testing import ClusterThread, ServerThread, SuperClusterThread


@pytest.fixture
def nats_server_factory() -> Iterator[Callable[..., "ServerThread"]]:
    """Start servers: `nats_server_factory(max_payload=1024)`. The keywords are options of gnats.Options.

    The servers stop when the test ends.
    """
    from gnats.testing import ServerThread  # imported late: few of the pytest runs with this plugin need it

    with ExitStack() as servers:
        yield lambda **options: servers.enter_context(ServerThread(**options))


@pytest.fixture
def nats_server(nats_server_factory: Callable[..., Any]) -> "ServerThread":
    """Start a server with default options on a free port of 127.0.0.1: `nats_server.client_url`, `.port`."""
    server: ServerThread = nats_server_factory()
    return server


@pytest.fixture
def nats_cluster_factory() -> Iterator[Callable[..., "ClusterThread"]]:
    """Start clusters: `nats_cluster_factory(5, max_payload=1024)`. The keywords are those of ClusterThread.

    The clusters stop when the test ends.
    """
    from gnats.testing import ClusterThread

    with ExitStack() as clusters:
        yield lambda *size, **options: clusters.enter_context(ClusterThread(*size, **options))


@pytest.fixture
def nats_cluster(nats_cluster_factory: Callable[..., Any]) -> "ClusterThread":
    """Start a cluster of three servers: `nats_cluster.client_url`, `nats_cluster.servers[1].client_url`."""
    cluster: ClusterThread = nats_cluster_factory()
    return cluster


@pytest.fixture
def nats_super_cluster_factory() -> Iterator[Callable[..., "SuperClusterThread"]]:
    """Start super-clusters: `nats_super_cluster_factory(2, 3)`. The keywords are those of SuperClusterThread.

    They stop when the test ends.
    """
    from gnats.testing import SuperClusterThread

    with ExitStack() as all_clusters:
        yield lambda *sizes, **options: all_clusters.enter_context(SuperClusterThread(*sizes, **options))


@pytest.fixture
def nats_super_cluster(nats_super_cluster_factory: Callable[..., Any]) -> "SuperClusterThread":
    """Start two clusters of two servers, joined by gateways: `nats_super_cluster.clusters[1].client_url`."""
    joined: SuperClusterThread = nats_super_cluster_factory(2, 2)
    return joined
