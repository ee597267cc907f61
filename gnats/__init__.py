"""gnats: a NATS server in Python and Cython.

Public names are loaded on first use: importing a part (the bench, the archive) does not load the server.
"""

from typing import TYPE_CHECKING

from gnats.version import __version__

if TYPE_CHECKING:
    from gnats.errors import ServerError
    from gnats.log.logger import Logger
    from gnats.options.options import Options
    from gnats.server.server import Server

__all__ = ["Logger", "Options", "Server", "ServerError", "__version__"]

_HOME = {
    "Logger": "log.logger",
    "Options": "options.options",
    "Server": "server.server",
    "ServerError": "errors",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'gnats' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"gnats.{_HOME[name]}"), name)
