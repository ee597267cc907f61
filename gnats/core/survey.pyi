"""Reads of many connections and subscriptions at once, for monitoring."""

from gnats.core.account import Account
from gnats.core.client import Client
from gnats.core.sublist import Sublist

def column(connections: list[Client], name: str) -> list[int]:
    """One of Connection.snapshot's counters (not "stalls") of each of a list of connections.

    Raises KeyError for another name.
    """

def total(connections: list[Client], name: str) -> int:
    """The sum of column()."""

def account_of(c: Client) -> Account:
    """The account a connection is bound to."""

def matching(sl: Sublist, subject: bytes) -> list[tuple[bytes, bytes, bytes, int, int, int]]:
    """(subject, queue, sid, delivered, max, cid) of each subscription that gets a message to this subject.

    Members of a queue group all of them. Raises MemoryError.
    """
