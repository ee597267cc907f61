"""For tests of programs that use NATS: servers in threads, and the check that a server rests.

`ServerThread` is imported on first use, so that the check can be imported without all of gnats.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnats.testing.server_thread import ServerThread

__all__ = ["ServerThread"]


def __getattr__(name: str) -> object:
    if name != "ServerThread":
        raise AttributeError(f"module 'gnats.testing' has no attribute {name!r}")
    from gnats.testing.server_thread import ServerThread

    return ServerThread
