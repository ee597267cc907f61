"""A store without free descriptors reports an error, and never that messages do not exist."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gnats.store.store import FileStore, StoreFailure

COUNT, SUBJECTS = 60, 3


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open no further descriptors inside the `with` block."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        with pytest.raises(OSError) as refused:
            os.dup(0)
        assert refused.value.errno == errno.EMFILE
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    """A store of several blocks; only the last one is open."""
    store = FileStore(str(tmp_path), "S", block_size=2000)
    for i in range(COUNT):
        store.store_msg(b"s.%d" % (i % SUBJECTS), b"%d" % i + b"x" * 100)
    store.close()
    store = FileStore(str(tmp_path), "S", block_size=2000)
    yield store
    store.close()


def test_no_message_is_passed_over(store: FileStore) -> None:
    with no_descriptors():
        for ask in (
            lambda: store.get(1),
            store.get_next,
            lambda: store.get_next([b"s.1"]),
            lambda: store.get_next([b"s.*"]),
            lambda: store.get_prev(start=20),
            lambda: store.get_prev([b"s.1"], start=20),
            lambda: store.purge_msgs(b"s.1"),
        ):
            with pytest.raises(StoreFailure) as failure:
                ask()
            assert "cannot be read now" in str(failure.value)
    assert store.state().msgs == COUNT
    assert [found[0] for found in (store.get_next(), store.get_next([b"s.1"])) if found] == [1, 2]


def test_a_subject_begins_where_it_did(store: FileStore) -> None:
    with no_descriptors():
        store.subjects_state()
    assert [first for _, first, _ in store.subjects_state().values()] == [1, 2, 3]
    assert [last for _, _, last in store.subjects_state().values()] == [58, 59, 60]


def test_the_last_of_a_subject_is_no_earlier_one(tmp_path: Path, store: FileStore) -> None:
    for _ in range(COUNT):
        store.store_msg(b"other", b"x" * 100)
    store.close()
    store = FileStore(str(tmp_path), "S", block_size=2000)
    with no_descriptors():
        with pytest.raises(StoreFailure):
            store.get_last(b"s.1")
        with pytest.raises(MemoryError):
            store.last_seqs([b"s.*"])
    found = store.get_last(b"s.1")
    assert found is not None and found[0] == 59
    assert store.last_seqs([b"s.*"]) == [58, 59, 60]
    store.close()


def test_a_limit_removes_the_first_of_a_subject_or_none(store: FileStore) -> None:
    with no_descriptors(), pytest.raises(StoreFailure):
        store.get_last(b"s.1") and store.get_next([b"s.1"])
    store.update_config(max_msgs_per_subject=COUNT // SUBJECTS)
    with no_descriptors():
        store.store_msg(b"s.1", b"new")
    assert store.state().msgs == COUNT + 1
    store.store_msg(b"s.1", b"newer")
    assert store.subjects_state()[b"s.1"] == (COUNT // SUBJECTS, 8, COUNT + 2)


def test_what_is_too_old_goes_later(store: FileStore) -> None:
    store.update_config(max_age=1)
    with no_descriptors():
        assert store.expire_msgs() == 0
    assert store.expire_msgs() == COUNT
