"""Measure stores without Python between two messages, in ns of CPU for each message."""

from collections.abc import Iterable

from gnats.store.store import MsgStore

def append(store: MsgStore, n: int, payload: bytes, subjects: int = 1, batch: int = 64) -> float:
    """Store n messages on `subjects` subjects in turn, flush after each `batch`; return the ns for each."""

def scan(store: MsgStore, filters: Iterable[bytes | str] = ()) -> tuple[int, float]:
    """Load every message that matches the filters, in order; return (their number, ns for each)."""

def lookup(store: MsgStore, n: int, subjects: int) -> float:
    """Load the last message of `subjects` subjects in turn, n times; return the ns for each."""
