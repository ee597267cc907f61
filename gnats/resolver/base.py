"""What a resolver is, and what it needs of its server (AccountResolver in accounts.go)."""

from collections.abc import AsyncGenerator
from typing import Protocol


class ResolverError(Exception):
    """A resolver that cannot find or keep a JWT; the text is nats-server's."""


class Log(Protocol):
    def notice(self, text: str) -> None: ...
    def warn(self, text: str) -> None: ...
    def error(self, text: str) -> None: ...
    def debug(self, text: str) -> None: ...


class Resolver(Protocol):
    """Finds an account's JWT by its public key."""

    @property
    def kind(self) -> str:
        """As ResolverOptions: "mem", "url", "full" or "cache"."""

    @property
    def read_only(self) -> bool: ...

    @property
    def tracks_updates(self) -> bool:
        """Does it answer $SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE itself?"""

    async def start(self) -> None:
        """Raises ResolverError when it cannot work."""

    async def fetch(self, account: str) -> str:
        """The JWT, as found. Raises ResolverError."""

    async def store(self, account: str, token: str) -> None:
        """Keep a JWT. Raises ResolverError."""

    async def reload(self) -> None:
        """The configuration was read again: look again at what is not in the hands of the server."""

    async def close(self) -> None:
        """End what runs in the background."""


class Host(Protocol):
    """What a resolver of a directory needs to know and to tell: an OperatorMode."""

    @property
    def operator(self) -> str:
        """Public key."""

    @property
    def operator_keys(self) -> frozenset[str]:
        """Those that may order deletions."""

    @property
    def strict(self) -> bool:
        """Must accounts be signed by a signing key rather than the operator's own?"""

    @property
    def system_account(self) -> str: ...

    def knows(self, account: str) -> bool: ...

    async def account_changed(self, name: str, token: str) -> None: ...

    def account_removed(self, name: str) -> None: ...


class SystemRequests(Protocol):
    """How a resolver asks other servers, through the system account."""

    def expected_servers(self) -> int:
        """How many other servers are known to be there."""

    def request(self, subject: str, payload: bytes, wait: float) -> AsyncGenerator[bytes, None]:
        """Publish to the system account and yield what is replied, until `wait` seconds have passed.

        As long as there is no system account nothing is yielded, at once.
        """


class NoOtherServers:
    """A server that is alone."""

    def expected_servers(self) -> int:
        return 0

    async def request(self, subject: str, payload: bytes, wait: float) -> AsyncGenerator[bytes, None]:
        return
        yield b""
