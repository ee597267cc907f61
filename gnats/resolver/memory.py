"""The memory resolver (accounts.go): it has the preloaded JWTs, and what is stored while the server runs."""

from gnats.resolver.base import ResolverError


class MemoryResolver:
    kind = "mem"
    read_only = False
    tracks_updates = False

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}

    async def start(self) -> None:
        """There is nothing to start."""

    async def fetch(self, account: str) -> str:
        try:
            return self._tokens[account]
        except KeyError:
            raise ResolverError("account missing") from None

    async def store(self, account: str, token: str) -> None:
        self._tokens[account] = token

    async def reload(self) -> None:
        """Forget everything: a configuration that is read again has its own."""
        self._tokens.clear()

    async def close(self) -> None:
        """There is nothing to end."""
