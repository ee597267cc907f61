"""The store of a stream: opened and changed as the stream's configuration says (setupStore in stream.go)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnats.core.subjects.subject import has_wildcard
from gnats.jetstream.settings.config import ASYNC, FILE, LIMITS, MEMORY, StreamConfig
from gnats.store.block_size import MEDIUM, dyn_block_size, tuned_block_size
from gnats.store.format.record import OVERHEAD
from gnats.store.store import FileStore, MemStore

if TYPE_CHECKING:
    from gnats.jetstream.control.shared import StreamAccount
    from gnats.jetstream.disk.encryption import Seal
    from gnats.store.store import MsgStore

_LONGEST_SUBJECT = 256


def block_size(config: StreamConfig, max_payload: int) -> int:
    """Return the block size of a file store in bytes (autoTuneFileStorageBlockSize); 0: the store chooses."""
    if config.max_bytes > 0:
        total = config.max_bytes
    elif config.max_msgs > 0:
        literal = [len(subject.encode()) for subject in config.subjects if not has_wildcard(subject)]
        largest = config.max_msg_size if config.max_msg_size > 0 else max_payload
        total = (OVERHEAD + max(literal, default=_LONGEST_SUBJECT) + largest) * config.max_msgs
    else:
        return MEDIUM if config.max_msgs_per_subject > 0 else 0
    return tuned_block_size(total)


def is_synced(jsa: StreamAccount, config: StreamConfig) -> bool:
    """Whether a stream's messages are synced before they are acknowledged."""
    always = jsa.shared.config.options.sync_always
    return always and config.storage == FILE and config.persist_mode != ASYNC


def open_store(
    jsa: StreamAccount,
    config: StreamConfig,
    directory: Path,
    seal: Seal | None,
    warn: Callable[[str], None] | None = None,
    *,
    hold_limits: bool = False,
) -> MsgStore:
    """Open or make the store of a stream; in a thread. `warn` gets warnings of recovery. Raises OSError.

    With `hold_limits`, limits of messages and bytes remove nothing until the store is configured again.
    """
    limits = store_limits(config)
    if hold_limits:
        limits |= {"max_msgs": -1, "max_bytes": -1, "max_msgs_per_subject": -1}
    if config.storage == MEMORY:
        return MemStore(config.name, first_seq=config.first_seq, **limits)
    size = block_size(config, jsa.shared.options().max_payload)
    return FileStore(
        str(directory),
        config.name,
        block_size=size or dyn_block_size(limits_retention=config.retention == LIMITS),
        sync_always=is_synced(jsa, config),
        first_seq=config.first_seq,
        compression=config.compression,
        cipher=seal.cipher if seal else None,
        key=seal.key if seal else b"",
        account=jsa.name,
        warn=warn,
        **limits,
    )


def holds_limits(config: StreamConfig) -> bool:
    """Whether limits apply only after recovery.

    Recovery removes the messages of an incomplete atomic batch. Before that, they must not make limits remove
    other messages.
    """
    return config.storage == FILE and config.allow_atomic


def update_store(store: MsgStore, config: StreamConfig) -> None:
    """Apply a changed configuration to the store of a stream. Raises StoreFailure."""
    store.update_config(**store_limits(config))
    if isinstance(store, FileStore):
        store.compress(config.compression)


def store_limits(config: StreamConfig) -> dict[str, Any]:
    """Return the part of a configuration that the store applies, as its keyword arguments."""
    return {
        "max_msgs": config.max_msgs,
        "max_bytes": config.max_bytes,
        "max_msgs_per_subject": config.max_msgs_per_subject,
        "max_age": config.max_age,
        "discard_new": config.discard == "new",
        "discard_new_per_subject": config.discard_new_per_subject,
        "allow_msg_ttl": config.allow_msg_ttl,
        "delete_markers": config.subject_delete_marker_ttl > 0,
        "allow_msg_schedules": config.allow_msg_schedules,
    }
