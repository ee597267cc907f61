"""Run the soak for some minutes; print waits that ended too early, and differences from nats-server."""

from __future__ import annotations

import argparse
import sys

from support.servers import KINDS

from .soak import differences, latest, soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    records = soak(list(KINDS.values()), args.seed, seconds=args.minutes * 60)
    for name, seen in records.items():
        n = sum(len(record.said) for record in seen)
        slow = ", ".join(f"{late / 1e6:.0f} ms ({episode})" for late, episode in latest(seen))
        print(f"{name}: {n} episodes, latest {slow}")
    found = differences(records)
    for line in found:
        print(line)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
