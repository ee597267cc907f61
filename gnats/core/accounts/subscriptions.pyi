"""Subscriptions of a connection; these functions are for tests."""

from gnats.core.accounts.account import Account
from gnats.core.accounts.subscriber import Subscriber

def subscribe_in(c: Subscriber, account: Account, subject: bytes, queue: bytes, sid: bytes) -> None:
    """Subscribe in any account, as a route does. Raises ValueError for an invalid subject, MemoryError."""

def unsubscribe_sid(c: Subscriber, sid: bytes) -> Account:
    """Undo subscribe_in() and return the account. Raises KeyError for an unknown sid."""
