"""Find the messages of a stream from its files, as a server would that starts on them.

Like recovery, this reads index.db when it is current (its last block still has the record that it ended
with), and then only the records after it; else it reads all blocks. Tombstones remove messages of any block.
Removals by limits leave no trace in the files, so limits are applied again. Age and TTLs are not applied, so
that the result does not depend on the time of day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from gnats.archive.errors import ArchiveError
from gnats.archive.index import read_index
from gnats.archive.reading.blocks import BlockDamage, BlockFiles
from gnats.archive.reading.model import Block, Damage, Selection
from gnats.archive.reading.scan import Snapshot
from gnats.archive.reading.streams import BLOCK_FILE, Keys, StreamDir, messages_dir, read_meta
from gnats.archive.scanner import BlockReader, Subjects, find_checksum, gather, weigh
from gnats.jetstream.settings.config import StreamConfig
from gnats.store.format.highway import checksum
from gnats.store.format.oldindex import read_old_index
from gnats.store.index.seqset import SequenceSet

if TYPE_CHECKING:
    from gnats.archive.index import IndexBlock

_ATTEMPTS = 10
_INDEX = "index.db"
_CHECKSUM = 8
_MOST_INDICES = 2**32 - 1


@dataclass(slots=True)
class _Known:
    """The content of a block: `msgs` messages, whose records have `bytes` bytes; removals reduce both.

    Without messages, first is last + 1.
    """

    block: Block
    first: int = 0
    last: int = 0
    msgs: int = 0
    bytes: int = 0
    low: int = 1
    times: tuple[int, int] | None = None
    damaged: bool = False

    @property
    def span(self) -> int:
        return self.last + 1 - self.first if self.msgs else 0


@dataclass(slots=True)
class _Index:
    """A current index.db. It lacks the records after byte `behind` of its last block."""

    last_seq: int
    blocks: list[_Known]
    behind: int
    most_of_a_subject: int


def take_snapshot(stream: StreamDir, keys: Keys | None, limits: bool = True) -> Snapshot:
    """Take a snapshot of a stream's files. Raises ArchiveError.

    `limits` applies the stream's limits to all messages in the files. The server may have applied them to
    fewer messages (after others had expired, say), and may still have some that are dropped here. Without
    `limits`, no message is dropped that the server may still have.
    """
    if stream.backup:
        raise ArchiveError(
            f"{stream.path} is a backup, which is not read in place: `gnats archive unpack` it"
        )
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            return _Gathering(stream, keys).take(limits)
    if not messages_dir(stream).is_dir():
        raise ArchiveError(f"{stream.path} is no stream: {messages_dir(stream).name} is not in it")
    raise ArchiveError(f"{stream.path} changes while it is read: its blocks disappear again and again")


def check_gone(snapshot: Snapshot, vanished: Sequence[int]) -> None:
    """Raise ArchiveError unless the messages of blocks that vanished during a scan are gone for good.

    A stream that is restored, or copied again from other servers, has them again in other blocks.
    """
    if not vanished:
        return
    now = take_snapshot(snapshot.stream, snapshot.keys, limits=False)
    for block in snapshot.blocks:
        if block.index not in vanished:
            continue
        first = block.first_seq or (block.after or 0) + 1
        last = block.last_seq or (block.before or snapshot.last_seq + 1) - 1
        if now.last_seq < last or now.select(Selection(first, last)):
            raise ArchiveError(f"{snapshot.stream.path} was replaced while it was read")


class _Gathering:
    """One attempt at a snapshot. Raises FileNotFoundError when a block is removed meanwhile."""

    def __init__(self, stream: StreamDir, keys: Keys | None) -> None:
        self._stream = stream
        self._keys = keys
        self._damage: list[Damage] = []
        self._vanished: list[int] = []
        meta = read_meta(stream, keys, self._note)
        self._config: StreamConfig | None = meta.config if meta else None
        self._created: int = meta.created if meta else 0
        self._files = BlockFiles(stream, keys)
        self._deleted = SequenceSet()
        self._absent = SequenceSet()
        self._gone = SequenceSet()
        self._known: list[_Known] = []
        self._last_seq = 0
        self._appended = False
        """Blocks have messages that index.db lacks."""

    def _note(self, why: str) -> None:
        self._damage.append(Damage(0, 0, 0, why))

    def take(self, limits: bool) -> Snapshot:
        msgs = messages_dir(self._stream)
        blocks = _list(msgs)
        index = self._read_index(msgs, blocks)
        if index:
            self._last_seq = index.last_seq
            self._known = index.blocks
            self._gather(self._known[-1], index.behind, blocks)
        for block in blocks[len(self._known) :]:
            self._known.append(known := _Known(block))
            self._gather(known, 0, blocks)
        if not index and not (msgs / _INDEX).exists():
            for known in self._known:
                self._take_old_index(known)
        self._gone = self._deleted.copy()
        for first, last in self._absent.ranges():
            self._gone.insert_range(first, last)
        if self._config and limits:
            self._enforce(self._config, index.most_of_a_subject if index else None)
        return self._result()

    # --- blocks ---

    def _gather(self, known: _Known, start: int, blocks: list[Block]) -> None:
        block = known.block
        try:
            after = known.last if known.msgs else 0
            with self._open(block, start=start, after=after, is_last=block is blocks[-1]) as reader:
                first, last, msgs, size, low_ns, high_ns, tomb = gather(
                    reader, 1, self._deleted, self._absent
                )
                known.damaged = bool(reader.holes())
        except BlockDamage:
            known.damaged = True  # the scan reports the damage
            return
        if msgs:
            self._appended = True
            if not known.msgs:
                known.first = first
            elif first > known.last + 1:
                self._absent.insert_range(known.last + 1, first - 1)
            known.last = last
            known.msgs += msgs
            known.bytes += size
            times = low_ns, high_ns, *(known.times or ())
            known.times = min(times), max(times)
        elif not known.msgs:
            known.last = max(known.last, last, tomb)
        self._last_seq = max(self._last_seq, last, known.last)

    def _take_old_index(self, known: _Known) -> None:
        """Apply the removals that nats-server before 2.10 noted only in the file beside a block."""
        path = Path(known.block.path).with_suffix(".idx")
        with suppress(BlockDamage, OSError):
            noted = read_old_index(path)
            if noted is None or not known.msgs:
                return
            with self._open(known.block) as reader:
                if reader.last_checksum() != noted.checksum:
                    return
            if noted.first > known.first:
                self._deleted.insert_range(known.first, min(noted.first - 1, known.last))
            for seq in noted.deleted:
                self._deleted.insert(seq)

    def _read_index(self, msgs: Path, blocks: list[Block]) -> _Index | None:
        try:
            data = (msgs / _INDEX).read_bytes()
        except OSError:
            return None
        body, sums = data[:-_CHECKSUM], data[-_CHECKSUM:]
        if len(body) < 2 or checksum(self._stream.name.encode(), body) != sums:
            return None
        seal = self._files.stream_seal()
        try:
            last_seq, entries, (last_block, sum64), most = read_index(seal.unseal(body) if seal else body)
        except ValueError:
            return None
        indices = [each[0] for each in entries]
        if not indices or indices != sorted(set(indices)) or indices[-1] != last_block:
            return None
        there = {block.index for block in blocks}
        if not there.issuperset(indices):
            self._note_missing(entries, sum64, blocks)
            entries = self._left(entries, blocks)
        known_there = sorted(index for index in there if index <= last_block)
        if not entries or [each[0] for each in entries] != known_there:
            return None
        known = [self._take(*each) for each in zip(blocks, entries, strict=False)]
        behind = self._find_end(blocks, len(known) - 1, sum64, known[-1].msgs)
        if behind is None:
            return None
        for _, _, _, _, _, _, deleted in entries:
            for first, last in deleted.ranges():
                self._deleted.insert_range(first, last)
        return _Index(last_seq, known, behind, most)

    @staticmethod
    def _take(block: Block, entry: IndexBlock) -> _Known:
        _, size, first, last, first_ns, last_ns, deleted = entry
        msgs = last + 1 - first - len(deleted)
        if not msgs:
            return _Known(block, last + 1, last, low=last + 1)
        return _Known(block, first, last, msgs, size, first, (first_ns, last_ns))

    def _find_end(self, blocks: list[Block], at: int, sum64: int, msgs: int) -> int | None:
        """Return where in a block the record with this checksum ends, None without one."""
        if sum64 == 0:
            return None if msgs else 0
        block = blocks[at]
        try:
            with self._open(block, is_last=block is blocks[-1]) as reader:
                if reader.last_checksum() == sum64:
                    return reader.end
                end = find_checksum(reader, sum64)
        except BlockDamage:
            return None
        return None if end < 0 else end

    @staticmethod
    def _left(entries: list[IndexBlock], blocks: list[Block]) -> list[IndexBlock]:
        """Return the index without the blocks before the first file, which limits have removed.

        Return nothing when other blocks have removed messages: a restart then reads all records, and finds
        the messages again that limits had removed without a tombstone.
        """
        front = min((block.index for block in blocks), default=0)
        for (_, _, _, before, _, _, _), (index, _, first, _, _, _, deleted) in pairwise(entries):
            if index >= front and (first != before + 1 or len(deleted)):
                return []
        return [each for each in entries if each[0] >= front]

    def _note_missing(self, entries: list[IndexBlock], sum64: int, blocks: list[Block]) -> None:
        """Note the messages of index blocks without a file as lost, if nothing has been written since.

        Blocks in front may have been removed without a trace.
        """
        limits = self._config
        if not limits or limits.max_age > 0 or limits.allow_msg_ttl:
            return
        if not blocks or blocks[-1].index != entries[-1][0]:
            return
        with suppress(BlockDamage):
            with self._open(blocks[-1], is_last=True) as reader:
                if reader.last_checksum() != sum64:
                    return
            there = {block.index for block in blocks}
            for index, _, first, last, _, _, deleted in entries:
                if index in there or last + 1 - first == len(deleted):
                    continue
                if index < blocks[0].index:
                    self._vanished.append(index)
                else:
                    self._damage.append(Damage(index, 0, 0, "the file is missing", first, last))

    def _open(
        self, block: Block, *, start: int = 0, after: int = 0, is_last: bool = False
    ) -> AbstractContextManager[BlockReader]:
        return self._files.open(block.path, block.index, is_last=is_last, start=start, after=after)

    # --- limits ---

    def _live(self, known: _Known) -> int:
        """Return the number of a block's messages that are not removed."""
        low = max(known.first, known.low)
        if not known.msgs or low > known.last:
            return 0
        return known.last + 1 - low - self._gone.count(low, known.last)

    def _enforce(self, config: StreamConfig, most_of_a_subject: int | None) -> None:
        most = config.max_msgs_per_subject
        if most > 0 and (self._appended or most_of_a_subject is None or most_of_a_subject > most):
            self._enforce_per_subject(most)
        if config.discard == "new":
            return
        if config.max_msgs > 0:
            self._enforce_msgs(config.max_msgs)
        if config.max_bytes > 0:
            self._enforce_bytes(config.max_bytes)

    def _enforce_per_subject(self, most: int) -> None:
        subjects = Subjects(most)
        over = [self._each_subject(subjects.count, known) for known in self._known]
        if any(over):
            for known in self._known:
                self._each_subject(subjects.remove, known)
            for first, last in self._deleted.ranges():
                self._gone.insert_range(first, last)

    def _each_subject(self, do: Callable[[BlockReader, int, SequenceSet], object], known: _Known) -> bool:
        if self._live(known):
            with suppress(BlockDamage), self._open(known.block) as reader:
                return bool(do(reader, known.low, self._deleted))
        return False

    def _enforce_msgs(self, most: int) -> None:
        excess = sum(map(self._live, self._known)) - most
        for known in self._known:
            if excess <= 0:
                break
            here = self._live(known)
            known.low = known.last + 1 if here <= excess else self._behind(known, excess)
            excess -= here

    def _behind(self, known: _Known, n: int) -> int:
        """Return the sequence after the first n messages of a block, which has more."""
        start = max(known.first, known.low)
        low, high = start, known.last
        while low < high:
            middle = (low + high) // 2
            if middle + 1 - start - self._gone.count(start, middle) < n:
                low = middle + 1
            else:
                high = middle
        return low + 1

    def _enforce_bytes(self, most: int) -> None:
        if sum(known.bytes for known in self._known) <= most:
            return
        sizes = [self._weigh(known) for known in self._known]
        excess = sum(sizes) - most
        for known, size in zip(self._known, sizes, strict=True):
            if excess <= 0:
                break
            known.low = known.last + 1 if size <= excess else self._cut(known, excess)
            excess -= size

    def _weigh(self, known: _Known) -> int:
        live = self._live(known)
        if live == known.msgs or not live:
            return known.bytes if live else 0
        with suppress(BlockDamage), self._open(known.block) as reader:
            return weigh(reader, known.low, self._gone, 1)[0]
        return known.bytes

    def _cut(self, known: _Known, excess: int) -> int:
        with suppress(BlockDamage), self._open(known.block) as reader:
            return weigh(reader, known.low, self._gone, excess)[1] + 1
        return known.low

    # --- the result ---

    def _result(self) -> Snapshot:
        first_seq = 0
        blocks: list[Block] = []
        after: int | None = None
        for known in self._known:
            live = self._live(known)
            if live and not first_seq:
                first_seq = self._gone.next_absent(max(known.first, known.low))
            block = replace(
                known.block,
                messages=live,
                low=known.low,
                damaged=known.damaged,
                after=after,
                is_last=known is self._known[-1],
            )
            if known.msgs:
                low, high = known.times or (None, None)
                block = replace(block, first_seq=known.first, last_seq=known.last, first_ns=low, last_ns=high)
            after = max(after or 0, known.last) or None
            blocks.append(block)
        before: int | None = None
        for i in range(len(blocks) - 1, -1, -1):
            blocks[i] = replace(blocks[i], before=before)
            before = blocks[i].first_seq or before
        return Snapshot(
            self._stream,
            self._keys,
            self._created,
            first_seq or self._last_seq + 1,
            self._last_seq,
            sum(block.messages for block in blocks),
            tuple(blocks),
            self._deleted.encode(),
            tuple(self._damage),
            tuple(self._vanished),
        )


def _list(msgs: Path) -> list[Block]:
    """List the blocks. Raises FileNotFoundError without the directory (a purge renames it), ArchiveError.

    A listing takes several system calls, so it may have a new block and lack one that was made just before.
    The second listing has all blocks up to the last one of the first listing.
    """
    try:
        last = max((block.index for block in _blocks(msgs)), default=0)
        return sorted(block for block in _blocks(msgs) if block.index <= last)
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise ArchiveError(f"{exc.filename or msgs} cannot be read: {exc.strerror}") from None


def _blocks(msgs: Path) -> Iterator[Block]:
    for path in msgs.iterdir():
        if (match := BLOCK_FILE.fullmatch(path.name)) and int(match[1]) < _MOST_INDICES:
            yield Block(int(match[1]), str(path), path.stat().st_size)
