"""Stores under load, without Python between two messages: ns of CPU for each."""

from collections.abc import Iterable

from gnats.store.store import MsgStore

def append(store: MsgStore, n: int, payload: bytes, subjects: int = 1, batch: int = 64) -> float:
    """Append n messages on `subjects` subjects in turn, flushing each `batch`; ns for each."""

def scan(store: MsgStore, filters: Iterable[bytes | str] = ()) -> tuple[int, float]:
    """Load every message that the filters take, in order: how many, ns for each."""

def lookup(store: MsgStore, n: int, subjects: int) -> float:
    """Load the last message of `subjects` subjects in turn, n times; ns for each."""
