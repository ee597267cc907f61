"""Reads of many connections and subscriptions at once, for monitoring."""

from gnats.core.accounts.account import Account
from gnats.core.client import Client
from gnats.core.subjects.sublist import Sublist

def column(connections: list[Client], name: str) -> list[int]:
    """One of Connection.snapshot's counters (not "stalls") of each of a list of connections.

    Raises KeyError for another name.
    """

def total(connections: list[Client], name: str) -> int:
    """The sum of column()."""

def account_of(c: Client) -> Account:
    """The account a connection is bound to."""

Row = tuple[bytes, bytes, bytes, int, int, int, Account | None]
"""(subject, queue, sid, delivered, max, cid, account); cid 0 and no account for those of a table's account
itself."""

def matching(sl: Sublist, subject: bytes) -> list[Row]:
    """Each subscription that gets a message to this subject, members of a queue group all of them.

    Raises MemoryError.
    """

def shadows(sl: Sublist) -> list[Row]:
    """The subscriptions that imports of other accounts have made in it. Raises MemoryError."""
