def sampled(header: bytes) -> bool:
    """Does this header block ask for a measurement?"""
