"""Backups as a source: the archive reads the messages that the server had, one by one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.archive_homes import encode
from support.backups import Entry, archive, backup, state, take, tar_backup
from support.caller import Caller
from support.servers import Kind, Server

from gnats.archive import ArchiveError, StreamDir, StreamSource, find_streams, read_stream
from gnats.archive.cli import archive_main
from gnats.archive.reading.streams import BACKUP_DATA, BACKUP_META
from gnats.archive.text import unshow
from gnats.codec import s2

from .stores import listed
from .test_stores import Row, config, fill, limited, plain, purged, serves, squeezed

ARC, TAR = BACKUP_DATA
HERE = ["--engine", "processes", "--workers", "1"]


def save(directory: Path, name: str, data: bytes, answer: Any = None, file: str = ARC) -> Path:
    """Write a backup to a directory as the client does; return its path."""
    directory.mkdir(parents=True)
    (directory / BACKUP_META).write_text(json.dumps(answer or {"config": {"name": name}}))
    (directory / file).write_bytes(data)
    return directory


def read(path: Path, work_dir: Path) -> list[Row]:
    found: list[Row] = []
    for batch in read_stream(path, work_dir=work_dir, batch_rows=50):
        for each in batch.to_pylist():
            subject = unshow(each["subject"]).decode(errors="replace")
            found.append(
                (each["sequence"], each["time_ns"], subject, encode(each["headers"]), each["payload"])
            )
    return found


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The directory to unpack backups in, which must be empty at the end of a test."""
    path = tmp_path / "work"
    path.mkdir()
    return path


def test_backups_of_servers(
    kind: Kind, tmp_path: Path, work: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, saved, old = tmp_path / "store", tmp_path / "saved", tmp_path / "old"
    server = Server(kind, tmp_path / "server", config=config(root, ""))
    try:
        asyncio.run(fill(server, [plain, purged, squeezed, limited]))
        live = asyncio.run(serves(server))
        with Caller(server) as caller:
            for name in live:
                taken = take(caller, name)
                save(saved / name, name, taken.data, taken.answer)
    finally:
        server.stop()
    for name, rows in live.items():
        assert read(saved / name, work) == rows
    for stream in find_streams(root):
        save(old / stream.name, stream.name, tar_backup(Path(stream.path)), file=TAR)
        files = StreamSource(stream).snapshot()
        found = read(old / stream.name, work)
        assert found[-len(live[stream.name]) :] == live[stream.name]
        assert len(found) == files.messages
    assert not list(work.iterdir())

    for what in (["--all"], ["verify", "--all"]):
        args = [*what, "--store", str(saved), "--out", str(out), "--account", "A", "--work-dir", str(work)]
        assert archive_main([*args, *HERE]) == 0, capsys.readouterr().err
    assert "A > SQUEEZED: good" in capsys.readouterr().out
    for name, rows in live.items():
        archived = listed(out / "account=A" / f"stream={name}")
        assert [(each["sequence"], each["time_ns"], each["payload"]) for each in archived] == [
            (seq, ns, payload) for seq, ns, _, _, payload in rows
        ]
    assert not list(work.iterdir())


def test_messages_that_have_expired_since_are_read(tmp_path: Path, work: Path) -> None:
    header = b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n"
    saved = save(
        tmp_path / "b", "S", backup(state(3, 9), Entry(b"s", b"x", 5, 4, header), Entry(b"s", b"", 6, 7))
    )
    assert read(saved, work) == [(4, 5, "s", header, b"x"), (7, 6, "s", b"", b"")]


def test_the_next_backup_of_a_stream_adds_what_is_new(tmp_path: Path, out: Path) -> None:
    for day, last in enumerate((20, 20, 45)):
        messages = [
            Entry(b"s.%d" % (seq % 3), b"%d" % seq, seq * 10**9, seq) for seq in range(day + 1, last + 1)
        ]
        saved = save(tmp_path / str(day), "S", backup(state(day + 1, last), *messages))
        assert archive_main(["--store", str(saved), "--out", str(out), "--all", *HERE]) == 0
    assert sorted(row["sequence"] for row in listed(out)) == list(range(1, 46))


def test_an_unpacked_backup_is_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = save(tmp_path / "b", "S", backup(state(1, 1), Entry(b"s", b"x", 5, 1)))
    (stream,) = find_streams(saved)
    with pytest.raises(ArchiveError, match="is a backup, which is not read in place"):
        StreamSource(stream).snapshot()
    unpack = ["unpack", "--store", str(saved), "--to", str(tmp_path / "to"), "--all"]
    assert archive_main(unpack) == 0
    (made,) = find_streams(tmp_path / "to")
    assert made == StreamDir("$G", "S", str(tmp_path / "to/jetstream/$G/streams/S"))
    assert StreamSource(made).snapshot().messages == 1
    assert archive_main(unpack) == 1
    assert capsys.readouterr().err.endswith("streams/S is there already\n")
    (saved / ARC).write_bytes(WHOLE[:-9])
    assert archive_main([*unpack, "--account", "A"]) == 1
    assert "is damaged" in capsys.readouterr().err
    assert find_streams(tmp_path / "to") == [made]


def test_an_older_backup_is_told_by_its_own_name(
    tmp_path: Path, work: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, last in (("new", 9), ("old", 5)):
        entries = [Entry(b"s", b"x", seq, seq) for seq in range(1, last + 1)]
        saved = save(tmp_path / name, "S", backup(state(1, last), *entries))
        args = ["--store", str(saved), "--out", str(out), "--all", "--work-dir", str(work), *HERE]
        status = archive_main(args)
    assert status == 1
    assert capsys.readouterr().err.startswith(f"gnats archive: {saved} ends at sequence 5, its archive ")


WHOLE = backup(state(1, 300), *(Entry(b"s", b"%d" % seq * 99, 1, seq) for seq in range(1, 301)))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (WHOLE[: len(WHOLE) // 2], "is damaged"),
        (WHOLE[: len(WHOLE) // 2] + b"?" + WHOLE[len(WHOLE) // 2 + 1 :], "is damaged: s2: corrupt input"),
        (backup(state(1, 2), Entry(b"s", b"x", 1, 1), end=False), "is damaged"),
        (backup(Entry(b"s", b"x", 1, 1)), "is damaged: expected state.json first"),
        (archive(state()), "is damaged: s2: corrupt input"),
        (s2.encode(b"no tar file, and no archive"), "is damaged: unexpected EOF"),
        (WHOLE[:30], "is damaged: it was truncated"),
        (b"", "is damaged: it is empty"),
    ],
    ids=["cut", "changed", "no end", "no state", "not compressed", "neither", "cut early", "empty"],
)
def test_damage_is_told_in_one_line(
    data: bytes, why: str, tmp_path: Path, work: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = save(tmp_path / "b", "S", data)
    with pytest.raises(ArchiveError, match=why):
        read_stream(saved, work_dir=work)
    args = ["--store", str(saved), "--out", str(out), "--all", "--work-dir", str(work), *HERE]
    assert archive_main(args) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"gnats archive: {saved / ARC} is damaged: ") and said.count("\n") == 1
    assert not list(work.iterdir())


def test_a_tar_file_that_is_damaged_or_of_another_stream(orders: Any, tmp_path: Path, work: Path) -> None:
    orders.publish(40, size=500)
    orders.store.close()
    whole = tar_backup(orders.directory)
    assert len(read(save(tmp_path / "whole", "ORDERS", whole, file=TAR), work)) == 40
    plain = s2.decode(whole, 1 << 30)
    cuts = [plain[:at] for at in (700, 512 * 9, len(plain.rstrip(b"\0")) // 512 * 512 + 512)]
    for number, cut in enumerate(cuts):
        saved = save(tmp_path / f"cut-{number}", "ORDERS", s2.encode(cut), file=TAR)
        with pytest.raises(ArchiveError, match=f"{TAR} is damaged: "):
            read_stream(saved, work_dir=work)
    for skip in ("meta.inf", "meta.sum"):
        saved = save(tmp_path / skip, "ORDERS", tar_backup(orders.directory, skip=skip), file=TAR)
        with pytest.raises(ArchiveError, match=f"{TAR} is damaged, or not of stream ORDERS: "):
            read_stream(saved, work_dir=work)
    other = save(tmp_path / "other", "OTHER", whole, file=TAR)
    with pytest.raises(ArchiveError, match=f"{TAR} is damaged, or not of stream OTHER: "):
        read_stream(other, work_dir=work)
    assert not list(work.iterdir())


def test_what_is_no_whole_backup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = save(tmp_path / "b", "S", WHOLE)
    for meta, why in (
        ("{", "does not say which stream"),
        ("[]", "does not say which stream"),
        ('{"config": {"name": "../S"}}', "which is no name"),
        ('{"config": {"name": 7}}', "which is no name"),
    ):
        (saved / BACKUP_META).write_text(meta)
        with pytest.raises(ArchiveError, match=why):
            find_streams(saved)
    (saved / BACKUP_META).write_text('{"config": {"name": "S"}}')
    missing = ["--store", str(saved), "--all", "--out", str(tmp_path / "out"), *HERE]
    assert archive_main([*missing, "--work-dir", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err
    assert archive_main([*missing, "--account", "A", "--account", "B"]) == 1
    assert "backups, which are of one account" in capsys.readouterr().err
    assert archive_main([*missing, "--purge-archived"]) == 1
    assert "not supported for backups" in capsys.readouterr().err
    (saved / ARC).unlink()
    with pytest.raises(ArchiveError, match="is no whole backup"):
        find_streams(tmp_path)
