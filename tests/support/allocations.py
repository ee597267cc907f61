"""Find the statements of the data plane that allocate, and the statement that a failed call came from."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import gnats

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "cython_src"
FOLDERS = ("core", "store", "jetstream")
ALLOCATORS = "malloc|calloc|realloc|strdup|strndup|posix_memalign|aligned_alloc|array_grow"
_CALL = re.compile(rf"(?<![\w.])(?:{ALLOCATORS})\s*\(")
_FUNCTION = re.compile(r"^\s*(?:cdef|cpdef|def|cdef inline)\b[^=#]*?\b(\w+)\(")
_MARK = re.compile(r'/\* "(gnats/\S+\.p(?:yx|xd))":(\d+)$')
_PAIR = re.compile(r"(\S+) ([0-9a-f]{16})(?: |$)")


@dataclass(frozen=True, order=True)
class Site:
    """A statement that allocates; `line` is its first line."""

    path: str
    line: int
    function: str

    @property
    def name(self) -> str:
        """Module and function, such as "store.index.wheel.grow"."""
        return ".".join([*Path(self.path).with_suffix("").parts[1:], self.function])


def sites() -> set[Site]:
    """Return every Site of core, store and jetstream, without those of functions for tests."""
    return {
        site
        for folder in FOLDERS
        for path in sorted((SOURCES / "gnats" / folder).rglob("*.p[yx][xd]"))
        if not path.stem.endswith("_probe")
        for site in _in_file(path)
    }


def _in_file(path: Path) -> Iterator[Site]:
    lines = path.read_text().splitlines()
    name = ""
    for number, line in enumerate(lines):
        if found := _FUNCTION.match(line):
            name = found[1]
        elif name and not name.startswith("probe_") and _CALL.search(line.partition("#")[0]):
            yield Site(str(path.relative_to(SOURCES)), number + 1, name)


class NoSymbols(Exception):
    """The compiled modules have no debug information, or their C files are gone."""


def find(calls: Iterable[str]) -> set[Site]:
    """Return the sites of failed calls. Raises NoSymbols.

    A call is the text that failing_server.c makes: "module offset " of each caller, the nearest first.
    """
    known = {(site.path, site.line): site for site in sites()}
    pairs = [_PAIR.findall(call) for call in calls]
    chains = _chains({pair for call in pairs for pair in call})
    found = set()
    for call in pairs:
        for statement in (place for pair in call for place in chains[pair]):
            # a statement may span three lines, and the compiler may name any of them
            nearest = (known.get((statement[0], statement[1] + more)) for more in range(3))
            if site := next(filter(None, nearest), None):
                found.add(site)
                break
    return found


def _chains(pairs: set[tuple[str, str]]) -> dict[tuple[str, str], list[tuple[str, int]]]:
    """Return the statements at each (module, offset): (source, line), the innermost inlined one first."""
    offsets = defaultdict(list)
    for module, offset in sorted(pairs):
        offsets[module].append(offset)
    chains = {}
    for module, those in offsets.items():
        [library] = (Path(gnats.__file__).parent / module).parent.glob(f"{Path(module).name}.*.so")
        # a return address belongs to the statement behind the call: look one byte before it
        calls = [f"{int(offset, 16) - 1:#x}" for offset in those]
        output = subprocess.run(
            ["addr2line", "-a", "-i", "-e", library, *calls],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        each = re.split(r"^0x[0-9a-f]+\n", output, flags=re.MULTILINE)[1:]
        for offset, lines in zip(those, each, strict=True):
            chains[module, offset] = [_statement(line) for line in lines.splitlines()]
    return chains


def _statement(place: str) -> tuple[str, int]:
    """Return the source line that a line of a C file ("path:number") was made from. Raises NoSymbols."""
    name, _, number = place.partition(" ")[0].rpartition(":")
    if "/build/" not in name or not number.isdigit():
        raise NoSymbols(place)
    path = ROOT / "build" / name.rpartition("/build/")[2]
    if not path.exists():
        raise NoSymbols(path)
    statements = _statements(path)
    return statements[min(int(number), len(statements)) - 1]


@cache
def _statements(path: Path) -> list[tuple[str, int]]:
    """Return the source and its line for each line of a C file."""
    now = "", 0
    found = []
    for line in path.read_text(errors="replace").splitlines():
        if mark := _MARK.search(line):
            now = mark[1], int(mark[2])
        found.append(now)
    return found
