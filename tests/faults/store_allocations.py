"""Stores are used while each of their allocations fails once; run in a process of its own (test_allocations).

Prints where calls have failed, each with a NUL behind it, then a line for each thing that is not as it
must be.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from support.failing_server import here

from .stores import MORE, USES, Turn


def main(root: Path, depth: int) -> None:
    failing = here(depth)
    problems: list[str] = []
    numbers = itertools.count()
    for name in USES | MORE:
        where = "begin"
        while where:
            turn = Turn(failing, root / f"{next(numbers)}", name)
            where = turn.run_once()
            turn.check()
            problems += (f"{name}, {where}: {problem}" for problem in dict.fromkeys(turn.use.problems))
            turn.close()
            print(where, end="\0" if where else "")
    print("\n".join(problems))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
