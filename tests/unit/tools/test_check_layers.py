"""tools/check_layers.py finds circles of imports, and imports of higher packages."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(60)

TOOL = Path(__file__).parents[3] / "tools" / "check_layers.py"


def check(root: Path, modules: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the tool on a tree of these modules."""
    for path, text in modules.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    command = [sys.executable, str(TOOL), str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_modules_in_layers_are_accepted(tmp_path: Path) -> None:
    done = check(
        tmp_path,
        {
            "gnats/__init__.py": "",
            "gnats/a.py": "import os\n\nfrom gnats import b\nimport gnats.core.d\n",
            "gnats/b.py": "from gnats.core.d import name\n",
            "cython_src/gnats/core/d.pyx": "from gnats.core.d cimport f\nfrom gnats.core cimport e\n",
            "cython_src/gnats/core/d.pxd": "from gnats.core.e cimport (\n    g,\n    h,\n)\n",
            "cython_src/gnats/core/e.pxd": "from libc.stdlib cimport free\n",
        },
    )
    assert (done.returncode, done.stdout) == (0, "5 modules, no circles, no import upward\n")


def test_each_circle_is_named_in_a_line(tmp_path: Path) -> None:
    done = check(
        tmp_path,
        {
            "gnats/a.py": "from gnats import b\n",
            "gnats/b.py": "import gnats.c as c\n",
            "gnats/c.py": "def late():\n    from gnats.a import name\n",
            "gnats/d.py": "import gnats.a, gnats.e\n",
            "gnats/e.py": "if 1:\n    from gnats.d import name\n",
            "gnats/f.py": "from gnats.e import name\n",
        },
    )
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "3 modules import each other in a circle: gnats.a, gnats.b, gnats.c",
        "2 modules import each other in a circle: gnats.d, gnats.e",
    ]


@pytest.mark.parametrize(
    "low",
    [
        "from gnats.core.high cimport f\n",
        "from gnats.core cimport low, high\n",
        "from gnats.core.high cimport (  # a comment\n    f,\n)\n",
        "from gnats.core cimport (\n    high,\n)\n",
        "cimport gnats.core.high as h\n",
        "import gnats.core.high\n",
        "def late():\n    from gnats.core.high import f\n",
    ],
)
def test_a_circle_of_compiled_modules_is_found(tmp_path: Path, low: str) -> None:
    done = check(
        tmp_path,
        {
            "cython_src/gnats/core/high.pxd": "from gnats.core.low cimport g\n",
            "cython_src/gnats/core/low.pyx": low,
        },
    )
    assert done.returncode == 1
    assert done.stdout == "2 modules import each other in a circle: gnats.core.high, gnats.core.low\n"


def test_a_circle_through_python_and_cython_is_found(tmp_path: Path) -> None:
    done = check(
        tmp_path,
        {
            "gnats/a.py": "from gnats.core.b import name\n",
            "cython_src/gnats/core/b.pyx": "from gnats.a import other\n",
        },
    )
    assert done.returncode == 1


def test_an_import_for_types_alone_counts(tmp_path: Path) -> None:
    low = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import gnats.high\n"
    assert check(tmp_path, {"gnats/high.py": "import gnats.low\n", "gnats/low.py": low}).returncode == 1


def test_an_import_of_a_higher_package_is_found(tmp_path: Path) -> None:
    done = check(
        tmp_path,
        {
            "gnats/errors.py": "",
            "gnats/top.py": "import gnats.core.low\nimport gnats.errors\n",
            "cython_src/gnats/core/low.pyx": "def late():\n    from gnats.top2 import name\n",
            "gnats/top2.py": "",
        },
    )
    assert done.returncode == 1
    assert done.stdout == "gnats.core.low imports gnats.top2, which is of a higher package\n"
