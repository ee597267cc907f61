"""`make faults`: kill a thousand servers. `--seed N --rounds 1` repeats a round that has failed."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from support.disks import NotPossible
from support.servers import selected

from .campaign import Campaign

POWER = {"both": (False, True), "on": (False,), "lost": (True,)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="how many, in all")
    parser.add_argument("--rounds", type=int, default=0, help="so many rounds instead")
    parser.add_argument("--seed", type=int, default=0, help="of the first round; others count from it")
    parser.add_argument(
        "--power", choices=POWER, default="both", help="is lost with the server: what it has not synced goes"
    )
    args = parser.parse_args()
    seed = args.seed or random.SystemRandom().randrange(1, 1 << 31)
    kinds = [kind for kind in selected() if not kind.is_reference]
    modes = POWER[args.power]
    total: Counter[str] = Counter()
    began, number = time.monotonic(), 0
    print(f"seed {seed}: {', '.join(kind.name for kind in kinds)}", flush=True)
    while number < args.rounds if args.rounds else total["kills"] < args.kills:
        lost = modes[number % len(modes)]
        with tempfile.TemporaryDirectory(prefix="gnats-faults-") as directory:
            try:
                total += Campaign(kinds, Path(directory), seed + number, power=lost).run()
            except NotPossible as exc:
                print(f"power is not lost, since nothing can be mounted: {exc}", flush=True)
                modes = POWER["on"]
                continue
            except Exception:  # noqa: BLE001 - whatever it is, the seed has to be told
                traceback.print_exc()
                again = f"--seed {seed + number} --rounds 1 --power {'lost' if lost else 'on'}"
                print(f"FAILED: make faults ARGS='{again}'", flush=True)
                return 1
        number += 1
        took = time.monotonic() - began
        print(f"round {number}: {total['kills']} kills, {took:.0f} s", flush=True)
    print(", ".join(f"{what}: {count}" for what, count in sorted(total.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
