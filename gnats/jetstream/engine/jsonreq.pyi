"""JSON objects of small requests; for tests."""

def read_object(text: bytes, types: dict[str, str], of: str) -> tuple[dict[str, object], str]:
    """(members, error) of a JSON object as a struct `of` with members of the given types would be read.

    The types are "int", "duration", "uint", "bool", "string" and "strings". Members that are absent or null
    are left out; strings are bytes.
    """
