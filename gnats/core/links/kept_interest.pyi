"""Interest in accounts that do not exist here."""

from gnats.core.accounts.registry import AccountRegistry

class KeptTable:
    """Sids by account, for tests."""

    def __init__(self) -> None: ...
    def __len__(self) -> int:
        """Return the number of accounts."""
    @property
    def nbytes(self) -> int:
        """Bytes of all accounts and sids, about."""
    def add(self, account: bytes, sid: bytes) -> bool:
        """Return whether it is kept: there is room. Raises MemoryError."""
    def drop(self, account: bytes, sid: bytes) -> bool:
        """Return whether it was kept."""
    def take_new(self, registry: AccountRegistry) -> int:
        """Take all of accounts that exist; return how many sids that were."""
