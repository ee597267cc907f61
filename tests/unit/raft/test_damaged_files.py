"""The files of a Raft member with random damage: opening them works, or says why not, and hides no loss."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.raftsim import Replaying

from gnats.raft import messages
from gnats.raft.files import FilesError, RaftFiles, bootstrap
from gnats.raft.raft_probe import FilesProbe, RaftProbe
from gnats.store.store import FileStore, StoreFailure

SEEDS = int(os.environ.get("RAFT_SEEDS", "60"))
FIRST = int(os.environ.get("RAFT_FIRST", "1"))
GROUP = "S-R3F-abcdefgh"
ME, OTHER = b"AAAAAAAA", b"BBBBBBBB"
PEERS = [ME, OTHER, b"CCCCCCCC"]
STATE = messages.write_peer_state(3, PEERS)
SEALED = {"cipher": "chacha", "key": b"a key of the server", "account": "A"}

pytestmark = pytest.mark.timeout(60 + SEEDS)


class Opened:
    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.files = RaftFiles(path, GROUP, **settings)
        self.probe = FilesProbe(self.files)
        self.raft = RaftProbe(Replaying(self.probe), ME, 1)
        try:
            self.probe.recover(self.raft)
        except (FilesError, OSError):
            self.files.close()
            raise
        self.now = self.raft.now()


def record(index: int, size: int, commit: int = 0) -> bytes:
    return messages.write_append_entry(
        OTHER, 1, commit, 1 if index > 1 else 0, index - 1, 0, [(0, b"%d " % index + b"x" * size)]
    )


def fill(path: Path, settings: dict[str, Any], rng: random.Random) -> dict[int, bytes]:
    """Make the files of a member that has closed them, or was killed, and return its log."""
    home = path.with_suffix(".home")
    bootstrap(home, 3, PEERS)
    member = Opened(home, settings)
    assert member.probe.save_vote(1, OTHER) == 0
    log = {}
    for index in range(1, rng.choice((3, 60, 150))):
        log[index] = record(index, rng.choice((0, 20, 500)), rng.randint(0, index // 2))
        assert member.probe.store(index, log[index]) == 0
        if rng.random() < 0.02:
            assert member.probe.save_snapshot((1, index, STATE, rng.randbytes(50)), False) == 0
    assert member.probe.flush() == len(log)
    if rng.random() < 0.5:
        member.files.close()
    shutil.copytree(home, path)
    member.files.close()
    shutil.rmtree(home)
    return log


def noise(data: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(data))
    some = rng.randbytes(rng.choice((1, 1, 8, 100)))
    return data[:at] + some + data[at + len(some) :]


DAMAGE: list[Callable[[bytes, random.Random], bytes]] = [
    noise,
    noise,
    lambda data, rng: data[: rng.randint(0, len(data))],
    lambda data, rng: data[rng.randint(0, len(data)) :],
    lambda data, rng: data + data,
    lambda data, rng: data + rng.randbytes(200),
    lambda data, rng: bytes(len(data)),
    lambda data, rng: rng.randbytes(len(data)),
]


def damage(path: Path, rng: random.Random) -> list[Path]:
    """Damage one file, or exchange two, and return them."""
    files = sorted(each for each in path.rglob("*") if each.is_file())
    if rng.random() < 0.4:
        files = [each for each in files if each.suffix == ".blk"] or files
    victim, other = rng.choice(files), rng.choice(files)
    what = rng.random()
    data = victim.read_bytes()
    if what < 0.1:
        victim.unlink()
    elif what < 0.2:
        victim.write_bytes(other.read_bytes())
        other.write_bytes(data)
        return [victim, other]
    elif what < 0.25:
        other.write_bytes(data)
        return [other]
    else:
        victim.write_bytes(rng.choice(DAMAGE)(data, rng))
    return [victim]


def readable(path: Path, settings: dict[str, Any], log: dict[int, bytes]) -> set[int]:
    """Return the records that the log's store can read."""
    store = FileStore(str(path), GROUP, **settings)
    found = set()
    for index, data in log.items():
        with contextlib.suppress(StoreFailure):
            if store.get(index)[4] == data:
                found.add(index)
    store.close()
    return found


def look(path: Path, settings: dict[str, Any], log: dict[int, bytes], left: set[int], only: set[str]) -> None:
    """Open damaged files. `left`: the records that are there; `only`: the kinds of files damaged."""
    distrusted = (path / "distrust.idx").exists()
    member = Opened(path, settings)
    now = member.now
    last, doubted = now["pindex"], now["doubted"]
    if "tav.idx" not in only:
        assert (now["term"], now["vote"]) == (1, OTHER)
    for index in range(now["snapshot"] + 1, last + 1):
        assert member.probe.load(index) == log[index], "another record"
    assert doubted or last >= max(left, default=0), "records behind a gap have gone in silence"
    if only <= {"snapshots", "peers.idx", "tav.idx"}:
        assert doubted or last == len(log), "what a snapshot had has gone in silence"
    if distrusted:
        assert doubted, "an earlier damage is forgotten"
    assert member.probe.store(last + 1, record(last + 1, 10)) == 0
    assert member.probe.flush() == last + 1
    member.files.close()
    again = Opened(path, settings)
    assert again.now["pindex"] == last + 1
    assert bool(again.now["doubted"]) == bool(doubted)
    again.files.close()


def kind(path: Path, root: Path) -> str:
    """Return the name of a file's kind: its folder's, or its own."""
    return path.relative_to(root).parts[0]


def test_damaged_files_hide_no_loss(tmp_path: Path) -> None:
    opened = refused = 0
    for seed in range(FIRST, FIRST + SEEDS):
        rng = random.Random(seed)
        path = tmp_path / str(seed)
        settings = {"block_size": rng.choice((1000, 4096))} | (SEALED if seed % 5 == 0 else {})
        log = fill(path, settings, rng)
        if rng.random() < 0.2:
            (path / "distrust.idx").write_bytes(rng.randbytes(24))
        only = {kind(each, path) for _ in range(rng.choice((1, 1, 1, 2, 4))) for each in damage(path, rng)}
        shutil.copytree(path, tmp_path / "store")
        try:
            left = readable(tmp_path / "store", settings, log)
            look(path, settings, log, left, only)
            opened += 1
        except (FilesError, OSError):
            refused += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, damage of {only}: {error}") from error
        shutil.rmtree(path)
        shutil.rmtree(tmp_path / "store")
    assert opened > SEEDS // 2
    assert refused
