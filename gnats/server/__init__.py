"""The server: its life, its options put into force, and the services of its system account.

`Server` is loaded on first use, so that importing a part does not pull in the whole.
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
