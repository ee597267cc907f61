"""`make fuzz`: play random sequences to a server (hunt), or to several and compare them."""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

from support.servers import KINDS, selected

from .hunt import fails, hunt


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="for how long")
    parser.add_argument("--seed", type=int, default=0, help="of all sequences; 0: a new one")
    parser.add_argument("--first", type=int, default=0, help="the number of the first sequence")
    parser.add_argument(
        "--compare", action="store_true", help="with nats-server, sequences of one connection"
    )
    parser.add_argument("--shorten", type=float, default=60, help="seconds to make what fails shorter in")
    parser.add_argument("--keep", type=Path, help="a directory for what fails")
    parser.add_argument("--replay", type=Path, help="play the steps of a file instead")
    parser.add_argument(
        "--kind", choices=[name for name in KINDS if name != "reference"], help="only this one"
    )
    args = parser.parse_args()
    kinds = [kind for kind in selected() if not kind.is_reference and args.kind in (None, kind.name)]
    seed = args.seed or random.SystemRandom().randrange(1, 1 << 31)
    if args.compare:
        from .compare import compare, replay

        if args.replay:
            return replay(kinds, json.loads(args.replay.read_text()))
        print(f"seed {seed}: {', '.join(kind.name for kind in kinds)} and nats-server", flush=True)
        return bool(compare(kinds, seed, args.first, args.minutes * 60, args.shorten, args.keep))
    if args.replay:
        for kind in kinds:
            print(kind.name, fails(kind, json.loads(args.replay.read_text())) or "is well")
        return 0
    print(f"seed {seed}: {', '.join(kind.name for kind in kinds)}", flush=True)
    return bool(hunt(kinds, seed, args.first, args.minutes * 60, args.shorten, args.keep))


if __name__ == "__main__":
    sys.exit(main())
