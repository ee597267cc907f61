def probe_sources(
    text: bytes, stream: bytes | None = None, subject: bytes = b"", value: bytes = b""
) -> tuple[bytes, bytes] | None:
    """What is written anew, after a value was set if there is a stream, and the value before (for tests).

    None for what is no such map.
    """
