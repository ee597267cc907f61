"""Raft groups in a simulated world in which everything fails; `support.raftsim` says what must hold."""

from __future__ import annotations

import os
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from support.raftsim import MS, SECOND, Member, Sim, Unsafe, simulate

from gnats.raft import messages
from gnats.raft.raft_probe import RaftProbe

SEEDS = int(os.environ.get("RAFT_SEEDS", "40"))
FIRST = int(os.environ.get("RAFT_FIRST", "1"))
"""A longer campaign sets these in the environment."""

PEER_STATE, ADD_PEER, REMOVE_PEER = 2, 3, 4
"""Types of entries."""

pytestmark = pytest.mark.timeout(120 + SEEDS)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_groups_are_safe_and_recover(size: int) -> None:
    for seed in range(FIRST, FIRST + SEEDS):
        simulate(seed, size=size, seconds=10)


def test_groups_whose_members_change() -> None:
    changed = 0
    for seed in range(FIRST, FIRST + SEEDS):
        changed += simulate(seed, size=5, begins=3, seconds=12, changes=True).changed
    assert changed > SEEDS


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_groups_whose_members_lose_records_to_damage(size: int) -> None:
    """Nothing that is committed is lost, and the members are trusted again."""
    damaged = 0
    for seed in range(FIRST, FIRST + SEEDS):
        damaged += simulate(seed, seconds=12, size=size, damage=True).damaged
    assert damaged > SEEDS // 2


@pytest.mark.parametrize("damage", [False, True], ids=["", "damage"])
def test_groups_with_files(tmp_path: Path, damage: bool) -> None:
    memory = Path("/dev/shm")
    for seed in range(FIRST, FIRST + (SEEDS + 9) // 10):
        with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as directory:
            simulate(seed, seconds=6, damage=damage, directory=Path(directory))


def seen(what: str, seeds: int = 60) -> bool:
    """Return whether one of the seeds' groups has done something."""
    return any(getattr(simulate(seed, seconds=8), what) for seed in range(1, 1 + seeds))


@pytest.mark.parametrize("what", ["truncated", "restored", "refused_votes", "transferred"])
def test_the_seeds_reach_what_is_rare(what: str) -> None:
    assert seen(what)


class Liar(Member):
    """A member whose disk says that a record or a vote is durable, and loses it in a crash."""

    lies_about = "log"

    def store(self, index: int, data: bytes) -> int:
        done = super().store(index, data)
        return 1 if self.lies_about == "log" else done

    def save_vote(self, term: int, vote: bytes) -> int:
        done = super().save_vote(term, vote)
        if self.lies_about == "log":
            return done
        if self.sim.faulty and self.sim.rng.random() < 0.3:  # soon enough to be asked again in the same term
            self.sim.after(MS, lambda: self.sim.crash([self], MS))
        return 1


@pytest.mark.parametrize("lies_about", ["log", "vote"])
def test_a_disk_that_lies_is_found(monkeypatch: pytest.MonkeyPatch, lies_about: str) -> None:
    """Otherwise the simulation would not find a core that answers too early."""
    monkeypatch.setattr("support.raftsim.Member", Liar)
    monkeypatch.setattr(Liar, "lies_about", lies_about)
    for seed in range(1, 400):
        try:
            simulate(seed, seconds=10)
        except Unsafe:
            return
    raise AssertionError("400 seeds found nothing")


class Forgetful(Member):
    """A member that does not know that it has lost records."""

    def distrust(self, raft: RaftProbe) -> None:
        self.disk.lost = 0


def test_a_member_that_votes_its_damage_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.raftsim.Member", Forgetful)
    for seed in range(1, 400):
        try:
            simulate(seed, seconds=12, damage=True)
        except Unsafe:
            return
    raise AssertionError("400 seeds found nothing")


def test_a_damaged_member_without_others_goes_on() -> None:
    sim = quiet(1)
    (alone,) = sim.members
    for _ in range(20):
        sim.propose()
        sim.run(sim.now + 10 * MS)
    alone.crash(damaged=True)
    sim.committed.clear()  # nobody else has it
    sim.hashes.clear()
    alone.start()
    assert alone.raft
    assert alone.raft.now()["doubted"]
    sim.run(sim.now + 2 * SECOND)
    assert alone.leads
    assert not alone.disk.lost


def quiet(size: int = 3, **options: Any) -> Sim:
    """Make a group without faults, and let it elect a leader."""
    sim = Sim(7, size, **options)
    sim.heal()
    sim.run(5 * SECOND)
    return sim


def leader(sim: Sim) -> Member:
    (found,) = [member for member in sim.members if member.raft and member.leads]
    return found


def test_a_group_at_rest_only_sends_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = quiet()
    sent: list[int] = []
    monkeypatch.setattr(Member, "send", lambda self, to, subject, data: sent.append(to))
    sim.run(sim.now + 300 * MS)
    assert sent == [0, 0, 0]


def test_a_leader_steps_down_when_asked_and_the_preferred_one_follows() -> None:
    sim = quiet()
    old = leader(sim)
    wanted = next(member for member in sim.members if member is not old)
    old.call(lambda raft: raft.step_down(wanted.name, sim.now))
    sim.run(sim.now + 200 * MS)
    assert leader(sim) is wanted


def test_an_observer_does_not_lead() -> None:
    sim = quiet()
    old = leader(sim)
    watcher, other = (member for member in sim.members if member is not old)
    watcher.call(lambda raft: raft.set_observer(True, sim.now))
    old.crash()
    sim.run(sim.now + 5 * SECOND)
    assert leader(sim) is other


def test_a_leader_without_a_quorum_steps_down() -> None:
    sim = quiet()
    old = leader(sim)
    for member in sim.members:
        if member is not old:
            member.crash()
    sim.run(sim.now + 5 * SECOND)
    assert not old.leads
    assert old.raft
    assert not old.raft.propose(b"x", sim.now)


def test_a_follower_that_was_away_gets_the_snapshot() -> None:
    sim = quiet()
    away = next(member for member in sim.members if not member.leads)
    away.crash()
    for _ in range(50):
        sim.propose()
        sim.run(sim.now + 50 * MS)
    sim.snapshot_all()
    away.start()
    sim.run(sim.now + 5 * SECOND)
    assert sim.restored
    assert (away.at, away.hash) == (leader(sim).at, leader(sim).hash)


@pytest.mark.parametrize("seed", range(40))
def test_peers_do_not_depend_on_when_a_follower_hears_of_commits(seed: int) -> None:
    """A leader changes one peer at a time; a follower that is behind may know several as uncommitted."""
    rng = random.Random(seed)
    names = [b"peer-%03d" % number for number in range(6)]
    prompt, behind = Sim(seed, 3).members[:2]
    known = set(names[:1])
    entries = [(PEER_STATE, messages.write_peer_state(2, sorted(known)))]
    for _ in range(rng.randint(1, 8)):
        name = rng.choice(names)
        adds = name not in known
        known ^= {name}
        entries.append((ADD_PEER if adds else REMOVE_PEER, name))
    heard = 0
    for index, entry in enumerate(entries):
        heard = rng.randint(heard, index)
        for member, commit in ((prompt, index), (behind, heard)):
            record = messages.write_append_entry(b"leader-1", 1, commit, min(index, 1), index, 0, [entry])
            member.call(lambda raft, record=record: raft.append_entry(False, record, b"R.0", 1))
    last = messages.write_append_entry(b"leader-1", 1, len(entries), 1, len(entries), 0, [])
    seen = []
    for member in (prompt, behind):
        member.call(lambda raft: raft.append_entry(False, last, b"R.0", 1))
        assert member.raft
        now = member.raft.now()
        assert (now["commit"], now["change"]) == (len(entries), 0)
        seen.append((now["size"], set(now["peers"])))
    assert seen[0] == seen[1]
    assert seen[0][1] == known


def test_messages_that_are_none() -> None:
    """They change nothing and get no answer."""
    sim = quiet()
    member = leader(sim)
    assert member.raft
    before = member.raft.now()
    for data in (
        b"",
        b"x",
        bytes(25),
        bytes(17),
        bytes(32),
        bytes(42),
        b"\xff" * 25,
        b"\xff" * 41,
        b"\xff" * 60,
    ):
        for call in (
            lambda raft, data=data: raft.append_entry(False, data, b"R.0", sim.now),
            lambda raft, data=data: raft.append_entry(True, data, b"R.0", sim.now),
            lambda raft, data=data: raft.response(data, b"", sim.now) if len(data) != 25 else None,
            lambda raft, data=data: raft.vote_request(data, b"V.0", sim.now) if len(data) != 32 else None,
            lambda raft, data=data: raft.vote_response(data, sim.now) if len(data) != 17 else None,
        ):
            member.call(call)
    assert member.raft.now() == before
