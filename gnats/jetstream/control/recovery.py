"""Recover the streams and consumers that accounts have stored (EnableJetStream in jetstream.go).

A stream or consumer that cannot be recovered stays on the disk and is logged; the others are served. Only
directories whose deletion had begun are deleted.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Container
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gnats.clock import time_ns
from gnats.core.subjects.subject import valid_subject
from gnats.go.text import MILLISECOND, duration, os_error, quote
from gnats.jetstream import errors
from gnats.jetstream.control.consumers import Consumer
from gnats.jetstream.control.streams import Stream
from gnats.jetstream.disk.encryption import MetaError
from gnats.jetstream.disk.metafiles import (
    CONSUMERS,
    DELETED,
    META_FILE,
    Meta,
    read_consumer_meta,
    read_stream_meta,
    remove_directory,
)
from gnats.jetstream.errors import ApiError
from gnats.jetstream.settings.config import REQUIRED_LEVEL_KEY, StreamConfig, supports_required_level
from gnats.version import JS_API_LEVEL

if TYPE_CHECKING:
    from gnats.jetstream.control.jsaccount import JSAccount
    from gnats.log.logger import Logger

SNAPSHOTS = ".snap-staging"


async def recover(jsa: JSAccount) -> None:
    """Recover the streams of an account. Logs errors."""
    log = jsa.shared.log
    try:
        entries = sorted(jsa.streams_dir.iterdir())
    except FileNotFoundError:
        return
    except OSError as exc:
        log.error(f'Error reading streams of account "{jsa.name}": {os_error(exc)}')
        return
    log.debug(f'Recovering JetStream state for account "{jsa.name}"')
    for entry in entries:
        if entry.name.startswith(DELETED):
            await asyncio.to_thread(shutil.rmtree, entry, ignore_errors=True)
            continue
        try:
            await _recover_stream(jsa, entry, log)
        except Exception as exc:  # noqa: BLE001 - one directory must not keep the server from serving the others
            _set_aside(jsa, entry.name, exc, log)
    for stream in list(jsa.streams.values()):
        if stream.offline_reason:
            continue
        try:
            await stream.origins.start()
        except Exception as exc:  # noqa: BLE001 - as above
            log.error(f"  Error starting sources of stream {_where(stream)}: {_reason(exc)}")
    log.debug(f'JetStream state for account "{jsa.name}" recovered')


async def recover_assigned(
    jsa: JSAccount, name: str, created: int, consumers: Container[str], *, replicated: bool
) -> Stream | None:
    """Recover a stream that is assigned to this server, with its `consumers`; None: make a new one.

    A `replicated` one stores nothing yet.

    `created` is when it was made: another one of that name, and consumers that are not assigned, have been
    deleted while this server was away. Raises ApiError.
    """
    log, directory = jsa.shared.log, jsa.stream_directory(name)
    try:
        meta = await asyncio.to_thread(read_stream_meta, directory, jsa.shared.keys, jsa.name)
    except MetaError as exc:
        log.warn(f"  {exc}")
        return None
    if meta.created != created:
        aside = directory.with_name(f"{DELETED}{name}-{meta.created}")
        log.warn(f"  Another stream '{jsa.name} > {name}' is on the disk: it is moved to \"{aside}\"")
        await asyncio.to_thread(directory.rename, aside)
        return None
    await _recover_stream(jsa, directory, log, replicated=replicated)
    stream = jsa.streams.get(name)
    if stream is None:
        raise errors.STREAM_CREATE(err="the stream cannot be recovered")
    if stream.offline_reason:
        return stream
    for consumer in [each for each in stream.consumers.values() if each.name not in consumers]:
        await stream.apply_delete_consumer(consumer.check_deletion())
    if not replicated:
        await stream.origins.start()
    return stream


async def forget_removed(jsa: JSAccount, name: str, created: int) -> None:
    """Delete a stream's directory: it was removed from the cluster, and the server ended before it did so.

    `created` is when it was made; another one of that name stays. Raises OSError.
    """
    directory = jsa.stream_directory(name)
    if not (directory / META_FILE).exists():
        return
    try:
        meta = await asyncio.to_thread(read_stream_meta, directory, jsa.shared.keys, jsa.name)
    except MetaError as exc:
        jsa.shared.log.warn(f"  {exc}")
        return
    if meta.created == created:
        await asyncio.to_thread(remove_directory, directory, sync=jsa.shared.config.options.sync_always)


def _reason(exc: Exception) -> str:
    if isinstance(exc, OSError):
        return os_error(exc)
    return str(exc) if isinstance(exc, ApiError) else repr(exc)


def _where(stream: Stream) -> str:
    return f"'{stream.jsa.name} > {stream.name}'"


def _set_aside(jsa: JSAccount, name: str, exc: Exception, log: Logger) -> None:
    """Log why a stream is not served; take one that is partly recovered offline."""
    log.error(f"  Error recovering stream '{jsa.name} > {name}': {_reason(exc)}")
    stream = jsa.streams.get(name)
    if stream is not None and not stream.offline_reason:
        stream.go_offline("stopped - it cannot be recovered")


async def _recover_stream(jsa: JSAccount, directory: Path, log: Logger, *, replicated: bool = False) -> None:
    try:
        # In a thread, so that the monitoring pages are answered meanwhile.
        meta = await asyncio.to_thread(read_stream_meta, directory, jsa.shared.keys, jsa.name)
    except MetaError as exc:
        log.warn(f"  {exc}")
        return
    config: StreamConfig = meta.config
    created = meta.created or time_ns()
    where = f"'{jsa.name} > {config.name}'"
    if reason := _unsupported(meta):
        log.warn(f"  Detected unsupported stream {where}: {reason}")
        stream = Stream(jsa, config, "", created, offline_reason=reason)
        jsa.add_offline(stream)
        _recover_consumers(stream, directory / CONSUMERS, log)
        return
    repaired = _repair(config, log)
    if repaired is None:
        return
    log.notice(f"  Starting restore for stream {where}")
    start = time.monotonic_ns()
    try:
        stream = await jsa.recover_stream(repaired, created, replicated=replicated)
    except ApiError as exc:
        log.warn(f"  Error recreating stream {quote(config.name)}: {exc}")
        return
    took = round((time.monotonic_ns() - start) / MILLISECOND) * MILLISECOND
    messages = f"{stream.state()['messages']:,}"
    log.notice(f"  Restored {messages} messages for stream {where} in {duration(took)}")
    _recover_consumers(stream, directory / CONSUMERS, log)
    if stream.offline_reason:
        return
    if not replicated:
        stream.subscribe()
    await stream.forget_acknowledged()


def _unsupported(meta: Meta) -> str:
    """Return why this server cannot use a stream or consumer, "" when it can."""
    if not supports_required_level(meta.config.metadata):
        if meta.problem:
            return f"unsupported - config error: {meta.problem.removeprefix('json: ')}"
        level = meta.config.metadata[REQUIRED_LEVEL_KEY]
        return f"unsupported - required API level: {level}, current API level: {JS_API_LEVEL}"
    return f"decoding error: {meta.problem}" if meta.problem else ""


def _repair(config: StreamConfig, log: Logger) -> StreamConfig | None:
    """Correct a configuration that an old nats-server wrote wrongly; None when it cannot be corrected."""
    if config.mirror and config.duplicate_window:
        config = replace(config, duplicate_window=0)
    subjects = []
    for subject in config.subjects:
        if not valid_subject(subject):
            shown, name = quote(subject), quote(config.name)
            log.warn(f"  Detected bad subject {shown} while adding stream {name}, will attempt to repair")
            subject = subject.strip()
            if not valid_subject(subject):
                log.warn(f"  Error recreating stream {name}: invalid subject")
                return None
            log.warn(f"  Bad subject {shown} repaired to {quote(subject)}")
        subjects.append(subject)
    if config.mirror and subjects:
        log.warn(f"  Detected subjects on a mirrored stream {quote(config.name)}, will remove")
        subjects = []
    return replace(config, subjects=tuple(subjects))


def _recover_consumers(stream: Stream, directory: Path, log: Logger) -> None:
    try:
        entries = sorted(directory.iterdir()) if directory.is_dir() else []
    except OSError as exc:
        # Without these consumers, the stream might remove messages that they still want.
        log.warn(f'  Error reading consumers "{directory}": {os_error(exc)}')
        stream.go_offline(f"stopped - consumers cannot be read: {exc.strerror}")
        return
    for entry in [each for each in entries if each.name.startswith(DELETED)]:
        shutil.rmtree(entry, ignore_errors=True)
        entries.remove(entry)
    where = _where(stream)
    if entries:
        log.notice(f"  Recovering {len(entries)} consumers for stream - {where}")
    for entry in entries:
        try:
            _recover_consumer(stream, entry, log)
        except MetaError as exc:
            log.warn(f"    {exc}")
        except Exception as exc:  # noqa: BLE001 - one file must not keep the server from serving the others
            consumer = f"'{stream.jsa.name} > {stream.name} > {entry.name}'"
            log.warn(f"    Error adding consumer {consumer}: {_reason(exc)}")


def _recover_consumer(stream: Stream, directory: Path, log: Logger) -> None:
    """Recover one consumer. Raises MetaError, ApiError, or any error that damaged files cause."""
    name = directory.name
    meta = read_consumer_meta(directory, stream.jsa.shared.keys, stream.jsa.name, stream.name)
    created = meta.created or time_ns()
    if reason := _unsupported(meta):
        log.warn(f"  Detected unsupported consumer '{stream.jsa.name} > {stream.name} > {name}': {reason}")
        if not stream.offline_reason:
            log.warn(f"  Stopping unsupported stream {_where(stream)}")
            stream.go_offline(f'stopped - unsupported consumer "{name}"')
        stream.enter_consumer(Consumer(stream, name, meta.config, created, offline_reason=reason))
    elif stream.offline_reason:
        stream.enter_consumer(
            Consumer(stream, name, meta.config, created, offline_reason=stream.offline_reason)
        )
    else:
        stream.recover_consumer(name, meta.config, created)
