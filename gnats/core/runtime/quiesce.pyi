"""Free memory that a poller may still be reading (quiescent-state reclamation)."""

def advance() -> int:
    """Return a grace number for passed().

    A poller that is in a batch now may hold pointers to memory that was reachable before.
    """

def passed(number: int) -> bool:
    """Return whether every participant has been between two batches since advance() returned `number`."""

def waiting_blocks() -> int:
    """Return the number of blocks that are retired and not freed (for tests)."""

def reclaim() -> None:
    """Free the blocks that have become safe (for tests)."""
