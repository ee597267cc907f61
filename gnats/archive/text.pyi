"""Convert bytes to text, and back again.

A byte that is not part of UTF-8 becomes `\\xNN`; so does a backslash before text that looks like such an
escape.
"""

def show(data: bytes) -> str:
    """Convert a subject or a header to text."""

def unshow(text: str) -> bytes:
    """Convert a text of show() back to its bytes."""
