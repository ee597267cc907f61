"""Keep the server's process small.

asyncio and uvloop import Python's ssl module, which loads OpenSSL: 4.5 MB of resident memory, a quarter of an
idle server. The data plane does its own TLS, so the loop does not need it.
"""

import sys
from types import ModuleType


def import_loop_without_ssl() -> None:
    """Import asyncio and uvloop as if Python had been built without OpenSSL.

    For a process that does not use TLS through its event loop: the loop fails when asked for it. Does nothing
    when one of the modules is imported already. Later imports of ssl get the real module.
    """
    if not sys.modules.keys().isdisjoint(("ssl", "asyncio", "uvloop")):
        return
    # None makes the import raise ImportError. asyncio handles that, uvloop does not.
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        import asyncio  # noqa: F401

        sys.modules["ssl"] = _stand_in()
        import uvloop  # noqa: F401
    finally:
        del sys.modules["ssl"]


def _stand_in() -> ModuleType:
    """Make a module with the names that uvloop uses at import: classes, and some numbers."""
    module = ModuleType("ssl")

    def attribute(name: str) -> object:
        return 0 if name.isupper() else type(name, (Exception,), {})

    module.__getattr__ = attribute  # type: ignore[method-assign]
    return module
