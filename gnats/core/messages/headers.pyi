def header_value(header: bytes, name: bytes) -> bytes | None:
    """The value of the first line with that name in a header block, None without one."""

def probe_change(what: str, header: bytes, name: bytes, value: bytes = b"") -> bytes: ...
