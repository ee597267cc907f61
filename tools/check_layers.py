"""Fails when modules import each other in a circle, of Python, of Cython, or of both, and when a lower
package imports a higher one.

An import inside a function counts, and so does one for types alone, under `if TYPE_CHECKING:`.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CYTHON_IMPORT = re.compile(
    r"^\s*(?:from\s+(?P<source>[\w.]+)\s+)?c?import\s+(?P<names>\([^)]*\)|[^(#\n]+)", re.MULTILINE
)

ORDER = (
    "gnats.errors",
    "gnats.version",
    "gnats.includes",
    "gnats.go",
    "gnats.system",
    "gnats.codec",
    "gnats.core.runtime",
    "gnats.core.subjects",
    "gnats.core.auth",
    "gnats.core.net",
    "gnats.core.messages",
    "gnats.core.protocol",
    "gnats.core.tls",
    "gnats.core.accounts",
    "gnats.core.routing",
    "gnats.core.links",
    "gnats.core",
    "gnats.core.links",
    "gnats.clock",
    "gnats.store.times",
    "gnats.store.index",
    "gnats.store.format",
    "gnats.store",
    "gnats.raft",
    "gnats.conf",
    "gnats.nkeys",
    "gnats.log",
    "gnats.jetstream.engine",
    "gnats.jetstream.state",
    "gnats.jetstream.consumer",
    "gnats.jetstream.publish",
    "gnats.jetstream.batch",
    "gnats.jetstream.stream",
    "gnats.jetstream",
    "gnats.jwt",
    "gnats.options.values",
    "gnats.tls",
    "gnats.options.keys",
    "gnats.options",
    "gnats.connection",
    "gnats.runtime",
    "gnats.accounts",
    "gnats.client",
    "gnats.resolver",
    "gnats.events",
    "gnats.auth",
    "gnats.cluster",
    "gnats.leafnodes",
    "gnats.gateways",
    "gnats.operator",
    "gnats.jetstream.settings",
    "gnats.jetstream.cluster",
    "gnats.jetstream.disk",
    "gnats.jetstream.control",
    "gnats.jetstream.api",
    "gnats.monitor.pages",
    "gnats.monitor",
    "gnats.server",
    "gnats.commands",
    "gnats.archive",
    "gnats.bench",
    "gnats",
)
"""Packages, and modules that stand alone, from the lowest to the highest: none imports one that follows
it. A module belongs to the longest name that is its own or begins it, and so at least to the last."""

Imports = dict[str, set[str]]
"""The modules that each module imports."""


def read_imports(root: Path) -> Imports:
    """Read every module of the package below `root`; a .pyx and a .pxd of one name are one module."""
    imports: Imports = {}
    for source in (root, root / "cython_src"):
        for path in sorted((source / "gnats").rglob("*")):
            if path.suffix not in (".py", ".pyx", ".pxd"):
                continue
            name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
            text = path.read_text()
            found = python_imports(ast.parse(text)) if path.suffix == ".py" else cython_imports(text)
            imports.setdefault(name, set()).update(found)
    return {name: (found & imports.keys()) - {name} for name, found in imports.items()}


def python_imports(tree: ast.AST) -> Iterator[str]:
    """Names that may be modules: `from a import b` may import a.b."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from python_imports(node)


def cython_imports(text: str) -> Iterator[str]:
    """The same of a .pyx or .pxd, which ast cannot parse."""
    for statement in CYTHON_IMPORT.finditer(text):
        source = statement["source"]
        if source:
            yield source
        for name in re.findall(r"[\w.]+", statement["names"]):
            yield f"{source}.{name}" if source else name


def find_circles(imports: Imports) -> list[list[str]]:
    """Modules that reach themselves, with all those that they reach and that reach them."""
    reached = {name: reach(imports, name) for name in imports}
    circles = {
        frozenset(other for other in others if name in reached[other])
        for name, others in reached.items()
        if name in others
    }
    return sorted(sorted(circle) for circle in circles)


def reach(imports: Imports, name: str) -> set[str]:
    """All that a module imports, directly or not."""
    found: set[str] = set()
    left = [name]
    while left:
        new = imports[left.pop()] - found
        found |= new
        left += new
    return found


def package_of(name: str) -> str:
    """The entry of ORDER that a module belongs to."""
    return max((each for each in ORDER if f"{name}.".startswith(f"{each}.")), key=len)


def find_upward(imports: Imports) -> list[tuple[str, str]]:
    """Imports of modules of higher packages: importer and imported."""
    rank = {package: number for number, package in enumerate(ORDER)}
    return sorted(
        (name, other)
        for name, others in imports.items()
        for other in others
        if rank[package_of(name)] < rank[package_of(other)]
    )


def main(root: Path) -> int:
    """Print each circle and each import upward below `root` in a line; 1 when there is one."""
    imports = read_imports(root)
    circles = find_circles(imports)
    for circle in circles:
        print(f"{len(circle)} modules import each other in a circle: {', '.join(circle)}")
    upward = find_upward(imports)
    for name, other in upward:
        print(f"{name} imports {other}, which is of a higher package")
    if not circles and not upward:
        print(f"{len(imports)} modules, no circles, no import upward")
    return 1 if circles or upward else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else ROOT))
