"""Hypothesis strategies for what a meta group assigns."""

from __future__ import annotations

from hypothesis import strategies as st

from gnats.go.times import ZERO_TIME
from gnats.jetstream.cluster.entries import (
    ClientInfo,
    ConsumerAssignment,
    ConsumerState,
    DesiredGroup,
    DesiredOrigin,
    LostStreamData,
    RaftGroup,
    SequencePair,
    StreamAssignment,
    StreamState,
)
from gnats.jetstream.settings.config import ConsumerConfig, Placement, StreamConfig

ACCOUNTS = ["A", "B"]
STREAMS = ["S1", "S2", "S3"]
CONSUMERS = ["c1", "c2", "c3"]
PEERS = [f"peer000{number}" for number in range(5)]

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = st.integers(0, (1 << 64) - 1)
TIMES = st.sampled_from(
    [ZERO_TIME, "2026-08-21T14:50:11Z", "2026-08-21T14:50:11.000000001Z", "2026-08-21T14:50:11+02:00"]
)
NAMES = st.text("abcXYZ019_-$", min_size=1, max_size=12)
SOME_PEERS = st.lists(st.sampled_from(PEERS), min_size=1, max_size=5, unique=True).map(tuple)
STORES = st.sampled_from(["file", "memory"])
PLACEMENTS = st.none() | st.builds(Placement, cluster=TEXT, tags=st.lists(TEXT, max_size=2).map(tuple))

CLIENTS = st.builds(
    ClientInfo,
    start=st.just("") | TIMES,
    acc=st.sampled_from(ACCOUNTS),
    svc=st.sampled_from(["", *ACCOUNTS]),
    id=NUMBERS,
    rtt=st.integers(0, 1 << 40),
    host=TEXT,
    user=TEXT,
    name=TEXT,
    cluster=TEXT,
    alts=st.lists(TEXT, max_size=2).map(tuple),
    tags=st.lists(TEXT, max_size=2).map(tuple),
)
ORIGINS = st.builds(
    DesiredOrigin,
    peers=SOME_PEERS,
    cluster=TEXT,
    replicas=st.integers(1, 5),
    placement=PLACEMENTS,
    retention=st.sampled_from(["", "limits", "interest", "workqueue"]),
)
DESIRED = st.builds(
    DesiredGroup,
    created=st.just("") | TIMES,
    id=TEXT,
    term=NUMBERS,
    peers=SOME_PEERS,
    cluster=TEXT,
    preferred=TEXT,
    scale_down=st.booleans(),
    move=st.booleans(),
    removed=SOME_PEERS,
    members=SOME_PEERS,
    origin=st.none() | ORIGINS,
)
GROUPS = st.builds(
    RaftGroup,
    name=NAMES,
    peers=SOME_PEERS,
    store=STORES,
    cluster=TEXT,
    preferred=st.sampled_from(["", *PEERS]),
    scale_up=st.booleans(),
    excluded=st.lists(st.sampled_from(PEERS), max_size=2).map(tuple),
    desired=st.none() | DESIRED,
)
STATES = st.builds(
    StreamState,
    messages=NUMBERS,
    bytes=NUMBERS,
    first_seq=NUMBERS,
    first_ts=TIMES,
    last_seq=NUMBERS,
    subjects=st.dictionaries(TEXT, NUMBERS, max_size=2),
    deleted=st.lists(NUMBERS, max_size=2).map(tuple),
    lost=st.none() | st.builds(LostStreamData, msgs=st.lists(NUMBERS, max_size=2).map(tuple), bytes=NUMBERS),
)
_PAIRS = st.builds(SequencePair, consumer_seq=NUMBERS, stream_seq=NUMBERS)
_SEQUENCES = NUMBERS.map(str)
CONSUMER_STATES = st.builds(
    ConsumerState,
    delivered=_PAIRS,
    ack_floor=_PAIRS,
    pending=st.dictionaries(
        _SEQUENCES,
        st.tuples(NUMBERS, st.integers(-(1 << 63), (1 << 63) - 1)).map(
            lambda pair: {"Sequence": pair[0], "Timestamp": pair[1]}
        ),
        max_size=2,
    ),
    redelivered=st.dictionaries(_SEQUENCES, NUMBERS, max_size=2),
)


def streams(names: st.SearchStrategy[str] = NAMES) -> st.SearchStrategy[StreamAssignment]:
    """Return a strategy for assignments of streams."""
    config = st.builds(
        StreamConfig,
        name=names,
        subjects=st.lists(TEXT, max_size=2).map(tuple),
        storage=STORES,
        num_replicas=st.integers(1, 5),
        max_bytes=st.integers(-1, 1 << 40),
        metadata=st.dictionaries(TEXT, TEXT, max_size=1),
    )
    return st.builds(
        StreamAssignment.of,
        config,
        client=CLIENTS,
        created=TIMES,
        group=GROUPS,
        sync=TEXT,
        subject=TEXT,
        reply=TEXT,
        restore=st.none() | STATES,
    )


def consumers(
    names: st.SearchStrategy[str] = NAMES, of: st.SearchStrategy[str] = NAMES
) -> st.SearchStrategy[ConsumerAssignment]:
    """Return a strategy for assignments of consumers."""
    config = st.builds(
        ConsumerConfig,
        durable_name=TEXT,
        backoff=st.lists(st.integers(0, 1 << 40), max_size=2).map(tuple),
        filter_subjects=st.lists(TEXT, max_size=2).map(tuple),
        metadata=st.dictionaries(TEXT, TEXT, max_size=1),
    )
    return st.builds(
        ConsumerAssignment.of,
        config,
        name=names,
        stream=of,
        client=CLIENTS,
        created=TIMES,
        group=GROUPS,
        subject=TEXT,
        reply=TEXT,
        state=st.none() | CONSUMER_STATES,
    )
