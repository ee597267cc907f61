"""The server: its start and shutdown, reloads, and the services of its system account.

`Server` is imported on first use, so that importing one module of this package does not load all of gnats.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnats.server.server import Server

__all__ = ["Server"]


def __getattr__(name: str) -> object:
    if name != "Server":
        raise AttributeError(f"module 'gnats.server' has no attribute {name!r}")
    from gnats.server.server import Server

    return Server
