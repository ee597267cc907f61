"""Bytes as text, and back again.

Bytes that are no UTF-8 become `\\xNN`; so does a backslash in front of what would read like one of these.
"""

def show(data: bytes) -> str:
    """The text of a subject or a header."""

def unshow(text: str) -> bytes:
    """The bytes that a text stands for."""
