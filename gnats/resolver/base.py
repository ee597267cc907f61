"""The interface of resolvers, and of the server that they need (AccountResolver in accounts.go)."""

from collections.abc import AsyncGenerator
from typing import Protocol


class ResolverError(Exception):
    """A resolver cannot find or store a JWT; the text is nats-server's."""


class Log(Protocol):
    def notice(self, text: str) -> None: ...
    def warn(self, text: str) -> None: ...
    def error(self, text: str) -> None: ...
    def debug(self, text: str) -> None: ...


class Resolver(Protocol):
    """Finds an account's JWT by its public key."""

    @property
    def kind(self) -> str:
        """The kind as in ResolverOptions: "mem", "url", "full" or "cache"."""

    @property
    def read_only(self) -> bool: ...

    @property
    def tracks_updates(self) -> bool:
        """True if it answers $SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE itself."""

    async def start(self) -> None:
        """Check that the resolver works, and start its tasks. Raises ResolverError."""

    async def fetch(self, account: str) -> str:
        """Return the JWT of an account, unchecked. Raises ResolverError."""

    async def store(self, account: str, token: str) -> None:
        """Store a JWT. Raises ResolverError."""

    async def reload(self) -> None:
        """Called at a reload: drop the JWTs, or read those again that others may have changed."""

    async def close(self) -> None:
        """End all background tasks."""


class Host(Protocol):
    """The part of OperatorMode that a directory resolver needs."""

    @property
    def operator(self) -> str:
        """The operator's public key."""

    @property
    def operator_keys(self) -> frozenset[str]:
        """The public keys that may sign requests for deletion."""

    @property
    def strict(self) -> bool:
        """True if a signing key, not the operator's own key, must sign accounts."""

    @property
    def system_account(self) -> str: ...

    def knows(self, account: str) -> bool: ...

    async def account_changed(self, name: str, token: str) -> None: ...

    def account_removed(self, name: str) -> None: ...


class SystemRequests(Protocol):
    """Requests of a resolver to other servers, through the system account."""

    def expected_servers(self) -> int:
        """Return the number of other servers that are known."""

    def request(self, subject: str, payload: bytes, wait: float) -> AsyncGenerator[bytes, None]:
        """Publish to the system account and yield the replies, for `wait` seconds.

        Without a system account, end at once.
        """


class NoOtherServers:
    """SystemRequests of a single server: there are no replies."""

    def expected_servers(self) -> int:
        return 0

    async def request(self, subject: str, payload: bytes, wait: float) -> AsyncGenerator[bytes, None]:
        return
        yield b""
