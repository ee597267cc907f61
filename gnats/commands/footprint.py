"""Keeps the server's process small.

Importing Python's ssl module, as asyncio and uvloop do, loads OpenSSL: 4.5 MB of resident memory, a quarter
of an idle server. The data plane does its own TLS, so the loop has no use for it.
"""

import sys
from types import ModuleType


def import_loop_without_ssl() -> None:
    """Import asyncio and uvloop as if Python had been built without OpenSSL.

    For a process that will not speak TLS through its event loop; asking the loop for it is an error then.
    Nothing happens when one of the modules has been imported already. Later imports of ssl get the real one.
    """
    if not sys.modules.keys().isdisjoint(("ssl", "asyncio", "uvloop")):
        return
    # With None, importing it is an ImportError: asyncio is prepared for that, uvloop is not.
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        import asyncio  # noqa: F401

        sys.modules["ssl"] = _stand_in()
        import uvloop  # noqa: F401
    finally:
        del sys.modules["ssl"]


def _stand_in() -> ModuleType:
    """What uvloop takes from ssl when it is imported: the names of classes, and of some numbers."""
    module = ModuleType("ssl")

    def attribute(name: str) -> object:
        return 0 if name.isupper() else type(name, (Exception,), {})

    module.__getattr__ = attribute  # type: ignore[method-assign]
    return module
