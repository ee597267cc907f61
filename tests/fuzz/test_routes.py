"""What another server may send over a route: no bytes do harm, and how they are split makes no difference.

GNATS_FUZZ_SEED sets another seed, GNATS_FUZZ_SEQUENCES multiplies the sequences.
"""

from __future__ import annotations

import os

import pytest

from .routes import outcome, pieces, sequence

SEED = int(os.environ.get("GNATS_FUZZ_SEED", "1"))
SEQUENCES = 100 * int(os.environ.get("GNATS_FUZZ_SEQUENCES", "8"))

pytestmark = pytest.mark.timeout(120 + SEQUENCES)


@pytest.mark.parametrize("pollers", [1, 2], ids=["one poller", "two"])
def test_split_bytes_do_what_whole_ones_do(pollers: int) -> None:
    for number in range(SEQUENCES):
        data, pinned = sequence(SEED, number)
        whole = outcome([data], pollers=pollers, pinned=pinned)
        for split in pieces(SEED, number, data):
            assert outcome(split, pollers=pollers, pinned=pinned) == whole, (SEED, number, data, split)
