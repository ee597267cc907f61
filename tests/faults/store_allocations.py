"""Use stores while each allocation fails once. test_allocations runs this module in a process of its own.

Prints the place of each failed call, followed by a NUL, then a line for each violation of the rules of
faults.stores.
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
