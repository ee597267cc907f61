"""What a server of another cluster may send: no bytes do harm, and how they are split makes no difference.

GNATS_FUZZ_SEED sets another seed, GNATS_FUZZ_SEQUENCES multiplies the sequences.
"""

from __future__ import annotations

import os

import pytest

from .gateways import outcome, sequence
from .routes import pieces

SEED = int(os.environ.get("GNATS_FUZZ_SEED", "1"))
SEQUENCES = 100 * int(os.environ.get("GNATS_FUZZ_SEQUENCES", "4"))

pytestmark = pytest.mark.timeout(120 + SEQUENCES)


@pytest.mark.parametrize("pollers", [1, 2], ids=["one poller", "two"])
def test_split_bytes_do_what_whole_ones_do(pollers: int) -> None:
    for number in range(SEQUENCES):
        data, outbound = sequence(SEED, number)
        whole = outcome([data], pollers=pollers, outbound=outbound)
        for split in pieces(SEED, number, data):
            assert outcome(split, pollers=pollers, outbound=outbound) == whole, (SEED, number, data, split)
