"""The files of a stream in a tar file, as nats-server before 2.15 backed it up.

The parser reads archives of tarfile, and a made-up archive costs no more memory than its bytes."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from gnats.jetstream.disk.backup import BackupError
from gnats.jetstream.disk.backup_parts import extract

LONG = "obs/" + "ö" * 120 + "/meta.inf"
ZERO = bytes(1024)


def written(files: dict[str, bytes], format: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if format == tarfile.PAX_FORMAT:
                info.pax_headers = {"mtime": "1.5"}
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def header(kind: bytes, size: int, name: str = "msgs/1.blk") -> bytes:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = size
    block: bytes = info.tobuf(tarfile.USTAR_FORMAT)
    return block


def member(kind: bytes, data: bytes) -> bytes:
    return header(kind, len(data)) + data + bytes(-len(data) % 512)


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_are_extracted(format: int, tmp_path: Path) -> None:
    files = {"meta.inf": b"", "meta.sum": b"x" * 16, "msgs/1.blk": bytes(range(256)) * 8192}
    files["obs/" + "o" * 90 + "/meta.inf" if format == tarfile.USTAR_FORMAT else LONG] = b"y"
    extract(io.BytesIO(written(files, format)), tmp_path)
    assert {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*") if each.is_file()} == files.keys()
    assert all((tmp_path / name).read_bytes() == data for name, data in files.items())


def test_many_headers_of_one_file(tmp_path: Path) -> None:
    headers = member(b"x", b"") * 3000 + member(b"x", b"19 path=msgs/2.blk\n")
    extract(io.BytesIO(headers + member(b"0", b"content") + ZERO), tmp_path)
    assert (tmp_path / "msgs/2.blk").read_bytes() == b"content"


INVALID, CONTENT, END = "archive/tar: invalid tar header", "unexpected content", "unexpected EOF"
MADE_UP = {
    "digits": (member(b"x", b"1" * (1 << 20)), INVALID),
    "large": (header(b"x", (1 << 20) + 1), "archive/tar: header field too long"),
    "a name of gigabytes": (header(b"L", (8 << 30) - 1), "archive/tar: header field too long"),
    "no length": (member(b"x", b"0 path=x\n"), INVALID),
    "a length of more": (member(b"x", b"99 path=x\n"), INVALID),
    "no line": (member(b"x", b"10 path=xx"), INVALID),
    "less than nothing": (member(b"x", b"11 size=-1\n"), INVALID),
    "sparse": (member(b"x", b"22 GNU.sparse.major=1\n"), CONTENT),
    "sparse in GNU's way": (member(b"S", b"1"), CONTENT),
    "cut": (member(b"0", b"1")[:-1], END),
    "cut in front": (header(b"0", (8 << 30) - 1), END),
    "a wrong sum": (header(b"0", 0)[:-1] + b"x", INVALID),
    "half an end": (bytes(512) + header(b"0", 0), INVALID),
    "short": (b"short", END),
}


@pytest.mark.parametrize(("data", "why"), MADE_UP.values(), ids=MADE_UP)
def test_what_is_made_up_is_refused(data: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(BackupError, match=f"^{why}"):
        extract(io.BytesIO(data), tmp_path)
    assert not any(each.stat().st_size > 1 for each in tmp_path.rglob("*.blk"))
