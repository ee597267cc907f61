"""A reader of blocks without speed: record by record, in Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gnats.archive.errors import ArchiveError
from gnats.jetstream.metafiles import MetaError
from gnats.store.record import decode
from gnats.store.s2 import decompress_block
from gnats.store.seqset import SequenceSet

if TYPE_CHECKING:
    from gnats.archive.source import Block, Damage, Selection, Snapshot


def _content(snapshot: Snapshot, block: Block) -> bytes:
    path = Path(block.path)
    data = path.read_bytes()
    if snapshot.keys:
        keys, stream = snapshot.keys.server_keys(), snapshot.stream
        try:
            seal = keys.open(path.with_suffix(".key"), stream.account, f"{stream.name}:{block.index}")
        except MetaError as exc:
            raise ArchiveError(f"{path}: {exc}") from None
        if seal:
            data = seal.xor_block(data)
    if data[:3] == b"cmp":
        data = decompress_block(data, 128 << 20)
    return data


def _walk(snapshot: Snapshot, block: Block, damage: list[Damage]) -> Iterator[tuple[Any, ...]]:
    from gnats.archive.source import Damage

    data = _content(snapshot, block)
    name = f"{snapshot.stream.name}-{block.index}".encode()
    at = bad = 0
    while at < len(data):
        try:
            record = decode(name, data, at)
        except (EOFError, ValueError):
            at += 1
            continue
        if bad < at:
            damage.append(Damage(block.index, bad, at, "no records"))
        yield record
        at += record[6]
        bad = at
    if bad < len(data) and block is not snapshot.blocks[-1]:
        damage.append(Damage(block.index, bad, len(data), "no records"))


def gather(snapshot: Snapshot) -> Snapshot:
    deleted = SequenceSet()
    first, last = 0, 0
    blocks = []
    for block in snapshot.blocks:
        seqs: list[int] = []
        times: list[int] = []
        for kind, seq, ts, *_ in _walk(snapshot, block, []):
            last = max(last, seq)
            if kind == "message":
                seqs.append(seq)
                times.append(ts)
            elif kind == "tombstone":
                deleted.insert(seq)
        if seqs:
            first = first or seqs[0]
            block = replace(
                block, first_seq=seqs[0], last_seq=seqs[-1], first_ns=min(times), last_ns=max(times)
            )
        blocks.append(block)
    first = deleted.next_absent(first or last + 1)
    return replace(snapshot, first_seq=first, last_seq=last, blocks=tuple(blocks), deleted=deleted.encode())


def _headers(data: bytes) -> list[tuple[str, list[str]]] | None:
    found: dict[str, list[str]] = {}
    for line in data.split(b"\r\n")[1:]:
        key, colon, value = line.partition(b":")
        if colon:
            found.setdefault(key.decode(errors="backslashreplace"), []).append(
                value.lstrip(b" \t").decode(errors="backslashreplace")
            )
    return list(found.items()) if data else None


def records(
    snapshot: Snapshot, selection: Selection, damage: list[Damage], vanished: list[int]
) -> Iterator[dict[str, Any]]:
    deleted, _ = SequenceSet.decode(snapshot.deleted)
    for block in snapshot.select(selection):
        try:
            walk = list(_walk(snapshot, block, damage))
        except FileNotFoundError:
            vanished.append(block.index)
            continue
        for kind, seq, ts, subject, headers, payload, _ in walk:
            if kind != "message" or seq in deleted or seq < selection.first_seq:
                continue
            if seq > min(snapshot.last_seq, selection.last_seq or snapshot.last_seq):
                continue
            if (selection.start_ns is not None and ts < selection.start_ns) or (
                selection.end_ns is not None and ts >= selection.end_ns
            ):
                continue
            yield {
                "sequence": seq,
                "subject": subject.decode(errors="backslashreplace"),
                "time": pa.scalar(ts // 1000, pa.timestamp("us", tz="UTC")),
                "time_ns": ts,
                "headers": _headers(headers),
                "payload": payload,
                "size": len(payload),
                "block": block.index,
            }
