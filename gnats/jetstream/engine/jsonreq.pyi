"""JSON objects of small requests; for tests."""

def read_object(text: bytes, types: dict[str, str], of: str) -> tuple[dict[str, object], str]:
    """Decode a JSON object as Go decodes a struct `of` with members of these types; return (members, error).

    The types are "int", "duration", "uint", "bool", "string" and "strings". Members that are absent or null
    are left out; strings are bytes.
    """
