"""Read many connections or subscriptions at once, for monitoring: each by itself, not all at one moment."""

from gnats.core.accounts.account import Account
from gnats.core.accounts.subscriber import Subscriber
from gnats.core.subjects.sublist import Sublist

def column(connections: list[Subscriber], name: str) -> list[int]:
    """Return one of snapshot()'s counters (not "stalls") for each connection.

    Raises KeyError for an unknown name.
    """

def total(connections: list[Subscriber], name: str) -> int:
    """Return the sum of column(). Raises KeyError for an unknown name."""

def account_of(c: Subscriber) -> Account:
    """Return the account that a connection is bound to."""

Row = tuple[bytes, bytes, bytes, int, int, int, Account | None]
"""(subject, queue, sid, delivered, max, cid, account). Subscriptions of the account itself have cid 0 and
account None."""

def matching(sl: Sublist, subject: bytes) -> list[Row]:
    """Return the subscriptions that match `subject`, with all members of queue groups. Raises MemoryError."""

def shadows(sl: Sublist) -> list[Row]:
    """Return the shadows that other accounts' imports have made in `sl`. Raises MemoryError."""
