"""The memory resolver (accounts.go): preloaded JWTs, and JWTs stored while the server runs."""

from gnats.resolver.base import ResolverError


class MemoryResolver:
    """Account JWTs in memory; used in the loop's thread."""

    kind = "mem"
    read_only = False
    tracks_updates = False

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}

    async def start(self) -> None:
        """Do nothing."""

    async def fetch(self, account: str) -> str:
        try:
            return self._tokens[account]
        except KeyError:
            raise ResolverError("account missing") from None

    async def store(self, account: str, token: str) -> None:
        self._tokens[account] = token

    async def reload(self) -> None:
        """Drop all JWTs: a reload preloads those of the new configuration."""
        self._tokens.clear()

    async def close(self) -> None:
        """Do nothing."""
