"""gnats archive on the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gnats.archive.cli import DAMAGED, archive_main, moment, size

from .stores import DAY, START, Writing, listed, parquet_files, plain

HERE = ["--engine", "processes", "--workers", "1"]


def gnats_archive(*args: object) -> int:
    return archive_main([str(arg) for arg in args])


def test_archive_compact_and_verify(orders: Writing, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        orders.publish(50)
        assert gnats_archive("--store", orders.root, "--out", out, "--stream", "ORDERS", *HERE) == 0
    text = capsys.readouterr()
    said = "$G > ORDERS: 50 messages archived (2,000 bytes, 1 files), 100 in all, up to sequence 100"
    assert text.out.splitlines()[1] == said
    assert text.err == ""
    assert gnats_archive("compact", "--out", out, "--all", *HERE) == 0
    assert capsys.readouterr().out == "$G > ORDERS: 2 files made 1, 1 in all\n"
    assert plain(listed(out)) == orders.rows
    assert gnats_archive("verify", "--store", orders.root, "--out", out, "--all", *HERE) == 0
    assert capsys.readouterr().out == "$G > ORDERS: good: 100 messages in 1 files\n"
    next(parquet_files(out)).unlink()
    assert gnats_archive("verify", "--out", out, "--all", *HERE) == 1
    assert "is missing" in capsys.readouterr().err


def test_streams_and_accounts_are_selected(tmp_path: Path, out: Path) -> None:
    root = tmp_path / "store"
    for account, stream in (("$G", "ORDERS"), ("$G", "OTHER"), ("A", "ORDERS"), ("A", "MORE")):
        Writing(root, stream, account).publish(3)

    def archived(*args: str) -> list[str]:
        directory = out / str(len(list(out.glob("*"))))
        directory.mkdir(parents=True)
        assert gnats_archive("--store", root, "--out", directory, *args, *HERE) == 0
        return sorted(f"{p.parts[-4][8:]}/{p.parts[-3][7:]}" for p in parquet_files(directory))

    assert archived("--stream", "ORDERS") == ["$G/ORDERS", "A/ORDERS"]
    assert archived("--stream", "ORDERS", "--account", "A") == ["A/ORDERS"]
    assert archived("--stream", "OTHER", "--stream", "MORE") == ["$G/OTHER", "A/MORE"]
    assert archived("--all") == ["$G/ORDERS", "$G/OTHER", "A/MORE", "A/ORDERS"]


def test_times(orders: Writing, out: Path) -> None:
    orders.publish(30, step=DAY // 10)
    since, until = ("--since", "2025-10-10"), ("--until", "2025-10-11T00:00:00Z")
    assert gnats_archive("--store", orders.root, "--out", out, "--all", *since, *until, *HERE) == 0
    assert {path.parent.name for path in parquet_files(out)} == {"date=2025-10-10"}
    assert len(listed(out)) == 10


def test_numbers() -> None:
    assert [size(text) for text in ("1", "2k", "3M", "1G")] == [1, 2048, 3 << 20, 1 << 30]
    assert moment("1970-01-02T00:00:00.000001") == DAY + 1000
    assert moment("1970-01-02T02:00:00+02:00") == DAY
    assert moment("2025-10-09T08:53:21Z") == START


@pytest.mark.parametrize(
    "args, reason",
    [
        (("--store", "nowhere", "--all"), "nowhere does not exist"),
        (("--store", ".", "--all"), "is no JetStream store"),
        (("--store", "store", "--stream", "NO"), "stream NO is not in store; there: ORDERS"),
        (("--store", "store"), "say which: --stream NAME, or --all"),
        (("--store", "store", "--all", "--out", "file/x"), "file/x"),
        (("--store", "store", "--all", "--out", "ftp://x/y"), "ftp:// is not supported as a target"),
        (("--store", "store", "--all", "--key-file", "nokey"), "nokey"),
        (("--store", "store", "--all", "--since", "soon"), "invalid moment value: 'soon'"),
        (("--nonsense",), "the following arguments are required: --store"),
    ],
)
def test_bad_input_is_one_line_and_status_1(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Writing(tmp_path / "store").publish(1)
    (tmp_path / "file").write_text("")
    try:
        status = gnats_archive("--out", "out", *args, *HERE)
    except SystemExit as exc:
        status = int(exc.code or 0)
    text = capsys.readouterr()
    assert (status, text.out) == (1, "")
    assert reason in text.err
    assert text.err.count("\n") == 1
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_damage_has_a_status_of_its_own(
    orders: Writing, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders.publish(200)
    path = orders.directory / "msgs" / "2.blk"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    args = ("--store", orders.root, "--out", out, "--all", *HERE)
    assert gnats_archive(*args) == DAMAGED
    assert "gnats archive: damage: $G > ORDERS: block 2, bytes " in capsys.readouterr().err
    assert len(listed(out)) >= 198


def test_the_server_needs_nothing_of_it() -> None:
    code = "import sys, gnats.main, gnats.cli; print({'pyarrow', 'pyspark'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "set()\n", done.stderr
