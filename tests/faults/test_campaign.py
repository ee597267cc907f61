"""A short run of the campaign of `make faults`."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from support.disks import NotPossible
from support.servers import Kind

from .campaign import Campaign

pytestmark = pytest.mark.timeout(120)

KILLS = 2


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-lost"])
def test_what_was_acknowledged_is_there(kind: Kind, tmp_path: Path, power: bool) -> None:
    seed = int(os.environ.get("GNATS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
    print(f"GNATS_SEED={seed}")
    try:
        done = Campaign([kind], tmp_path, seed, kills=KILLS, power=power).run()
    except NotPossible as exc:
        pytest.skip(f"cannot mount a file system: {exc}")
    assert done["kills"] >= KILLS
