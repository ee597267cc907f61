"""Freeing what a poller may still be reading."""

def advance() -> int:
    """A number for passed(); whoever is online now may hold pointers to what was reachable before."""

def passed(number: int) -> bool:
    """Has everybody been offline since a number was given out?"""

def waiting_blocks() -> int:
    """Blocks retired and not freed yet."""

def reclaim() -> None:
    """Free what is safe to free now."""
