"""Fast batches."""

def fast_pattern(reply: bytes) -> tuple[bytes, int, int, bool, bool, bool, bool] | None:
    """(id, sequence, flow, gaps are ok, it is a ping, a commit, one that is no message), None for no pattern.

    Raises ValueError for a reply subject that is of no fast batch at all. For tests.
    """
