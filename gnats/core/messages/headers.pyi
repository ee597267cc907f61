def header_value(header: bytes, name: bytes) -> bytes | None:
    """Return the value of the first line with this name in a header block, None without one."""

def probe_change(what: str, header: bytes, name: bytes, value: bytes = b"") -> bytes: ...
