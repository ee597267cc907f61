"""No statement of the stores and of the archive drops a result, unless the table here says why it may."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCES = Path(__file__).parents[3] / "cython_src"
FOLDERS = ("store", "archive", "includes")
"""Folders whose statements are checked; the functions that these call may be anywhere."""
DEFINED = re.compile(
    r"^(?P<indent> *)cdef (?:inline )?(?P<type>(?:const )?(?:unsigned )?\w+) *\**(?P<name>\w+)\((?P<rest>.*)$"
)
PYTHON = re.compile(r"^ +def (\w+)\(")
CALLED = re.compile(r"^ *(?:\(<\w+> [\w.\[\]]+\)\.|(?P<of>[\w.\[\]]+)\.)?(?P<name>\w+)\(.*\)$")
"""A statement that is a call: of a function, or of a method, perhaps of an object that is cast."""
CIMPORT = re.compile(r"^from (?P<module>[\w.]+) cimport (?P<names>.+)$")
RAISES = re.compile(r"\) except[ :]")
"""Such a result says that an exception was raised, and Cython looks at it."""
OBJECTS = frozenset(["void", "object", "list", "dict", "tuple", "bytes", "str", "set"])

MAY_BE_DROPPED = {
    # for the convenience of some callers
    "block_encode": "the checksum, which a block that is rewritten gets from its file",
    "chains_remove": "whether it was there",
    "env_fail": "the error that it was given",
    "env_sync_failed": "the error that it was given",
    "found": "True",
    "put_text": "where the text ends",
    "record_encode": "the checksum",
    "record_put": "where the record ends",
    "seqset_encode": "the length, which the caller has",
    "stree_delete": "whether it was there",
    "subject_removed": "how many messages are left",
    "wheel_remove": "whether it was there",
    # another way says it
    "enforce_bytes": "env.error; without memory, the limit is enforced with the next message",
    "enforce_msgs": "env.error; without memory, the limit is enforced with the next message",
    "enter": "it.failed",
    "first_of": "without it subjects_state() shows a bound",
    "last_of": "without it subjects_state() shows a bound",
    "next_child": "there is one: the node was counted",
    "open_file": "a zone that was not opened is UTC",
    "open_named": "a zone that was not opened is UTC",
    "parse_message_ttl": "0 stays: no TTL",
    "take": "a sign that may be there",
    "zone_seconds": "a probe for tests",
    # it cannot fail there
    "blk_add": "a block was taken out before, so there is room",
    "block_record": "the record was read before",
    "seqset_delete_range": "no whole node is cut, seqset_prepare_cut() has made room, or the store is frozen",
    # a failure does no harm
    "blk_load": "the block is loaded when it is used next",
    "block_set_aside": "the file stays, and the next start reads it again",
    "block_unlink": "the file stays, and the next start reads it again",
    "move_block": "the store is frozen, and the next start finishes the purge",
    "rebuild_subjects": "subjects_stale stays set, for the next maintain()",
    "remove_dir": "the next purge, or the next start, tries again",
    "remove_purged": "the next maintain() tries again",
    "seqset_insert_range": "lost sequences are then not listed",
    "write_state": "without an index the next start reads all records",
}
"""Functions of gnats whose results a statement may drop, and the reason."""


OF_PYTHON = "append", "flush", "write"
"""Methods of lists and files that some class of the data plane has, too."""


class Defined(NamedTuple):
    functions: dict[tuple[str, str], bool]
    """Whether a function has a result that its caller must use, by module and name."""
    methods: dict[str, set[bool]]
    """The same for the methods of all classes, by name."""


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each logical line with the number of its first line, without comments and docstrings."""
    whole, first, quoted = "", 0, False
    for number, line in enumerate(text.splitlines(), 1):
        if quoted or line.strip().startswith('"""'):
            if line.count('"""') == 1:
                quoted = not quoted
            continue
        code = line.split("  #")[0].rstrip()
        if code.lstrip().startswith("#"):
            continue
        whole, first = (f"{whole} {code.strip()}", first) if whole else (code, number)
        if whole.count("(") + whole.count("[") <= whole.count(")") + whole.count("]"):
            if whole.strip():
                yield first, whole
            whole = ""


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts)


def definitions(texts: dict[Path, str]) -> Defined:
    """Find the functions and methods that have results."""
    functions: dict[tuple[str, str], bool] = {}
    methods: dict[str, set[bool]] = defaultdict(set, {name: {False} for name in OF_PYTHON})
    for path, text in texts.items():
        for _, statement in statements(text):
            if head := DEFINED.match(statement):
                has_result = head["type"] not in OBJECTS and not RAISES.search(statement)
                if head["indent"]:
                    methods[head["name"]].add(has_result)
                else:
                    functions[module_of(path), head["name"]] = has_result
            elif python := PYTHON.match(statement):
                methods[python[1]].add(False)
    return Defined(functions, methods)


def cimported(text: str) -> dict[str, tuple[str, str]]:
    """Return (module, name) for each name that a text cimports."""
    found = {}
    for _, statement in statements(text):
        if line := CIMPORT.match(statement):
            for part in line["names"].strip("()").split(","):
                name, _, alias = part.strip().partition(" as ")
                found[alias or name] = line["module"], name
    return found


def dropped(module: str, text: str, known: Defined) -> Iterator[tuple[int, str]]:
    """Yield the line and the function of each statement that drops a result.

    A method that one class has with a result and another one without is not looked at.
    """
    names = cimported(text)
    for number, statement in statements(text):
        call = CALLED.match(statement)
        if call is None:
            continue
        name = call["name"]
        if statement.lstrip().startswith("(<") or (call["of"] and call["of"] not in names):
            has_result = known.methods.get(name) == {True}
        else:
            where = ".".join(names[call["of"]]) if call["of"] else module
            has_result = known.functions.get(names.get(name, (where, name)), False)
        if has_result:
            yield number, name


def test_no_result_is_dropped() -> None:
    texts = {path: path.read_text() for path in sorted((SOURCES / "gnats").rglob("*.p[xy][xd]"))}
    known = definitions(texts)
    found = [
        (f"{path.relative_to(SOURCES)}:{number}", name)
        for folder in FOLDERS
        for path, text in texts.items()
        if path.is_relative_to(SOURCES / "gnats" / folder)
        for number, name in dropped(module_of(path), text, known)
    ]
    assert [f"{where}: {name}()" for where, name in found if name not in MAY_BE_DROPPED] == []
    assert not MAY_BE_DROPPED.keys() - {name for _, name in found}, "no statement drops these any more"


SAMPLE = """
from gnats.store.a cimport (
    store,
    other as renamed,
)

cdef class Store:
    cdef int sync(self) noexcept nogil:
        return 0

cdef void work(Store s):
    '''Text: store(1)'''
    STATEMENT
"""


@pytest.mark.parametrize(
    "statement", ["store(s)", "renamed(s)", "local(s,\n        2)", "s.sync()", "(<Store> s.x).sync()"]
)
def test_a_dropped_result_is_found(statement: str) -> None:
    texts = {
        SOURCES / "gnats/store/a.pxd": "cdef int store(s) noexcept nogil\ncdef bint other(s) noexcept\n",
        SOURCES / "gnats/store/b.pyx": SAMPLE.replace("STATEMENT", statement)
        + "cdef int local(s, n) noexcept:\n",
    }
    [(_, text)] = list(texts.items())[1:]
    assert len(list(dropped("gnats.store.b", text, definitions(texts)))) == 1


@pytest.mark.parametrize(
    "statement",
    ["rc = store(s)", "return store(s)", "if store(s):", "raises(s)", "nothing(s)", "s.append(1)"],
)
def test_a_result_that_is_used_is_not_found(statement: str) -> None:
    texts = {
        SOURCES / "gnats/store/a.pxd": "cdef int store(s) noexcept nogil\ncdef bint other(s) noexcept\n",
        SOURCES / "gnats/store/b.pyx": SAMPLE.replace("STATEMENT", statement)
        + "cdef int raises(s) except -1:\ncdef void nothing(s) noexcept:\n",
    }
    [(_, text)] = list(texts.items())[1:]
    assert list(dropped("gnats.store.b", text, definitions(texts))) == []
