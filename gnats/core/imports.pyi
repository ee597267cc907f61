"""What a connection has of imports."""

from gnats.core.guard import Guarded

class Importer(Guarded):
    """A connection whose account may import; see Client."""

    def renew_imports(self) -> None:
        """The account imports other streams than before: have the owner look at the subscriptions again."""
    def set_details(self, head: bytes, mid: bytes, tail: bytes) -> None:
        """What services are told of this client where an import shares it: members of a JSON object, that
        come before the account (with a comma behind them), before the round trip time and behind the server
        (with one before them). Raises MemoryError."""
