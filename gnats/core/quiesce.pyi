"""Freeing what a poller may still be reading."""

def waiting_blocks() -> int:
    """Blocks retired and not freed yet."""

def reclaim() -> None:
    """Free what is safe to free now."""
