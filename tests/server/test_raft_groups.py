"""Raft groups in servers: their messages go over routes, their records to files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.servers import until

from gnats.jetstream.control.raftgroup import RaftGroup
from gnats.nkeys.identity import server_hash
from gnats.options.values.jetstream import JetStreamOptions
from gnats.testing import ClusterThread, ServerThread

pytestmark = pytest.mark.timeout(120)

GROUP = "S-R3F-abcdefgh"
NORMAL = 0


class Machine:
    """Keeps what is committed."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.terms: list[int] = []
        self.leads = False
        self.leader = ""
        self.failure = ""

    def apply(self, index: int, entries: list[tuple[int, bytes]]) -> None:
        self.entries += [data for kind, data in entries if kind == NORMAL]

    def restore(self, data: bytes) -> None:
        self.entries = data.split(b"\n") if data else []

    def snapshot(self) -> bytes:
        return b"\n".join(self.entries)

    def taken(self) -> None:
        """Nothing waits until all has come."""

    def lead(self, term: int) -> None:
        self.leads = True
        self.terms.append(term)

    def follow(self) -> None:
        self.leads = False

    def leader_changed(self, leader: str) -> None:
        self.leader = leader

    def stopped(self, why: str) -> None:
        self.failure = why


class Member:
    """A server's member of GROUP."""

    def __init__(self, server: ServerThread, names: list[str], store_dir: Path) -> None:
        self.server = server
        self.machine = Machine()
        self.names = names
        self.store_dir = str(store_dir)
        self.group: RaftGroup = server.run(self.open())

    async def open(self) -> RaftGroup:
        server = self.server.server
        if server.jetstream is None:
            jetstream = replace(server.opts.jetstream, store_dir=self.store_dir)
            server.opts = replace(server.opts, jetstream=jetstream)
            await server.enable_jetstream()
        assert server.jetstream
        group = await RaftGroup.open(
            server.jetstream.shared,
            server.system_account,
            GROUP,
            self.machine,
            peer=server_hash(server.name).encode(),
            peers=lambda: (len(self.names), [server_hash(name).encode() for name in self.names]),
        )
        group.begin(recovering=False)
        group.node.campaign()
        return group

    @property
    def name(self) -> bytes:
        return self.group.node.peer

    def propose(self, data: bytes) -> bool:
        return self.server.call(lambda _: self.group.node.propose(data))

    def step_down(self, preferred: Member) -> bool:
        return self.server.call(lambda _: self.group.node.step_down(preferred.name))

    def state(self) -> dict[str, Any]:
        return self.server.call(lambda _: self.group.node.state())

    def close(self) -> None:
        self.server.call(lambda _: self.group.close())


class Group:
    def __init__(self, cluster: ClusterThread, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.names = [f"s{number}" for number in range(len(cluster))]
        self.members = [self.member(number) for number in range(len(cluster))]

    def member(self, number: int) -> Member:
        return Member(self.cluster.servers[number], self.names, self.directory / str(number))

    def leader(self) -> Member:
        return until(lambda: next((each for each in self.members if each.machine.leads), None))

    def propose(self, data: bytes) -> None:
        until(lambda: self.leader().propose(data))

    def fill(self, count: int) -> list[bytes]:
        """Propose so many entries; return all that are there when every member has them."""
        before = self.leader().machine.entries
        wanted = before + [b"%d" % (len(before) + number) for number in range(count)]
        for entry in wanted[len(before) :]:
            self.propose(entry)
        self.agree(wanted)
        return wanted

    def stop(self, member: Member) -> int:
        """Stop a member's server; return its number."""
        number = self.members.index(member)
        member.close()
        self.cluster.stop(number)
        self.members.remove(member)
        return number

    def start(self, number: int) -> None:
        self.cluster.start(number)
        self.members.insert(number, self.member(number))

    def agree(self, entries: list[bytes]) -> None:
        for member in self.members:
            until(lambda member=member: member.machine.entries == entries)  # type: ignore[misc]


@pytest.fixture(params=[False, True], ids=["", "synced"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    with ClusterThread(3, jetstream=JetStreamOptions(sync_always=request.param)) as cluster:
        group = Group(cluster, tmp_path)
        yield group
        for member in group.members:
            member.close()


def test_a_group_elects_a_leader_and_agrees(group: Group) -> None:
    group.fill(200)
    assert len({member.state()["term"] for member in group.members}) == 1
    assert sum(member.machine.leads for member in group.members) == 1


def test_another_member_leads_when_the_leader_ends(group: Group) -> None:
    before = group.fill(10)
    number = group.stop(group.leader())
    assert group.fill(10)[:10] == before
    group.start(number)
    group.fill(10)
    assert not group.members[number].machine.leads


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_member_catches_up(group: Group, snapshot: bool) -> None:
    group.fill(10)
    follower = next(member for member in group.members if member is not group.leader())
    number = group.stop(follower)
    wanted = group.fill(200)
    if snapshot:
        for member in group.members:
            node, data = member.group.node, member.machine.snapshot()
            assert node.install_snapshot(member.state()["applied"], data)
            assert member.state()["snapshot"]
    group.start(number)
    group.agree(wanted)
    assert bool(group.members[number].state()["snapshot"]) is snapshot
    group.fill(3)


def test_all_members_come_back(group: Group) -> None:
    """With snapshots and records of all, or of some."""
    group.fill(50)
    leader = group.leader()
    assert leader.group.node.install_snapshot(leader.state()["applied"], leader.machine.snapshot())
    wanted = group.fill(5)
    for number in [group.stop(group.members[0]) for _ in range(3)]:
        assert number == 0
    group.members.clear()
    group.cluster.start()
    group.members = [group.member(number) for number in range(3)]
    group.agree(wanted)
    group.fill(3)


def test_the_lead_goes_to_a_preferred_member(group: Group) -> None:
    wanted = group.fill(3)
    leader = group.leader()
    for member in [each for each in group.members if each is not leader]:

        def leads(member: Member = member) -> bool:
            """Ask again: a member that is slow to become a candidate is overtaken."""
            leader = group.leader()
            return leader is member or (leader.step_down(member) and False)

        until(leads)
        assert sum(each.machine.leads for each in group.members) == 1
    group.agree(wanted)


def test_any_member_proposes(group: Group) -> None:
    wanted = group.fill(1)
    for member in group.members:
        data = b"from %s" % member.name
        member.server.call(lambda _, member=member, data=data: member.group.node.forward_proposal(data))  # type: ignore[misc]
        wanted.append(data)
        group.agree(wanted)


def test_a_member_that_is_removed_takes_part_no_more(group: Group) -> None:
    group.fill(3)
    leader = group.leader()
    gone = next(member for member in group.members if member is not leader)
    assert leader.server.call(lambda _: leader.group.node.propose_peer(gone.name, removes=True))
    until(lambda: gone.name not in leader.state()["peers"])
    assert leader.state()["size"] == 2
    group.stop(gone)
    group.fill(3)


def test_a_disk_that_fails_stops_the_group_at_this_member(group: Group) -> None:
    group.fill(3)
    failing = next(member for member in group.members if member is not group.leader())
    (Path(failing.group.node.files.directory) / "tav.idx.tmp").mkdir()
    leader = group.leader()
    assert leader.server.call(lambda _: leader.group.node.step_down())
    until(lambda: failing.machine.failure)
    assert failing.machine.failure.startswith("the log or a file could not be written")
    assert "tav.idx: Is a directory" in failing.machine.failure
    assert failing.group.node.failure == failing.machine.failure
    group.members.remove(failing)
    group.fill(3)
    group.members.append(failing)
