def probe_sources(
    text: bytes, stream: bytes | None = None, subject: bytes = b"", value: bytes = b""
) -> tuple[bytes, bytes] | None:
    """Parse the map, set a value if `stream` is given, and write it; for tests.

    Return (the new text, the value before), None for a malformed map.
    """
