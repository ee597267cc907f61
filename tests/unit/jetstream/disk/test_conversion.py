"""Conversion of stores to another key or cipher: nothing is lost, wherever it is interrupted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gnats.jetstream.disk.conversion import convert_consumer, convert_stream, read_consumer_state
from gnats.jetstream.disk.encryption import META_KEY, Keys, MetaError
from gnats.jetstream.disk.metafiles import (
    CONSUMERS,
    read_consumer_meta,
    read_stream_meta,
    write_consumer_meta,
    write_stream_meta,
)
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig
from gnats.options.values.jetstream import JetStreamOptions
from gnats.store.store import FileStore

ACCOUNT, STREAM, CONSUMER = "A", "S", "C"
CONFIG = StreamConfig(name=STREAM, subjects=("s.>",), storage="file")
OLD = JetStreamOptions(key="old")
STATE = b"where the consumer is"
Messages = dict[int, tuple[Any, ...]]


def options(**fields: Any) -> JetStreamOptions:
    return JetStreamOptions(**fields)


BEFORE = {
    "plain": options(),
    "chacha": options(key="old"),
    "aes": options(key="old", cipher="aes"),
}
NOW = {
    "other-key": options(key="new", prev_key="old"),
    "other-key-aes": options(key="new", prev_key="old", cipher="aes"),
    "aes": options(key="old", cipher="aes"),
    "chacha": options(key="old"),
}


def write(directory: Path, keys: Keys, *, compression: str = "none") -> Messages:
    """Write a stream of several blocks and its consumer, as a stopped server does; return the messages."""
    seal = keys.make(directory, ACCOUNT, STREAM)
    write_stream_meta(directory, CONFIG, 1, seal)
    store = opened(directory, seal, block_size=4000, compression=compression)
    for number in range(60):
        store.store_msg(b"s.%d" % (number % 7), b"%d " % number * 60, b"", ts=number + 1)
    store.remove_msg(30)
    if compression != "none":
        store.maintain(rewrites=100)
    messages = held(store)
    store.close()
    where = directory / CONSUMERS / CONSUMER
    seal = keys.make(where, ACCOUNT, f"{STREAM}.{CONSUMER}")
    write_consumer_meta(where, STREAM, CONSUMER, ConsumerConfig(durable_name=CONSUMER), 2, seal)
    (where / "o.dat").write_bytes(seal.seal(STATE) if seal else STATE)
    return messages


def opened(directory: Path, seal: Any, said: list[str] | None = None, **more: Any) -> FileStore:
    if seal:
        more |= {"cipher": seal.cipher, "key": seal.key, "account": ACCOUNT}
    said = [] if said is None else said
    return FileStore(str(directory), STREAM, warn=said.append, **more)


def held(store: FileStore) -> Messages:
    found: Messages = {}
    at = 1
    while message := store.get_next((), at):
        found[message[0]] = message
        at = message[0] + 1
    return found


def convert(directory: Path, keys: Keys, said: list[str]) -> Any:
    """Convert a stream and its consumer as the start of a server does; return the stream's seal."""
    meta = read_stream_meta(directory, keys, ACCOUNT)
    seal = keys.open(directory / META_KEY, ACCOUNT, STREAM)
    seal = convert_stream(directory, keys, ACCOUNT, meta.config, meta.created, seal, said.append)
    where = directory / CONSUMERS / CONSUMER
    consumer = read_consumer_meta(where, keys, ACCOUNT, STREAM)
    theirs = keys.open(where / META_KEY, ACCOUNT, f"{STREAM}.{CONSUMER}")
    if not (theirs and theirs.is_current):
        convert_consumer(where, keys, ACCOUNT, STREAM, CONSUMER, consumer.config, consumer.created, theirs)
    return seal


def check(directory: Path, keys: Keys, messages: Messages, said: list[str]) -> None:
    """Require that everything is there, and is encrypted with the configured key and cipher."""
    seal = keys.open(directory / META_KEY, ACCOUNT, STREAM)
    assert seal and seal.is_current
    store = opened(directory, seal, said)
    assert held(store) == messages
    store.close()
    meta = read_stream_meta(directory, keys, ACCOUNT)
    assert (meta.config.name, meta.created) == (STREAM, 1)
    where = directory / CONSUMERS / CONSUMER
    assert read_consumer_meta(where, keys, ACCOUNT, STREAM).created == 2
    theirs = keys.open(where / META_KEY, ACCOUNT, f"{STREAM}.{CONSUMER}")
    assert theirs and theirs.is_current
    assert read_consumer_state(where, theirs) == STATE
    assert not [path for path in directory.rglob("*") if path.suffix in (".new", ".tmp", ".bad")]
    for path in (directory / "msgs").glob("*.blk"):
        assert path.with_suffix(".key").exists()


@pytest.mark.parametrize("compression", ["none", "s2"])
@pytest.mark.parametrize("now", NOW)
@pytest.mark.parametrize("before", BEFORE)
def test_what_was_stored_is_converted(tmp_path: Path, before: str, now: str, compression: str) -> None:
    messages = write(tmp_path / STREAM, Keys(BEFORE[before]), compression=compression)
    keys = Keys(NOW[now])
    said: list[str] = []
    convert(tmp_path / STREAM, keys, said)
    assert len(said) == (before != now)
    check(tmp_path / STREAM, keys, messages, said := [])
    assert said == [], "index.db was not good any more"
    convert(tmp_path / STREAM, keys, said)
    assert said == [], "there was something to convert again"


class Ended(BaseException):
    """Stands for the end of the process."""


class Steps:
    """Raises Ended before the step number `last` that changes the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
        self.left = last
        for where, name in ((os, "fsync"), (os, "write"), (Path, "rename"), (Path, "unlink")):
            monkeypatch.setattr(where, name, self._counted(getattr(where, name)))

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            if self.left == 0:
                raise Ended
            self.left -= 1
            return function(*args, **kwargs)

        return step


@contextmanager
def ending(last: int) -> Iterator[Steps]:
    with pytest.MonkeyPatch.context() as patch:
        yield Steps(patch, last)


@pytest.mark.parametrize("now", ["other-key-aes", "chacha"])
@pytest.mark.parametrize("before", ["plain", "aes"])
def test_a_conversion_may_end_at_any_step(tmp_path: Path, before: str, now: str) -> None:
    written = tmp_path / "written"
    messages = write(written, Keys(BEFORE[before]))
    keys = Keys(NOW[now])
    ended = True
    last = 0
    while ended:
        home = tmp_path / str(last) / STREAM
        shutil.copytree(written, home)
        for again in (0, 3):  # with 3: again, soon after the next start
            with ending(last if again == 0 else again):
                try:
                    convert(home, keys, [])
                    ended = False
                except Ended:
                    pass
            if not ended:
                break
        convert(home, keys, [])
        check(home, keys, messages, [])
        shutil.rmtree(home.parent)
        last += 1
    assert last > 40, "the conversion has too few steps"


@pytest.mark.parametrize("before", ["chacha", "aes"])
def test_another_key_is_an_error_and_nothing_is_touched(tmp_path: Path, before: str) -> None:
    home = tmp_path / STREAM
    messages = write(home, Keys(BEFORE[before]))
    there = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    for wrong in (options(key="wrong"), options(key="wrong", prev_key="older"), options()):
        with pytest.raises(MetaError, match=r"unable to recover keys|encryption not enabled"):
            read_stream_meta(home, Keys(wrong), ACCOUNT)
    (home / "msgs" / "1.key").write_bytes(os.urandom((home / "msgs" / "1.key").stat().st_size))
    keys = Keys(BEFORE[before])
    seal = keys.open(home / META_KEY, ACCOUNT, STREAM)
    with pytest.raises(MetaError, match="block 1: unable to recover keys"):
        convert_stream(home, keys, ACCOUNT, CONFIG, 1, seal, [].append)
    (home / "msgs" / "1.key").write_bytes(there[home / "msgs" / "1.key"])
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == there
    check(home, keys, messages, [])


def test_damage_is_not_encrypted(tmp_path: Path) -> None:
    home = tmp_path / STREAM
    messages = write(home, Keys(options()))
    blocks = sorted((home / "msgs").glob("*.blk"), key=lambda path: int(path.stem))
    first = [int.from_bytes(path.read_bytes()[4:12], "little") for path in blocks]
    noise = os.urandom(blocks[1].stat().st_size)
    blocks[1].write_bytes(noise)
    half = bytearray(blocks[2].read_bytes())
    half[: len(half) // 2] = os.urandom(len(half) // 2)
    blocks[2].write_bytes(half)
    said: list[str] = []
    seal = convert(home, Keys(NOW["other-key"]), said)
    assert "block 2: no record of it can be read" in said[0]
    assert blocks[1].with_name("2.blk.bad").read_bytes() == noise
    store = opened(home, seal)
    found = held(store)
    store.close()
    assert found.items() <= messages.items()
    hit = range(first[1], first[2] + (first[3] - first[2]) * 2 // 3)
    assert len(found) < len(messages)
    assert {seq for seq in messages if seq not in hit} <= found.keys()


def test_an_old_new_file_of_a_block_is_not_taken(tmp_path: Path) -> None:
    """A .new file of an interrupted conversion is stale when another server has used the directory since."""
    home = tmp_path / STREAM
    messages = write(home, Keys(BEFORE["aes"]))
    (home / "msgs" / "1.blk.new").write_bytes(os.urandom(500))
    (home / "meta.inf.new").write_bytes(b"{}")
    (home / "meta.sum.new").write_bytes(b"0" * 16)
    keys = Keys(BEFORE["aes"])
    convert(home, keys, [])
    check(home, keys, messages, [])
