"""Numbers and layouts that Python repeats are the same as in the data plane."""

from __future__ import annotations

import ctypes
import inspect
import re
import struct
from pathlib import Path

import pytest

from gnats.events import latency, msgtrace
from gnats.jetstream import errors
from gnats.jetstream.publish.errors import publish_error
from gnats.options.options import MAX_IO_THREADS
from gnats.store.format.record import OVERHEAD, encode
from gnats.tls import errors as tls_errors

SOURCES = Path(__file__).parents[3] / "cython_src" / "gnats"
CODES = {
    "int64_t": ("q", ctypes.c_int64),
    "uint64_t": ("Q", ctypes.c_uint64),
    "uint32_t": ("I", ctypes.c_uint32),
    "uint8_t": ("B", ctypes.c_uint8),
    "char": ("c", ctypes.c_char),
}
"""By type of C: the code that module struct has for it, and the type that ctypes has."""


def block_of(path: str, head: str) -> list[str]:
    """Return the lines of a declaration, without comments."""
    text = (SOURCES / path).read_text()
    found = re.search(rf"^cdef {head}:\n((?: +.*\n|\n)+)", text, re.MULTILINE)
    assert found, (path, head)
    return [code for line in found[1].splitlines() if (code := line.partition("#")[0].strip())]


def fields_of(path: str, name: str) -> list[tuple[str, str]]:
    """Return the members of a struct: (type, name), an array's as often as it has elements."""
    fields = []
    for line in block_of(path, f"struct {name}"):
        kind, members = line.split(None, 1)
        for member in members.split(","):
            found = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", member.strip())
            assert found, line
            fields += [(kind, f"{found[1]}{i}") for i in range(int(found[2] or 1))]
    return fields


def enum_of(path: str, first: str) -> dict[str, int]:
    """Return the values of the enum in which a name is."""
    text = (SOURCES / path).read_text()
    for body in re.findall(r"^ *c?p?def enum[^:\n]*:\n((?: +.*\n)+)", text, re.MULTILINE):
        values: dict[str, int] = {}
        for line in body.splitlines():
            name, _, value = line.partition("#")[0].partition("=")
            if name.strip():
                values[name.strip()] = int(value, 0) if value.strip() else len(values)
        if first in values:
            return values
    raise AssertionError(f"{path} has no enum with {first}")


@pytest.mark.parametrize(
    ("path", "name", "shape"),
    [
        ("core/messages/msgtrace.pxd", "TraceHead", msgtrace._HEAD),
        ("core/messages/msgtrace.pxd", "TraceEntry", msgtrace._ENTRY),
        ("core/messages/responses.pxd", "Measured", latency._MEASURED),
    ],
)
def test_python_reads_structs_as_the_compiler_lays_them_out(
    path: str, name: str, shape: struct.Struct
) -> None:
    fields = fields_of(path, name)
    codes = "".join("x" if member.startswith("unused") else CODES[kind][0] for kind, member in fields)
    assert shape.format == f"={codes}"
    laid_out = type(name, (ctypes.Structure,), {"_fields_": [(n, CODES[kind][1]) for kind, n in fields]})
    assert ctypes.sizeof(laid_out) == shape.size


def test_traces_have_a_text_for_each_outcome_of_a_delivery() -> None:
    outcomes = enum_of("core/routing/delivery.pxd", "EGRESS_OK")
    assert set(msgtrace._EGRESS_ERRORS) == set(outcomes.values()) - {outcomes["EGRESS_OK"]}
    refusals = enum_of("core/messages/msgtrace.pxd", "REFUSED_SIZE")
    assert set(msgtrace._REFUSALS) == set(refusals.values()) - {refusals["REFUSED_SIZE"]}
    reasons = enum_of("core/messages/msgtrace.pxd", "TRACE_DUPLICATE")
    assert reasons == {
        "TRACE_DUPLICATE": msgtrace._DUPLICATE,
        "TRACE_LAST_SUBJECT_SEQUENCE": msgtrace._LAST_SUBJECT_SEQUENCE,
    }


def test_one_poller_is_the_loops() -> None:
    assert enum_of("core/runtime/state.pxd", "MAX_POLLERS")["MAX_POLLERS"] - 1 == MAX_IO_THREADS


def test_a_record_has_the_overhead_that_block_sizes_count() -> None:
    assert len(encode(b"S-1", 1, 0, b"subject", b"header", b"payload")) == OVERHEAD + 7 + 6 + 7


def test_every_error_of_the_api_has_one_place_and_a_text() -> None:
    publishing = enum_of("jetstream/publish/errors.pxd", "ERR_SEALED")
    for code in publishing.values():
        assert publish_error(code) != publish_error(0), code
    kinds = [kind.err_code for _, kind in inspect.getmembers(errors) if isinstance(kind, errors.Kind)]
    assert len(kinds) == len(set(kinds))
    shared = {publishing[name] for name in vars(errors) if name.startswith("ERR_")}
    assert set(kinds) & set(publishing.values()) == shared


def test_tls_errors_of_gnats_have_the_numbers_of_the_data_plane() -> None:
    numbers = enum_of("core/tls/tlsstate.pxd", "TLS_NO_MEMORY")
    assert {
        name: numbers[name] for name in ("TLS_EOF", "TLS_SYSCALL", "TLS_NOT_PINNED", "TLS_NO_MEMORY")
    } == {
        "TLS_EOF": tls_errors._EOF,
        "TLS_SYSCALL": tls_errors._SYSCALL,
        "TLS_NOT_PINNED": tls_errors._NOT_PINNED,
        "TLS_NO_MEMORY": tls_errors._NO_MEMORY,
    }
