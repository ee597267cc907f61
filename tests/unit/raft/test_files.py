"""The files of a member of a Raft group: what it finds when it comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.raftsim import Replaying

from gnats.raft import messages
from gnats.raft.files import FilesError, RaftFiles, bootstrap
from gnats.raft.raft_probe import FilesProbe, RaftProbe

GROUP = "S-R3F-abcdefgh"
ME, OTHER, THIRD = b"AAAAAAAA", b"BBBBBBBB", b"CCCCCCCC"
PEERS = [ME, OTHER, THIRD]
STATE = messages.write_peer_state(3, PEERS)
NORMAL = 0
RECORD = 84
"""Bytes of the first records in a block."""


class World(Replaying):
    """What is committed."""

    def __init__(self, probe: FilesProbe) -> None:
        super().__init__(probe)
        self.committed: list[tuple[int, list[tuple[int, bytes]]]] = []

    def commit(self, index: int, term: int, entries: list[tuple[int, bytes]]) -> None:
        self.committed.append((index, entries))


class Home:
    """A directory of a member, and the member while it is open."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.settings = settings
        self.warnings: list[str] = []

    def open(self) -> None:
        self.files = RaftFiles(self.path, GROUP, warn=self.warnings.append, **self.settings)
        self.probe = FilesProbe(self.files)
        self.world = World(self.probe)
        self.raft = RaftProbe(self.world, ME, 1)
        self.probe.recover(self.raft)

    def reopen(self) -> dict[str, Any]:
        self.files.close()
        self.open()
        return self.raft.now()

    def store(self, first: int, last: int, term: int = 1, commit: int = 0, before: int | None = None) -> None:
        """Store records; `before` is the term of the one before the first."""
        for index in range(first, last + 1):
            pterm = before if before is not None and index == first else term if index > 1 else 0
            data = messages.write_append_entry(
                OTHER, term, commit, pterm, index - 1, 0, [(NORMAL, b"%d of %d" % (index, term))]
            )
            assert self.probe.store(index, data) == 0
        assert self.probe.flush() == last


@pytest.fixture(params=[False, True], ids=["", "synced"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    bootstrap(tmp_path / "group", 3, PEERS)
    home = Home(tmp_path / "group", sync_always=request.param, block_size=4096)
    home.open()
    return home


def test_a_new_member(home: Home) -> None:
    now = home.raft.now()
    assert (now["term"], now["pindex"], now["peers"], now["size"]) == (0, 0, PEERS, 3)
    assert not home.files.bootstrapped


def test_records_are_replayed(home: Home) -> None:
    assert home.probe.save_vote(2, OTHER) == 0
    home.store(1, 200, commit=50)
    now = home.reopen()
    assert (now["term"], now["vote"]) == (2, OTHER)
    assert (now["pterm"], now["pindex"], now["durable"], now["commit"]) == (1, 200, 200, 50)
    assert home.world.committed == [(index, [(NORMAL, b"%d of 1" % index)]) for index in range(1, 51)]
    assert home.files.bootstrapped


def test_a_snapshot_replaces_records(home: Home) -> None:
    home.probe.save_vote(1, b"")
    home.store(1, 500, commit=400)
    assert home.probe.save_snapshot((1, 300, STATE, b"state at 300"), False) == 0
    assert home.files.log.state().first_seq > 200, "whole blocks are removed"
    home.store(501, 510, commit=400)
    now = home.reopen()
    assert (now["snapshot"], now["commit"], now["pindex"]) == (300, 400, 510)
    assert home.probe.load_snapshot() == (1, 300, STATE, b"state at 300")
    assert [index for index, _ in home.world.committed] == list(range(301, 401))
    assert home.probe.save_snapshot((1, 510, STATE, b"state at 510"), False) == 0
    home.store(511, 512)
    now = home.reopen()
    assert (now["snapshot"], now["pindex"]) == (510, 512)
    assert sorted(path.name for path in (home.path / "snapshots").iterdir()) == ["snap.1.510"]


@pytest.mark.parametrize("index", [40, 100, 1000])
def test_a_snapshot_of_the_leader_replaces_all(home: Home, index: int) -> None:
    home.probe.save_vote(1, b"")
    home.store(1, 100)
    assert home.probe.save_snapshot((3, index, STATE, b"the leader's"), True) == 0
    assert home.probe.load(index + 1) is None
    assert not home.raft.now()["doubted"]
    home.open()
    assert home.raft.now()["pindex"] == index
    home.store(index + 1, index + 3, term=3)
    assert home.reopen()["pindex"] == index + 3


def test_truncated_records_do_not_come_back(home: Home) -> None:
    home.probe.save_vote(1, b"")
    home.store(1, 300)
    assert home.probe.truncate(150) == 0
    home.store(151, 160, term=2, before=1)
    now = home.reopen()
    assert (now["pindex"], now["pterm"]) == (160, 2)
    assert home.probe.truncate(0) == 0
    assert home.reopen()["pindex"] == 0
    home.store(1, 1)


def test_records_that_do_not_continue_the_snapshot_go(home: Home) -> None:
    """They are of another leader, whose records nobody has committed: the snapshot says so."""
    home.probe.save_vote(5, b"")
    home.store(1, 100)
    home.files.close()
    data = messages.write_snapshot(4, 60, STATE, b"", GROUP.encode())
    (home.path / "snapshots" / "snap.4.60").write_bytes(data)
    home.open()
    now = home.raft.now()
    assert (now["pindex"], now["pterm"], now["doubted"]) == (60, 4, 0)
    home.store(61, 70, term=5, before=4)
    assert home.reopen()["pindex"] == 70


def test_interrupted_snapshots_are_removed(home: Home) -> None:
    home.probe.save_vote(1, b"")
    home.store(1, 10, commit=10)
    home.probe.save_snapshot((1, 10, STATE, b"whole"), False)
    (home.path / "snapshots" / "taken.tmp").write_bytes(b"half")
    (home.path / "snapshots" / "snap.1.5").write_bytes(
        messages.write_snapshot(1, 5, STATE, b"", GROUP.encode())
    )
    assert home.reopen()["snapshot"] == 10
    assert [path.name for path in (home.path / "snapshots").iterdir()] == ["snap.1.10"]


# -- damage --


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def damage_a_block(home: Home) -> None:
    flip(sorted(home.path.glob("msgs/*.blk"), key=lambda path: int(path.stem))[1], 700)


def damage_a_snapshot(home: Home) -> None:
    flip(next(home.path.glob("snapshots/snap.*")), 30)


def lose_a_block(home: Home) -> None:
    sorted(home.path.glob("msgs/*.blk"), key=lambda path: int(path.stem))[1].unlink()


@pytest.mark.parametrize("damage", [damage_a_block, lose_a_block, damage_a_snapshot])
@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "scanned"])
def test_damage_is_not_absence(home: Home, damage: Callable[[Home], None], indexed: bool) -> None:
    """A member that has lost what it has acknowledged says so, at each start, until it has it again."""
    home.probe.save_vote(1, b"")
    home.store(1, 300, commit=300)
    home.probe.save_snapshot((1, 100, STATE, b"state at 100"), False)
    home.files.close()
    if not indexed:
        (home.path / "msgs" / "index.db").unlink()
    damage(home)
    for _ in range(2):
        home.open()
        now = home.raft.now()
        assert now["doubted"] >= 100
        assert now["pindex"] < 300
        assert any("lost to damage" in text for text in home.warnings)
        home.files.close()
    home.open()
    assert home.probe.trusted() == 0
    home.store(home.raft.now()["pindex"] + 1, home.raft.now()["pindex"] + 3)
    assert not home.reopen()["doubted"]


def test_a_member_that_was_alone_knows_its_peers_from_their_file(home: Home) -> None:
    """The records that have added them may be the ones that are lost: alone, it would elect itself."""
    home.probe.save_vote(1, b"")
    home.store(1, 300)
    home.probe.save_snapshot((1, 100, messages.write_peer_state(1, [ME]), b"alone"), False)
    home.files.close()
    damage_a_block(home)
    home.open()
    assert home.raft.now()["doubted"] == 300
    assert home.raft.now()["peers"] == PEERS


@pytest.mark.parametrize("content", [b"", b"short", bytes(24), bytes(23) + b"x"])
def test_a_damaged_note_of_damage_is_no_absence(home: Home, content: bytes) -> None:
    home.probe.save_vote(3, b"")
    home.store(1, 10)
    (home.path / "distrust.idx").write_bytes(content)
    for _ in range(2):
        assert home.reopen()["doubted"] == 2**64 - 1


def test_a_member_remembers_the_term_of_its_damage(home: Home) -> None:
    """It is trusted once a record of a later term is committed, however often it was opened."""
    home.probe.save_vote(4, b"")
    home.store(1, 300)
    home.files.close()
    damage_a_block(home)
    home.open()
    assert home.probe.save_vote(9, b"") == 0
    now = home.reopen()
    assert (now["doubted"], now["doubted_term"]) == (300, 1)


def test_a_truncation_keeps_the_records_behind_damage(home: Home) -> None:
    """The damage is in records that the snapshot has."""
    home.probe.save_vote(1, b"")
    home.store(1, 40)
    home.probe.save_snapshot((1, 10, STATE, b"state at 10"), False)
    home.files.close()
    (home.path / "msgs" / "index.db").unlink()
    flip(home.path / "msgs" / "1.blk", 3 * RECORD + 1)  # of its length
    home.open()
    assert (home.raft.now()["pindex"], home.raft.now()["doubted"]) == (40, 0)
    assert home.probe.truncate(30) == 0
    home.open()  # as after kill -9
    assert (home.raft.now()["pindex"], home.raft.now()["doubted"]) == (30, 0)


def test_a_snapshot_with_a_number_too_large(home: Home) -> None:
    home.probe.save_vote(1, b"")
    home.store(1, 10)
    (home.path / "snapshots" / "snap.1.18446744073709551616").write_bytes(b"")
    assert home.reopen()["pindex"] == 10


def test_a_damaged_snapshot_whose_records_are_still_there(home: Home) -> None:
    home.probe.save_vote(1, b"")
    home.store(1, 50, commit=50)
    home.probe.save_snapshot((1, 2, STATE, b"state at 2"), False)
    home.files.close()
    damage_a_snapshot(home)
    home.open()
    now = home.raft.now()
    assert (now["pindex"], now["snapshot"], now["doubted"]) == (50, 0, 0)


@pytest.mark.parametrize(
    ("name", "content"), [("tav.idx", b"short"), ("tav.idx", b""), ("tav.idx", None), ("peers.idx", b"x")]
)
def test_a_group_does_not_begin_without_its_vote_or_peers(
    home: Home, name: str, content: bytes | None
) -> None:
    home.probe.save_vote(1, ME)
    home.store(1, 10)
    home.files.close()
    if content is None:
        (home.path / name).unlink()
    else:
        (home.path / name).write_bytes(content)
    with pytest.raises(FilesError, match=name):
        home.open()


def test_what_is_in_memory_is_gone(tmp_path: Path) -> None:
    bootstrap(tmp_path / "group", 3, PEERS)
    home = Home(tmp_path / "group", in_memory=True)
    home.open()
    home.probe.save_vote(3, ME)
    home.store(1, 10)
    home.probe.save_snapshot((1, 5, STATE, b"state"), False)
    home.open()
    assert home.raft.now()["pindex"] == 0
    assert (home.raft.now()["term"], home.raft.now()["vote"]) == (3, ME)
