"""Fast batches."""

def fast_pattern(reply: bytes) -> tuple[bytes, int, int, bool, bool, bool, bool] | None:
    """Decode a reply subject of a fast batch; None when its pattern is malformed. For tests.

    Return (id, sequence, flow, whether gaps are ok, whether it is a ping, a commit, a commit without a
    message). Raises ValueError for a reply subject that is not of a fast batch.
    """
