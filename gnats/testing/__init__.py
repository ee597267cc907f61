"""For tests of programs that use NATS: servers in threads, and the check that a server rests.

`ServerThread`, `ClusterThread` and `SuperClusterThread` are imported on first use, so that the check can be
imported without all of gnats.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnats.testing.cluster_thread import ClusterThread
    from gnats.testing.server_thread import ServerThread
    from gnats.testing.super_cluster_thread import SuperClusterThread

__all__ = ["ClusterThread", "ServerThread", "SuperClusterThread"]

_HOME = {
    "ClusterThread": "cluster_thread",
    "ServerThread": "server_thread",
    "SuperClusterThread": "super_cluster_thread",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'gnats.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"gnats.testing.{_HOME[name]}"), name)
