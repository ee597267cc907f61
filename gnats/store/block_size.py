"""The sizes of blocks that suit a stream (dynBlkSize of filestore.go)."""

LARGE, MEDIUM, ENCRYPTED, SMALLEST = 8 << 20, 4 << 20, 2 << 20, 32000


def tuned_block_size(total: int) -> int:
    """Return the block size in bytes for a stream of at most `total` bytes: a quarter, of three sizes."""
    size = total // 4 + 1
    size += -size % 100
    if size <= SMALLEST:
        return SMALLEST
    return LARGE if size >= LARGE else MEDIUM


def dyn_block_size(max_bytes: int = 0, limits_retention: bool = True, encrypted: bool = False) -> int:
    """Return the block size in bytes that suits a stream's limits (dynBlkSize of filestore.go).

    limits_retention: the stream has limits retention and no limit per subject.
    """
    size = LARGE if limits_retention else MEDIUM
    if max_bytes > 0:
        size = tuned_block_size(max_bytes)
    return min(size, ENCRYPTED) if encrypted else size
