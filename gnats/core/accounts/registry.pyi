"""The accounts of a server by name, for any thread."""

from gnats.core.accounts.account import Account

class AccountRegistry:
    """Accounts by name. Call its methods on the control loop only."""

    def __init__(self) -> None: ...
    @property
    def accounts(self) -> dict[bytes, Account]: ...
    def add(self, name: bytes, account: Account) -> None:
        """Add an account, and call the sinks. Raises KeyError for a name that is there, MemoryError."""

    def remove(self, name: bytes) -> None:
        """Remove an account, and call the sinks. Raises KeyError for an unknown name.

        The caller keeps the account alive until every poller has been between two batches.
        """

class AccountProbe:
    """A sink of accounts that come and go, until close() (for tests). It hears of those present first."""

    def __init__(self, registry: AccountRegistry) -> None: ...
    changes: list[tuple[bool, Account]]
    """Whether it came, and the account."""

    def close(self) -> None: ...

def find_account(registry: AccountRegistry, name: bytes, times: int = 1) -> Account | None:
    """Look an account up without the GIL, `times` times; return what the last found (for tests)."""
