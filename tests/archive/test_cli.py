"""The command `gnats archive`."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from gnats.archive.arguments import DAMAGED, moment, size
from gnats.archive.cli import archive_main
from gnats.archive.errors import ArchiveError
from gnats.archive.jobs.broker import Broker
from gnats.archive.storage import LocalStorage
from gnats.archive.target import Target

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
    assert moment("1970-01-02T00:00:00.000001002") == DAY + 1002
    assert moment("1970-01-02T02:00:00,0000010020+02:00") == DAY + 1002
    assert moment("19700102T000000.0000001Z") == DAY + 100


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("s3://ID:se/cret@bucket/a", "s3://bucket/a"),
        ("s3://ID:se cret@bucket/a", "s3://bucket/a"),
        ("s3://ID:se?cret@bucket/a", "s3://bucket/a"),
        ("s3://ID:se#cret@bucket/a", "s3://bucket/a"),
        ("s3://ID:secret@[bucket/a", "s3://[bucket/a"),
        ("s3://ID:secret@bucket:99999/a", "s3://bucket:99999/a"),
        ("s3://bucket/a@b?key=secret", "s3://bucket/a@b"),
        ("ftp://joe:secret@host/a", "ftp://"),
        ("file://joe:secret@host/a", "file://host/a"),
        ("hdfs://joe:secret@host:9000/a@b", "hdfs://host:9000/a@b"),
    ],
)
def test_an_error_has_no_password_of_a_target(url: str, named: str) -> None:
    with pytest.raises(ArchiveError) as error:
        Target(url).open()
    assert "cret" not in str(error.value)
    assert named in str(error.value)


@pytest.mark.parametrize(
    "server",
    [
        "nats://joe:secret@host:port",
        "joe:secret@host:99999",
        "nats://joe:se/cret@host",
        "nats://joe:[cret@host",
    ],
)
def test_an_error_has_no_password_of_a_server(server: str) -> None:
    with pytest.raises(ArchiveError, match=r"'nats://host.*' is no server") as error:
        Broker(server).check()
    assert "cret" not in str(error.value)


def test_a_name_does_not_write_to_the_terminal(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = Writing(tmp_path / "store", "A\x1b[2JB\x9b")
    stream.publish(3)
    assert gnats_archive("--store", stream.root, "--out", out, "--all", *HERE) == 0
    assert capsys.readouterr().out.startswith("$G > A\\x1b[2JB\\x9b: 3 messages archived")
    assert gnats_archive("restore", "--out", out, "--stream", "\x1b[2J") == 1
    assert "\\x1b[2J" in capsys.readouterr().err


def test_files_that_are_no_blocks(tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Foreign files in the directory of one stream do not stop the archiving of others."""
    first, second, third = (Writing(tmp_path / "store", name) for name in ("A", "B", "C"))
    for stream in (first, second, third):
        stream.publish(3)
        stream.store.close()
    os.mkfifo(first.directory / "msgs" / "8.blk")
    with (first.directory / "msgs" / "9.blk").open("wb") as large:
        large.truncate(1 << 40)
    (second.directory / "msgs" / "9.blk").symlink_to("9.blk")
    args = ["--store", str(tmp_path / "store"), "--out", str(out), "--all", *HERE]
    assert archive_main(args) == 1
    said = capsys.readouterr()
    assert "$G > A: 3 messages" in said.out and "$G > C: 3 messages" in said.out
    assert "damage: $G > A: block 8, bytes 0 to 0: it is no file" in said.err
    assert (
        "block 9, bytes 0 to 1099511627776: it has 1,099,511,627,776 bytes, and no block has more" in said.err
    )
    assert f"gnats archive: {second.directory}/msgs/9.blk cannot be read: Too many levels" in said.err


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
        (("--store", "store", "--all", "--since", "soon"), "'soon' is not a date or time in ISO 8601, as "),
        (("--store", "store", "--all", "--since", "0001-01-01"), "1677-09-22 to 2262-04-11"),
        (("--store", "store", "--all", "--until", "9999-12-31"), "1677-09-22 to 2262-04-11"),
        (
            ("--store", "store", "--all", "--since", "1970-01-02T00:00:00.0000000001"),
            "finer than a nanosecond",
        ),
        (("--store", "store", "--all", "--master", "local"), "--master needs --engine spark"),
        (("--store", "store", "--all", "--engine", "spark"), "--workers needs --engine processes"),
        (("--store", "store", "--all", "--server", "nats://x"), "--server needs --purge-archived"),
        (("--store", "store", "--all", "--creds", "x"), "--creds needs --purge-archived"),
        (("--store", "store", "--all", "--tls-ca", "x"), "--tls-ca needs --purge-archived"),
        (("--store", "store", "--all", "--js-domain", "x"), "--js-domain needs --purge-archived"),
        (("verify", "--all", "--key-file", "x"), "--key-file needs --store"),
        (("verify", "--all", "--cipher", "aes"), "--cipher needs --store"),
        (("verify", "--all", "--work-dir", "x"), "--work-dir needs --store"),
        (("--store", "store", "--all", "--file-size", "2X"), "'2X' is not bytes, or with K, M or G"),
        (("--store", "store", "--all", "--first-seq", "0"), "'0' is not a sequence"),
        (("--store", "store", "--all", "--last-seq", "-1"), "'-1' is not a sequence"),
        (("--store", "store", "--all", "--workers", "0"), "'0' is not a number of processes"),
        (("--store", "store", "--all", "--level", "23"), "'23' is not a level of zstd, 1 to 22"),
        (("restore", "--stream", "S", "--rate", "nan"), "'nan' is not a number of messages a second"),
        (("restore", "--stream", "S", "--rate", "-1"), "'-1' is not a number of messages a second"),
        (("restore", "--stream", "S"), "stream S is not in the archive out"),
        (("compat", "--all"), "no command 'compat'"),
        (("help",), "no command 'help'"),
        (("verify", "--all"), "no archived stream in out"),
        (("compact", "--all"), "no archived stream in out"),
        (
            ("--store", "store", "--all", "--account", "NO"),
            "no stream of account NO is in store; accounts there: $G",
        ),
        (
            ("--store", "store", "--stream", "ORDERS", "--account", "NO"),
            "no stream of account NO is in store",
        ),
        (("--store", "store", "--stream", "ORDERS", "--all"), "say one of --stream NAME and --all"),
        (("--store", "store", "--all", "--prev-key-file", "x"), "--prev-key-file needs --key-file"),
        (("--store", "store", "--all", "--cipher", "aes"), "--cipher needs --key-file"),
        (
            ("--store", "store", "--all", "--purge-archived", "--creds", "no.creds"),
            "credentials no.creds cannot",
        ),
        (
            ("--store", "store", "--all", "--purge-archived", "--creds", __file__),
            "are none: there is no JWT with a seed behind it",
        ),
        (("--store", "store", "--all", "--purge-archived", "--tls-ca", "no.pem"), "CA no.pem cannot be used"),
        (
            ("--store", "store", "--all", "--purge-archived", "--server", "http://x"),
            "'http://x' is no server",
        ),
        (
            ("--store", "store", "--all", "--purge-archived", "--server", "nats://x:y"),
            "'nats://x:y' is no server",
        ),
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
        command = () if args[0].startswith("-") else args[:1]
        engine = () if "restore" in command else HERE
        status = gnats_archive(*command, "--out", "out", *engine, *args[len(command) :])
    except SystemExit as exc:
        status = int(exc.code or 0)
    text = capsys.readouterr()
    assert (status, text.out) == (1, "")
    assert reason in text.err
    assert text.err.count("\n") == 1
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_names_that_are_not_in_the_archive(
    orders: Writing, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders.publish(1)
    assert gnats_archive("--store", orders.root, "--out", out, "--all", *HERE) == 0
    for command in ("verify", "compact"):
        assert gnats_archive(command, "--out", out, "--all", "--account", "NO", *HERE) == 1
        told = capsys.readouterr().err
        assert told == (
            f"gnats archive: no stream of account NO is in the archive {out}; accounts there: $G\n"
        )
        assert gnats_archive(command, "--out", out, "--stream", "NO", *HERE) == 1
        assert f"stream NO is not in the archive {out}; there: ORDERS" in capsys.readouterr().err


def test_what_is_wrong_with_a_stream_does_not_keep_others_back(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "store"
    streams = [Writing(root, name) for name in ("ONE", "TWO", "THREE")]
    for stream in streams:
        stream.publish(1)

    def told(status: int, *command: str) -> str:
        assert gnats_archive(*command, "--out", out, "--all", *HERE) == status
        return capsys.readouterr().err

    store = ("--store", str(root))
    (streams[1].directory / "meta.key").write_bytes(b"x")
    assert told(1, *store).startswith(f"gnats archive: {streams[1].directory}/meta.key is not opened")
    (streams[1].directory / "meta.key").unlink()
    assert len(list(parquet_files(out))) == 2
    assert told(0, *store) == ""
    for stream in streams:
        stream.publish(1)
    assert told(0, *store) == ""
    version = next((out / "account=$G" / "stream=TWO").glob("_manifest/*1.json"))
    before = version.read_bytes()
    version.write_text("{")
    for command in ((*store,), ("compact",), ("verify", *store), ("verify",)):
        assert str(version) in (line := told(1, *command)) and line.count("\n") == 1
    assert len(list(parquet_files(out))) == 4
    version.write_bytes(before)
    shutil.rmtree(streams[0].directory)
    assert told(1, "verify", *store) == f"gnats archive: $G > ONE is in the archive, and not in {root}\n"
    assert told(0, "verify") == ""


def test_without_a_target_no_other_stream_is_tried(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    for name in ("ONE", "TWO"):
        Writing(root, name).publish(1)
    monkeypatch.setattr(LocalStorage, "check_create", lambda *args: out.write_text("no directory"))
    assert gnats_archive("--store", root, "--out", out, "--all", *HERE) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_an_account_whose_name_is_no_text(
    orders: Writing, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (orders.root / "jetstream" / os.fsdecode(b"a\xff") / "streams" / "S" / "msgs").mkdir(parents=True)
    assert gnats_archive("--store", orders.root, "--out", out, "--all", *HERE) == 1
    assert "a\\xff: the name of this directory is no text" in capsys.readouterr().err


def test_partitions_of_an_archive_are_of_one_kind(
    orders: Writing, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Writing(orders.root, "OTHER")
    run = ("--store", orders.root, "--out", out, *HERE)
    for first, second in (("date", "hour"), ("hour", "date")):
        orders.publish(1)
        other.publish(1)
        assert gnats_archive(*run, "--stream", "ORDERS", "--partition", first) == 0
        assert gnats_archive(*run, "--stream", "OTHER", "--partition", second) == 1
        told = capsys.readouterr().err
        assert f"{out} has files by {first}, not by {second}: give --partition {first}" in told
        assert gnats_archive(*run, "--all", "--partition", first) == 0
        shutil.rmtree(out)


def test_the_help_tells_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    for command, statuses in (((), "0 1 3 130"), (("verify",), "0 1 130"), (("restore",), "0 1 130")):
        with pytest.raises(SystemExit, match="0"):
            gnats_archive(*command, "--help")
        text = capsys.readouterr().out.partition("exit status:\n")[2]
        assert [line.split()[0] for line in text.splitlines()] == statuses.split()


@pytest.mark.parametrize("full", [False, True], ids=["closed", "full"])
def test_an_output_that_cannot_be_written_is_one_line(orders: Writing, out: Path, full: bool) -> None:
    orders.publish(5)
    command = [sys.executable, "-m", "gnats.cli", "archive", "--store", orders.root, "--out", out, "--all"]
    if full:
        output = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, output = os.pipe()
        os.close(reading)
    try:
        done = subprocess.run([*command, *HERE], stdout=output, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(output)
    why = "No space left on device" if full else "Broken pipe"
    assert (done.returncode, done.stderr) == (1, f"gnats archive: standard output cannot be written: {why}\n")
    assert plain(listed(out)) == orders.rows  # committed rows stay


def test_no_memory_is_one_line(orders: Writing, out: Path) -> None:
    orders.publish(5, size=1 << 20)
    code = (
        "import resource, sys; from gnats.archive import cli; from gnats.archive.reading import scan;"
        "from pathlib import Path;"
        "size = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize() + (256 << 20);"
        "resource.setrlimit(resource.RLIMIT_AS, (size, size)); sys.exit(cli.archive_main(sys.argv[1:]))"
    )
    line = [sys.executable, "-c", code, "--store", orders.root, "--out", out, "--all", "--task-memory", "8G"]
    done = subprocess.run([*line, *HERE], capture_output=True, text=True, timeout=60)
    told = "gnats archive: out of memory: a smaller --task-memory needs less of it\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)
    assert not list(out.rglob("*.staged"))


def test_the_bar_on_a_terminal_is_removed_at_the_end(orders: Writing, out: Path) -> None:
    orders.publish(5)
    terminal, theirs = os.openpty()
    fcntl.ioctl(
        theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0)
    )  # a new pseudo-terminal has no size
    command = [sys.executable, "-m", "gnats.cli", "archive", "--store", orders.root, "--out", out, "--all"]
    try:
        done = subprocess.run([*command, *HERE], stdout=subprocess.PIPE, stderr=theirs, text=True, timeout=60)
        shown = os.read(terminal, 65536).decode()
    finally:
        os.close(theirs)
        os.close(terminal)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert "$G > ORDERS:   0%" in shown
    assert shown.split("\r")[-2].strip() == shown.split("\r")[-1] == ""


JOB = """
import sys
from gnats.archive import cli
from gnats.archive.jobs import job
job.MIN_TASK = job.MAX_TASK = 8192
job.TASKS_A_ROUND = 1
run = job.StreamJob._run
def said(*args):
    results = run(*args)
    print("staged", flush=True)
    sys.stdin.read()
    return results
job.StreamJob._run = said
sys.exit(cli.archive_main(sys.argv[1:]))
"""


def test_an_interrupt_is_one_line_and_leaves_nothing(orders: Writing, out: Path) -> None:
    orders.publish(2000)
    command = [sys.executable, "-c", JOB, "--store", str(orders.root), "--out", str(out), "--all"]
    command += ["--engine", "processes", "--workers", "2"]
    job = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert job.stdout is not None and job.stdout.readline() == "staged\n"
        assert list(out.rglob("*.staged"))
        os.killpg(job.pid, signal.SIGINT)  # as a terminal does, to the engine's processes too
        assert job.wait(30) == 130
    finally:
        job.kill()
        said = job.communicate()[1]
    assert said == "gnats archive: interrupted; what was committed is kept, and the next run goes on\n"
    assert not list(out.rglob("*.staged"))
    assert gnats_archive("--store", orders.root, "--out", out, "--all", *HERE) == 0
    assert plain(listed(out)) == orders.rows


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
