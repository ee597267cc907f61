"""docs/where-is-it.md, and the tool that writes it."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).resolve().parents[3]
CORE = "cython_src/gnats/core"


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("where_is_it", ROOT / "tools" / "where_is_it.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["where_is_it"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = load_tool()


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def rows(root: Path, table: dict[str, str], plain: str = "") -> list[str]:
    """Write the page for a tree; return its lines about functions and modules."""
    text = tool.draw(tool.Map(tool.read_tree(root), table, plain))
    return [line for line in text.splitlines() if line and "---" not in line and "nats-server" not in line]


def check(monkeypatch: pytest.MonkeyPatch, root: Path) -> int:
    monkeypatch.setattr(tool, "ROOT", root)
    monkeypatch.setattr(sys, "argv", ["where_is_it.py", "--check"])
    return tool.main()


def test_the_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(monkeypatch, ROOT) == 0, capsys.readouterr().err


def test_links_of_the_page_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)]*)\)", (ROOT / tool.PAGE).read_text())
    assert len(links) > 500
    assert [link for link in links if not (ROOT / "docs" / link).is_file()] == []


def test_a_page_that_is_out_of_date_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "TABLE", {"x.go": ""})
    monkeypatch.setattr(tool, "PLAIN", "")
    write(tmp_path, {"gnats/x.py": '"""X (x.go)."""\n', "docs/where-is-it.md": "old\n"})
    assert check(monkeypatch, tmp_path) == 1
    assert capsys.readouterr().err == "docs/where-is-it.md is out of date: run `make docs`\n"
    monkeypatch.setattr(tool, "TABLE", {"x.go": "noSuchThing"})
    assert check(monkeypatch, tmp_path) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_module_docstring_names_its_go_files(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            f"{CORE}/trie.pxd": '"""A trie (ports sublist.go)."""\n',
            f"{CORE}/list.pxd": '"""A list (half of sublist.go, and avl/seqset.go)."""\n',
            f"{CORE}/list.pyx": '"""A list; see list.pxd."""\n',
            "gnats/archive/other.py": '"""Not a port (nats.go)."""\n',
        },
    )
    assert rows(tmp_path, {"sublist.go": ""}, "avl/seqset.go") == [
        "## avl/seqset.go",
        f"[core/list.pyx](../{CORE}/list.pyx)",
        "## sublist.go",
        f"[core/list.pyx](../{CORE}/list.pyx), [core/trie.pxd](../{CORE}/trie.pxd)",
    ]


def test_a_docstring_names_a_go_function(tmp_path: Path) -> None:
    shadows = '''"""Accounts (accounts.go)."""


class Account:
    """One of them (by McKenney)."""

    def shadows(self) -> None:
        """Make shadows (addShadowSubscriptions), of 64 (MiB of x)."""
'''
    mix = '''"""Options (opts.go; AddWeightedMappings in accounts.go)."""


async def mix() -> None:
    """Mix (parseTLS and GenTLSConfig in opts.go)."""
'''
    write(tmp_path, {"gnats/accounts.py": shadows, "gnats/opts.py": mix})
    assert rows(tmp_path, {"accounts.go": "", "opts.go": ""}) == [
        "## accounts.go",
        "[accounts.py](../gnats/accounts.py), [opts.py](../gnats/opts.py)",
        "| `addShadowSubscriptions` | `Account.shadows` in [accounts.py](../gnats/accounts.py) |",
        "| `AddWeightedMappings` | [opts.py](../gnats/opts.py) |",
        "## opts.go",
        "[opts.py](../gnats/opts.py)",
        "| `GenTLSConfig` | `mix` in [opts.py](../gnats/opts.py) |",
        "| `parseTLS` | `mix` in [opts.py](../gnats/opts.py) |",
    ]


def test_a_function_of_the_table_is_found_by_its_name_in_snake_case(tmp_path: Path) -> None:
    client = """cdef class Client(Parser):
    cdef int process_sub(self) noexcept nogil:
        self.add()
        return 0


cdef inline bint is_tls(
    char *p, size_t n,
) noexcept nogil:
    return n
"""
    stub = "    cdef int process_sub(self) noexcept nogil"
    write(
        tmp_path,
        {
            f"{CORE}/parser.pxd": f"cdef class Parser:\n{stub}\n",
            f"{CORE}/parser.pyx": f"cdef class Parser:\n{stub}:\n        return 0\n",
            f"{CORE}/client.pyx": client,
            f"{CORE}/deeper/batch.pyx": "cdef void end_batch(int (*f)(void *)) nogil:\n    f(NULL)\n",
        },
    )
    in_client = f"[core/client.pyx](../{CORE}/client.pyx)"
    in_batch = f"[core/deeper/batch.pyx](../{CORE}/deeper/batch.pyx)"
    assert rows(tmp_path, {"client.go": "core/batch processSub isTLS flushClients=batch.end_batch"}) == [
        "## client.go",
        in_batch,
        f"| `flushClients` | `end_batch` in {in_batch} |",
        f"| `isTLS` | `is_tls` in {in_client} |",
        f"| `processSub` | `Client.process_sub` in {in_client} |",
    ]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("processPub", "nothing is called processPub"),
        ("processPub=pub", "nothing is called pub"),
        ("readLoop=nothing_such", "nothing is called nothing_such"),
        ("core/batch", "no module is called core/batch"),
        ("close=close", "say which"),
    ],
)
def test_what_is_not_there_is_an_error(tmp_path: Path, words: str, error: str) -> None:
    close = 'def close() -> None:\n    """Close (readLoop)."""\n    print()\n'
    write(tmp_path, {"gnats/a.py": f'"""A (client.go)."""\n{close}', "gnats/b.py": close})
    with pytest.raises(tool.NotFoundError, match=error):
        rows(tmp_path, {"client.go": words})


def test_a_go_file_that_is_not_known_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {"gnats/a.py": '"""A (clint.go)."""\n'})
    with pytest.raises(tool.NotFoundError, match=re.escape("gnats/a.py names clint.go")):
        rows(tmp_path, {})


def test_a_go_file_that_no_module_ports_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(tool.NotFoundError, match=re.escape("client.go: no docstring names it")):
        rows(tmp_path, {"client.go": ""})
