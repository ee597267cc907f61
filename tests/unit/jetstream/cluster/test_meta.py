"""The state of the meta group against a naive one, and a server that carries out its changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.assignments import ACCOUNTS, CONSUMERS, PEERS, STREAMS, consumers, streams

from gnats.jetstream.cluster.entries import (
    ClientInfo,
    ConsumerAssignment,
    ConsumerState,
    DesiredGroup,
    Entry,
    MetaError,
    Op,
    RaftGroup,
    StreamAssignment,
    StreamState,
    decode_entry,
    encode_entry,
)
from gnats.jetstream.cluster.inflight import Inflight
from gnats.jetstream.cluster.meta import Change, ConsumerChange, Kind, MetaState, StreamChange
from gnats.jetstream.cluster.staging import Staging
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig

pytestmark = pytest.mark.timeout(120)

US = PEERS[0]
STREAM_OPS = [Op.ASSIGN_STREAM, Op.ASSIGN_STREAM, Op.REMOVE_STREAM, Op.UPDATE_STREAM]
CONSUMER_OPS = [Op.ASSIGN_CONSUMER, Op.ASSIGN_COMPRESSED_CONSUMER, Op.REMOVE_CONSUMER]


def few(assignment: Any, group: str, account: str, second: int) -> Any:
    """Let groups, accounts and times of creation be few, so that entries meet."""
    return replace(
        assignment,
        group=replace(assignment.group, name=group),
        client=ClientInfo(acc=account),
        created=f"2026-08-21T14:50:0{second}Z",
    )


_FEW = st.sampled_from(["g1", "g2"]), st.sampled_from([*ACCOUNTS[:1] * 3, ACCOUNTS[1]]), st.integers(1, 2)
ENTRIES = st.builds(
    Entry,
    st.sampled_from(STREAM_OPS),
    st.builds(few, streams(st.sampled_from(STREAMS[:2])), *_FEW),
) | st.builds(
    Entry,
    st.sampled_from(CONSUMER_OPS),
    st.builds(few, consumers(st.sampled_from(CONSUMERS[:2]), st.sampled_from(STREAMS[:2])), *_FEW),
)

Asset = StreamAssignment | ConsumerAssignment
Assets = dict[tuple[str, ...], Asset]


def key_of(assignment: Asset) -> tuple[str, ...]:
    if isinstance(assignment, StreamAssignment):
        return assignment.account, assignment.name
    return assignment.account, assignment.stream, assignment.name


def all_of(state: MetaState) -> Assets:
    found: Assets = {}
    for stream in state.streams():
        found[key_of(stream)] = stream
        for consumer in state.consumers_of(stream.account, stream.name):
            found[key_of(consumer)] = consumer
    return found


def apply_naively(assets: Assets, entry: Entry) -> None:
    op, assignment = entry
    key = key_of(assignment)
    if isinstance(assignment, ConsumerAssignment):
        if op is Op.REMOVE_CONSUMER:
            known = assets.get(key)
            if known and known.group.name == assignment.group.name:
                del assets[key]
        elif key[:2] in assets:
            assets[key] = replace(assignment, state=None)
    elif op is Op.REMOVE_STREAM:
        for each in [each for each in assets if each[:2] == key]:
            del assets[each]
    elif op is Op.ASSIGN_STREAM or key in assets:
        assets[key] = assignment


class Executor:
    """A server that carries out changes: its assets follow from them alone."""

    def __init__(self) -> None:
        self.assets: Assets = {}

    def carry_out(self, changes: Iterable[Change]) -> None:
        for change in changes:
            key = key_of(change.assignment)
            known = self.assets.get(key)
            if change.kind is Kind.REMOVED:
                if change.previous is None:
                    assert known is None or isinstance(change, ConsumerChange)
                    continue
                assert known is not None
                if isinstance(change, StreamChange):
                    for each in [each for each in self.assets if each[:2] == key]:
                        del self.assets[each]
                else:
                    del self.assets[key]
                continue
            assert (change.previous is None) == (known is None)
            assert change.was_member == (known is not None and known.group.is_member(US))
            assert change.member == change.assignment.group.is_member(US)
            if change.kind is Kind.UPDATED or isinstance(change, ConsumerChange):
                assert known or isinstance(change, ConsumerChange)
            if isinstance(change, ConsumerChange):
                assert key[:2] in self.assets
            self.assets[key] = change.assignment


@given(st.lists(ENTRIES, max_size=30))
def test_the_state_is_that_of_a_naive_model(entries: list[Entry]) -> None:
    state, executor = MetaState(US), Executor()
    naive: Assets = {}
    for entry in entries:
        before = all_of(state)
        changes = state.apply(entry)
        for change in changes:
            if change.kind is not Kind.REMOVED or change.previous:
                assert change.previous == before.get(key_of(change.assignment))
        executor.carry_out(changes)
        apply_naively(naive, entry)
        assert all_of(state) == naive == executor.assets
        for (account, *names), assignment in naive.items():
            if isinstance(assignment, StreamAssignment):
                assert state.stream(account, *names) == assignment
                assert assignment in list(state.streams_of(account))
            else:
                assert state.consumer(account, *names) == assignment


def stored(assets: Assets) -> dict[tuple[str, ...], object]:
    """What a snapshot keeps of assets."""
    kept: dict[tuple[str, ...], object] = {}
    for key, each in assets.items():
        settled = each.recovered()
        kept[key] = (settled.created_ns, settled.config_json, settled.group)
    return kept


@settings(max_examples=60)
@given(st.lists(ENTRIES, max_size=30), st.data())
def test_a_snapshot_at_any_point_gives_the_same_state(entries: list[Entry], data: st.DataObject) -> None:
    """A follower misses entries, and gets a snapshot instead; in the end it has what the leader has."""
    leader, follower, executor = MetaState(US), MetaState(US), Executor()
    missed = 0
    for entry in entries:
        leader.apply(entry)
        what = data.draw(st.sampled_from(["apply", "apply", "miss", "restore"]))
        if what == "restore" or (missed == 0 and what == "apply"):
            if what == "restore":
                executor.carry_out(follower.restore(leader.snapshot()))
                missed = 0
            else:
                executor.carry_out(follower.apply(decode_entry(encode_entry(*entry))))
        else:
            missed += 1
    executor.carry_out(follower.restore(leader.snapshot()))
    assert stored(all_of(follower)) == stored(all_of(leader)) == stored(executor.assets)
    assert follower.restore(follower.snapshot()) == []
    fresh = MetaState(US)
    fresh.restore(leader.snapshot())
    assert fresh.snapshot() == follower.snapshot()


@settings(max_examples=60)
@given(st.lists(ENTRIES, max_size=40), st.data())
def test_staged_changes_lead_to_the_same_assets(entries: list[Entry], data: st.DataObject) -> None:
    state, other, executor, staging = MetaState(US), MetaState(US), Executor(), Staging()
    for entry in entries:
        other.apply(entry)
        if data.draw(st.integers(0, 5)):
            staging.add(state.apply(entry, recovering=True))
        else:
            staging.add(state.restore(other.snapshot()))
        if not data.draw(st.integers(0, 4)):
            executor.carry_out(staging.take())
            assert stored(executor.assets) == stored(all_of(state))
    changes = staging.take()
    assert all(change.recovering for change in changes)
    executor.carry_out(changes)
    assert stored(executor.assets) == stored(all_of(state))
    assert staging.take() == []


def group(name: str = "S-R3F-one", *peers: str, **members: Any) -> RaftGroup:
    return RaftGroup(name=name, peers=peers or tuple(PEERS[:3]), store="file", **members)


def stream(name: str = "S1", **members: Any) -> StreamAssignment:
    members = {"client": ClientInfo(acc="A"), "created": "2026-01-01T00:00:00Z", "sync": "s"} | members
    return StreamAssignment.of(StreamConfig(name=name, storage="file"), **{"group": group(), **members})


def consumer(name: str = "c1", of: str = "S1", **members: Any) -> ConsumerAssignment:
    members = {"client": ClientInfo(acc="A"), "created": "2026-01-01T00:00:00Z", "stream": of} | members
    group_ = {"group": group("C-R3F-one")}
    return ConsumerAssignment.of(ConsumerConfig(durable_name=name), name=name, **{**group_, **members})


def test_a_change_says_whether_it_is_for_this_server() -> None:
    state = MetaState(US)
    (made,) = state.apply(Entry(Op.ASSIGN_STREAM, stream()))
    assert (made.kind, made.member, made.was_member, made.previous) == (Kind.ASSIGNED, True, False, None)
    moved = stream(group=group("S-R3F-one", *PEERS[2:]))
    (change,) = state.apply(Entry(Op.UPDATE_STREAM, moved))
    assert (change.kind, change.member, change.was_member) == (Kind.UPDATED, False, True)
    assert change.previous == stream()


def test_an_update_of_an_unknown_stream_is_nothing() -> None:
    state = MetaState(US)
    assert state.apply(Entry(Op.UPDATE_STREAM, stream())) == []
    assert state.apply(Entry(Op.ASSIGN_CONSUMER, consumer())) == []
    assert list(state.streams()) == []


def test_a_removal_of_an_unknown_stream_may_be_of_one_on_the_disk() -> None:
    state = MetaState(US)
    (change,) = state.apply(Entry(Op.REMOVE_STREAM, stream()))
    assert (change.kind, change.previous, change.member) == (Kind.REMOVED, None, True)
    (change,) = state.apply(Entry(Op.REMOVE_CONSUMER, consumer()))
    assert (change.kind, change.previous) == (Kind.REMOVED, None)


def test_a_removal_names_the_client_to_answer_and_the_consumers() -> None:
    state = MetaState(US)
    state.apply(Entry(Op.ASSIGN_STREAM, stream()))
    state.apply(Entry(Op.ASSIGN_CONSUMER, consumer()))
    (change,) = state.apply(Entry(Op.REMOVE_STREAM, stream(reply="_INBOX.2")))
    assert isinstance(change, StreamChange)
    assert (change.assignment.reply, change.consumers) == ("_INBOX.2", (consumer(),))
    assert state.consumer("A", "S1", "c1") is None


def test_a_late_removal_spares_a_consumer_of_another_group() -> None:
    state = MetaState(US)
    state.apply(Entry(Op.ASSIGN_STREAM, stream()))
    state.apply(Entry(Op.ASSIGN_CONSUMER, consumer(group=group("C-R3F-two"))))
    (change,) = state.apply(Entry(Op.REMOVE_CONSUMER, consumer()))
    assert change.previous is None
    assert state.consumer("A", "S1", "c1")


def test_the_state_of_a_restored_consumer_is_handed_on_once() -> None:
    state = MetaState(US)
    state.apply(Entry(Op.ASSIGN_STREAM, stream()))
    (change,) = state.apply(Entry(Op.ASSIGN_CONSUMER, consumer(state=ConsumerState())))
    assert isinstance(change, ConsumerChange)
    assert change.state == ConsumerState()
    assert change.assignment.state is None


def test_an_unsupported_consumer_stops_its_stream() -> None:
    state = MetaState(US)
    state.apply(Entry(Op.ASSIGN_STREAM, stream()))
    change, stopped = state.apply(Entry(Op.ASSIGN_CONSUMER, consumer(unsupported="unsupported - why")))
    assert change.assignment.unsupported == "unsupported - why"
    assert isinstance(stopped, StreamChange)
    assert stopped.assignment.unsupported == 'stopped - unsupported consumer "c1"'
    assert stopped.previous == stream()
    # What is not supported stays so until this server starts again.
    (again,) = state.apply(Entry(Op.ASSIGN_CONSUMER, consumer()))
    assert again.assignment.unsupported == "unsupported - why"
    (again,) = state.apply(Entry(Op.UPDATE_STREAM, stream()))
    assert again.assignment.unsupported == stopped.assignment.unsupported
    (gone,) = state.apply(Entry(Op.REMOVE_STREAM, stream()))
    assert gone.assignment.unsupported == stopped.assignment.unsupported


def test_recovery_forgets_what_matters_only_to_new_groups() -> None:
    new = group(preferred=US, scale_up=True)
    state = MetaState(US)
    entry = Entry(Op.ASSIGN_STREAM, stream(group=new, restore=StreamState()))
    (change,) = state.apply(entry, recovering=True)
    assert change.recovering
    assert isinstance(change, StreamChange)
    assert (change.assignment.group, change.assignment.restore) == (group(), None)
    moving = replace(new, desired=DesiredGroup(id="x", peers=tuple(PEERS[:3])))
    (change,) = state.apply(Entry(Op.UPDATE_STREAM, stream(group=moving)), recovering=True)
    assert change.assignment.group == replace(moving, preferred="")


def restored(state: MetaState, *assets: Asset) -> list[Change]:
    """Restore a snapshot of assets."""
    leader = MetaState("")
    for each in assets:
        leader.apply(
            Entry(Op.ASSIGN_STREAM if isinstance(each, StreamAssignment) else Op.ASSIGN_CONSUMER, each)
        )
    return state.restore(leader.snapshot())


def test_a_snapshot_gives_the_difference_in_order() -> None:
    state = MetaState(US)
    restored(state, stream("S1"), stream("S2"), stream("S3"), consumer(), consumer("c2"), consumer(of="S3"))
    remade = stream("S3", created="2026-01-02T00:00:00Z", group=group("S-R3F-new"))
    scaled = stream("S1", group=group("S-R3F-one", US))
    changes = restored(state, scaled, remade, consumer("c2"), consumer("c3"))
    assert [(change.kind, key_of(change.assignment)) for change in changes] == [
        (Kind.REMOVED, ("A", "S2")),
        (Kind.REMOVED, ("A", "S3")),
        (Kind.ASSIGNED, ("A", "S3")),
        (Kind.UPDATED, ("A", "S1")),
        (Kind.REMOVED, ("A", "S1", "c1")),
        (Kind.ASSIGNED, ("A", "S1", "c3")),
    ]
    assert all(change.recovering for change in changes)
    assert changes[1].previous == stream("S3")


def test_a_stream_with_another_time_in_the_same_group_is_the_same() -> None:
    """Times of creation have differed by a bug; a group's name is unique."""
    state = MetaState(US)
    restored(state, stream())
    (change,) = restored(state, stream(created="2026-01-02T00:00:00Z"))
    assert change.kind is Kind.UPDATED


def test_a_damaged_snapshot_changes_nothing() -> None:
    state = MetaState(US)
    state.apply(Entry(Op.ASSIGN_STREAM, stream()))
    with pytest.raises(MetaError):
        state.restore(b"\x05")
    assert state.stream("A", "S1") == stream()


# ---- staging ----


def test_what_was_removed_meanwhile_is_not_created() -> None:
    state, staging = MetaState(US), Staging()
    for op in (Op.ASSIGN_STREAM, Op.UPDATE_STREAM, Op.REMOVE_STREAM):
        staging.add(state.apply(Entry(op, stream()), recovering=True))
    (change,) = staging.take()
    # The disk may have the stream: the state has not known it when the server started.
    assert (change.kind, change.previous) == (Kind.REMOVED, None)


def test_a_stream_that_was_made_anew_is_removed_first() -> None:
    state, staging = MetaState(US), Staging()
    state.apply(Entry(Op.ASSIGN_STREAM, stream()))
    second = stream(created="2026-01-02T00:00:00Z", group=group("S-R3F-two"))
    third = stream(created="2026-01-03T00:00:00Z", group=group("S-R3F-three"))
    for entry in (
        Entry(Op.REMOVE_STREAM, stream()),
        Entry(Op.ASSIGN_STREAM, second),
        Entry(Op.REMOVE_STREAM, second),
        Entry(Op.ASSIGN_STREAM, third),
        Entry(Op.ASSIGN_CONSUMER, consumer()),
    ):
        staging.add(state.apply(entry, recovering=True))
    removed, made, consuming = staging.take()
    assert (removed.kind, removed.previous) == (Kind.REMOVED, stream())
    assert (made.kind, made.assignment) == (Kind.ASSIGNED, third)
    assert consuming.assignment == consumer()


def test_a_late_removal_spares_a_consumer_that_is_staged() -> None:
    state, staging = MetaState(US), Staging()
    state.apply(Entry(Op.ASSIGN_STREAM, stream()))
    kept = consumer(group=group("C-R3F-two"))
    for entry in (Entry(Op.ASSIGN_CONSUMER, kept), Entry(Op.REMOVE_CONSUMER, consumer())):
        staging.add(state.apply(entry, recovering=True))
    assert [(change.kind, change.assignment) for change in staging.take()] == [
        (Kind.REMOVED, consumer()),
        (Kind.ASSIGNED, kept),
    ]


def test_of_several_updates_the_last_is_carried_out() -> None:
    state, staging = MetaState(US), Staging()
    state.apply(Entry(Op.ASSIGN_STREAM, stream()))
    for reply in ("1", "2", "3"):
        staging.add(state.apply(Entry(Op.UPDATE_STREAM, stream(reply=reply)), recovering=True))
    (change,) = staging.take()
    assert change.previous == stream()
    assert change.assignment.reply == "3"


# ---- proposals ----


def test_proposals_are_seen_before_they_are_applied() -> None:
    state = MetaState(US)
    state.apply(Entry(Op.ASSIGN_STREAM, stream("S1")))
    state.apply(Entry(Op.ASSIGN_CONSUMER, consumer()))
    state.inflight.track_stream(stream("S2"))
    state.inflight.track_stream(stream("S1"), deleted=True)
    state.inflight.track_consumer(consumer("c2"))
    state.inflight.track_consumer(consumer(), deleted=True)
    assert state.stream_or_inflight("A", "S1") is None
    assert state.stream_or_inflight("A", "S2") == stream("S2")
    assert [each.name for each in state.streams_or_inflight("A")] == ["S2"]
    assert [each.name for each in state.all_streams_or_inflight()] == ["S2"]
    assert state.consumer_or_inflight("A", "S1", "c1") is None
    assert state.consumer_or_inflight("A", "S1", "c2") == consumer("c2")
    assert [each.name for each in state.consumers_or_inflight("A", "S1")] == ["c2"]

    state.apply(Entry(Op.ASSIGN_STREAM, stream("S2")))
    state.apply(Entry(Op.REMOVE_CONSUMER, consumer()))
    state.apply(Entry(Op.ASSIGN_CONSUMER, consumer("c2")))
    state.apply(Entry(Op.REMOVE_STREAM, stream("S1")))
    assert [each.name for each in state.streams_or_inflight("A")] == ["S2"]
    assert state.inflight.stream("A", "S1") is None
    assert state.inflight.consumer("A", "S1", "c1") is None
    assert state.inflight.consumer("A", "S1", "c2") is None


def test_a_proposal_counts_until_the_last_about_its_asset_is_applied() -> None:
    inflight = Inflight()
    inflight.track_stream(stream(reply="1"))
    inflight.track_stream(stream(reply="2"))
    inflight.remove_stream("A", "S1")
    proposal = inflight.stream("A", "S1")
    assert proposal
    assert (proposal.ops, proposal.assignment.reply) == (1, "2")
    inflight.remove_stream("A", "S1")
    assert inflight.stream("A", "S1") is None
    assert inflight.accounts() == []
    inflight.remove_stream("A", "S1")
    inflight.track_consumer(consumer())
    inflight.clear()
    assert inflight.consumer("A", "S1", "c1") is None


def test_a_consumer_of_a_stream_that_is_gone_is_not_in_flight_for_ever() -> None:
    state = MetaState(US)
    state.inflight.track_consumer(consumer())
    assert state.apply(Entry(Op.ASSIGN_CONSUMER, consumer())) == []
    assert state.consumer_or_inflight("A", "S1", "c1") is None
