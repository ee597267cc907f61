"""Handlers of the API's requests about streams and their messages (jetstream_api.go)."""

from __future__ import annotations

import asyncio
import shutil
from base64 import b64encode
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnats.core.subjects.subject import collide, has_wildcard, valid_subject
from gnats.go.json import Json, Struct
from gnats.go.structs import TIME
from gnats.go.text import os_error, rfc3339
from gnats.go.times import unix_ns
from gnats.jetstream import errors
from gnats.jetstream.api.paging import PAGE, PAGED, ListPage, names_page
from gnats.jetstream.api.request import OFFLINE_DELAY, Body, Request, Route, Scope, cluster_required, members
from gnats.jetstream.api.restore import Restore
from gnats.jetstream.api.snapshot import Snapshot
from gnats.jetstream.control.info import cluster_info, is_long, stream_info, stream_info_at_length
from gnats.jetstream.disk.backup_parts import STATE
from gnats.jetstream.settings.config import StreamConfig
from gnats.jetstream.threads import in_thread
from gnats.runtime.steps import in_slices

if TYPE_CHECKING:
    from gnats.jetstream.control.streams import Stream

MAX_SUBJECT_DETAILS = 100_000
MANY_SUBJECTS = 1024
"""From this number of subjects on, work on them is sliced or done in a thread."""

_FILTERED_PAGE = {**PAGE, "subject": "string"}
NAMES_BODY = members(_FILTERED_PAGE, "JSApiStreamNamesRequest", optional=True)
LIST_BODY = members(_FILTERED_PAGE, "JSApiStreamListRequest", optional=True)
_INFO_BODY = members(
    {**PAGE, "deleted_details": "bool", "subjects_filter": "string"}, "JSApiStreamInfoRequest", optional=True
)
PURGE_REQUEST: Struct = {"seq": "uint64", "filter": "string", "keep": "uint64"}
_PURGE_BODY = members(PURGE_REQUEST, "JSApiStreamPurgeRequest", optional=True)
DELETE_REQUEST: Struct = {"seq": "uint64", "no_erase": "bool"}
_DELETE_BODY = members(DELETE_REQUEST, "JSApiMsgDeleteRequest")
GET_REQUEST: Struct = {
    "seq": "uint64",
    "last_by_subj": "string",
    "next_by_subj": "string",
    "batch": "int",
    "max_bytes": "int",
    "start_time": TIME,
    "multi_last": "strings",
    "up_to_seq": "uint64",
    "up_to_time": TIME,
    "no_hdr": "bool",
}
_GET_BODY = members(GET_REQUEST, "JSApiMsgGetRequest")
SNAPSHOT_REQUEST: Struct = {
    "deliver_subject": "string",
    "no_consumers": "bool",
    "chunk_size": "int",
    "window_size": "int",
    "jsck": "bool",
}
_SNAPSHOT_BODY = members(SNAPSHOT_REQUEST, "JSApiStreamSnapshotRequest")


def _stream_config(found: Json) -> tuple[StreamConfig, bool]:
    """Return the configuration in a request, and whether the request is pedantic."""
    return StreamConfig.from_members(found), bool(found.get("pedantic"))


STREAM_BODY = Body({**StreamConfig.schema(), "pedantic": "bool"}, "StreamConfigRequest", _stream_config)
_RESTORE_BODY = Body(
    {"config": StreamConfig.schema(), "state": STATE},
    "JSApiStreamRestoreRequest",
    lambda found: StreamConfig.from_members(found.get("config") or {}),
)


def online(request: Request, stream: Stream) -> Stream:
    """Return the stream; when it is offline, raise ApiError, to be answered after OFFLINE_DELAY."""
    if stream.offline_reason:
        request.delay = OFFLINE_DELAY
        raise errors.STREAM_OFFLINE_REASON(err=stream.offline_reason)
    return stream


def _account_info(request: Request) -> Json:
    request.check_level()
    return request.jsa.usage_info()


def read_new_stream(request: Request) -> tuple[StreamConfig, bool]:
    """Return the configuration in a request for a stream, and whether it is pedantic. Raises ApiError."""
    config, pedantic = request.read(STREAM_BODY)
    name = request.tokens[2]
    if name != config.name:
        raise errors.STREAM_MISMATCH()
    if set(name) & set("\\/"):
        raise errors.STREAM_NAME_CONTAINS_PATH_SEPARATORS()
    return config.with_static_metadata(), pedantic


async def _create(request: Request) -> Json | None:
    request.check_level()
    jsa = request.jsa
    config, pedantic = read_new_stream(request)
    await jsa.propose(await jsa.check_add_stream(config, pedantic=pedantic))
    return await describe(request, jsa.stream(config.name), {"did_create": True})


async def describe(request: Request, stream: Stream, more: Json, **how: Any) -> Json | None:
    """Return a response that describes a stream; send it, in slices, if it is long."""
    if not is_long(stream.config):
        return stream_info(stream, **how) | more
    async with request.jsa.looking:
        info = await stream_info_at_length(stream, **how)
        await request.responder.respond_at_length(request, info | more)
    return None


async def _update(request: Request) -> Json | None:
    request.check_level()
    jsa = request.jsa
    config, pedantic = request.read(STREAM_BODY)
    config = await jsa.checks.check_cfg(config, pedantic=pedantic)
    if request.tokens[2] != config.name:
        raise errors.STREAM_MISMATCH()
    stream = online(request, jsa.stream(config.name))
    config = config.with_static_metadata()
    await jsa.propose(await jsa.check_update_stream(stream, config, pedantic=pedantic))
    return await describe(request, stream, {}, domain=request.js.domain)


def _names(request: Request) -> Json | Awaitable[Json]:
    request.check_level()
    jsa = request.jsa
    found = request.read(NAMES_BODY)

    def show(streams: list[Stream]) -> Json:
        about, names = names_page(sorted(stream.name for stream in streams), found)
        return about | {"streams": names or None}

    streams, subject = list(jsa.streams.values()), found.get("subject", "")
    if not (subject and _have_many_subjects(streams)):
        return show(_filtered(streams, subject))

    async def look() -> Json:
        async with jsa.looking:
            return show(await _filtered_in_turns(streams, subject))

    return look()


def _have_many_subjects(streams: Iterable[Stream]) -> bool:
    return sum(len(stream.config.subjects) for stream in streams) >= MANY_SUBJECTS


def _filtered(streams: list[Stream], subject: str) -> list[Stream]:
    if not subject:
        return streams
    return [each for each in streams if any(collide(subject, other) for other in each.config.subjects)]


async def _filtered_in_turns(streams: list[Stream], subject: str) -> list[Stream]:
    """Filter as _filtered(), but let the loop do other work after each MANY_SUBJECTS comparisons."""
    found, compared = [], 0
    for stream in streams:
        for other in stream.config.subjects:
            compared += 1
            if compared % MANY_SUBJECTS == 0:
                await asyncio.sleep(0)
            if collide(subject, other):
                found.append(stream)
                break
    return found


def _list(request: Request) -> Json | Awaitable[Json | None]:
    request.check_level()
    jsa = request.jsa
    found = request.read(LIST_BODY)
    streams, subject = list(jsa.streams.values()), found.get("subject", "")
    if not (subject and _have_many_subjects(streams)):
        return _list_page(request, _filtered(streams, subject), found)

    async def look() -> Json | None:
        async with jsa.looking:
            filtered = await _filtered_in_turns(streams, subject)
        answer = _list_page(request, filtered, found)
        if not isinstance(answer, Awaitable):
            return answer
        await answer  # sends the response itself
        return None

    return look()


def _list_page(request: Request, streams: list[Stream], found: Json) -> Json | Awaitable[None]:
    jsa = request.jsa
    streams.sort(key=lambda stream: stream.name)
    page = ListPage(streams, found)

    how: dict[str, Any] = {"domain": request.js.domain, "dynamic": False}
    if not is_long(*(stream.config for stream in page.items)):
        return page.answer("streams", [stream_info(each, **how) for each in page.items])

    async def look() -> None:
        shown = []
        async with jsa.looking:
            async for each in in_slices(page.items):
                if is_long(each.config):
                    shown.append(await stream_info_at_length(each, **how))
                else:
                    shown.append(stream_info(each, **how))
            await request.responder.respond_at_length(request, page.answer("streams", shown))

    return look()


def _info(request: Request) -> Json | Awaitable[None]:
    request.check_level()
    jsa = request.jsa
    found = request.read(_INFO_BODY)
    stream = online(request, jsa.stream(request.tokens[2]))
    details = bool(found.get("deleted_details"))
    how: dict[str, Any] = {
        "domain": request.js.domain,
        "details": details,
        "cluster": cluster_info(request.js, stream),
    }
    subject, offset = found.get("subjects_filter", ""), max(found.get("offset", 0), 0)

    def page() -> tuple[int, dict[str, int]]:
        return stream.subjects_page(subject, offset, MAX_SUBJECT_DETAILS) if subject else (0, {})

    if not is_long(stream.config) and not (subject and stream.store.state().num_subjects >= MANY_SUBJECTS):
        return _with_page(stream_info(stream, **how), offset, page())

    async def look() -> None:
        async with jsa.looking:
            info = await stream_info_at_length(stream, **how)
            answer = _with_page(info, offset, await in_thread(page))
            await request.responder.respond_at_length(request, answer)

    return look()


def _with_page(info: Json, offset: int, page: tuple[int, dict[str, int]]) -> Json:
    """Add a page of subjects to a stream's description."""
    total, subjects = page
    if not total:
        return PAGED | info
    if subjects:
        info["state"] = _with_subjects(info["state"], subjects)
    return {"total": total, "offset": offset, "limit": MAX_SUBJECT_DETAILS} | info


def _with_subjects(state: Json, subjects: dict[str, int]) -> Json:
    """Insert the subjects into a stream's state, in the order of Go's fields."""
    found: Json = {}
    for name, value in state.items():
        if name in ("num_deleted", "deleted", "lost", "consumer_count") and "subjects" not in found:
            found["subjects"] = subjects
        found[name] = value
    return found


async def _delete(request: Request) -> Json:
    request.check_level()
    jsa = request.jsa
    request.require_empty()
    await jsa.propose(jsa.check_delete_stream(request.tokens[2]))
    return {"success": True}


async def _purge(request: Request) -> Json:
    request.check_level()
    jsa = request.jsa
    found = request.read(_PURGE_BODY)
    seq, keep = found.get("seq", 0), found.get("keep", 0)
    if seq and keep:
        raise errors.BAD_REQUEST()
    stream = jsa.stream(request.tokens[2])
    purged = await jsa.propose(stream.check_purge(found.get("filter", ""), seq, keep))
    return {"success": True, "purged": purged}


def _delete_message(request: Request) -> Awaitable[Json]:
    request.check_level()
    jsa = request.jsa
    request.require_body()
    found = request.read(_DELETE_BODY)
    stream = jsa.stream(request.tokens[3])
    stream.check_may_delete()
    request.counted = False
    proposal = stream.check_delete_message(found.get("seq", 0), erase=not found.get("no_erase", False))

    async def delete() -> Json:
        if not await jsa.propose(proposal):
            raise errors.SEQUENCE_NOT_FOUND(seq=proposal.seq)
        return {"success": True}

    return delete()


def _get_message(request: Request) -> Json | None:
    request.check_level()
    jsa = request.jsa
    request.require_body()
    found = request.read(_GET_BODY)
    seq, start = found.get("seq", 0), found.get("start_time", "")
    last_for, next_for = found.get("last_by_subj", ""), found.get("next_by_subj", "")
    if (
        found.get("batch", 0) > 0
        or found.get("max_bytes", 0) > 0
        or (seq and last_for)
        or not (seq or last_for or next_for or start)
        or (seq and start)
        or (start and last_for)
        or (last_for and next_for)
    ):
        raise errors.BAD_REQUEST()
    stream = _known(jsa.streams.get(request.tokens[3]))
    if stream.offline_reason:
        return None
    if start:
        seq = stream.seq_from_time(unix_ns(start))
    message = stream.message(seq, last_for, next_for)
    if message is None:
        raise errors.NO_MESSAGE_FOUND()
    subject, seq, header, data, when = message
    shown: Json = {"subject": subject.decode("utf-8", "replace"), "seq": seq}
    if header and not found.get("no_hdr", False):
        shown["hdrs"] = b64encode(header).decode()
    if data:
        shown["data"] = b64encode(data).decode()
    from gnats.go.json import marshal

    answer = {"type": request.response_type, "message": shown | {"time": rfc3339(when)}}
    request.responder.send(request, marshal(answer))
    return None


def _known(stream: Stream | None) -> Stream:
    if stream is None:
        raise errors.STREAM_NOT_FOUND()
    return stream


def _snapshot(request: Request) -> Json | None:
    request.check_level()
    jsa = request.jsa
    request.require_body()
    stream = online(request, jsa.stream(request.tokens[2]))
    options = request.read(_SNAPSHOT_BODY)
    deliver = options.get("deliver_subject", "")
    if not valid_subject(deliver) or has_wildcard(deliver):
        raise errors.SNAPSHOT_DELIVER_SUBJECT_INVALID()
    snapshot = Snapshot(request, stream, options)
    request.respond({"config": stream.config.json(), "state": snapshot.state})
    request.js.transfer(snapshot.run())
    return None


async def _restore(request: Request) -> Json | None:
    request.check_level()
    jsa = request.jsa
    request.require_body()
    config = request.read(_RESTORE_BODY)
    name = request.tokens[2]
    if not config.name:
        config = replace(config, name=name)
    if config.name != name:
        raise errors.STREAM_MISMATCH()
    if set(name) & set("\\/"):
        raise errors.STREAM_NAME_CONTAINS_PATH_SEPARATORS()
    config = await jsa.checks.check_cfg(config)
    jsa.checks.check_limits(config)
    jsa.check_storable(config)
    restore = Restore(request, jsa, config)
    request.respond({"deliver_subject": restore.subject})
    request.js.transfer(restore.run())
    return None


async def purge_account(request: Request) -> Json:
    """Delete everything stored for an account, even one that no longer exists."""
    name = request.tokens[2]
    if set(name) & set("\\/"):
        raise errors.STREAM_GENERAL(err="account name can not contain path separators")
    js = request.js
    account = js.server_accounts.get(name)
    jsa = js.accounts.get(name)
    streams = list(jsa.streams) if jsa else []
    has_account = str(account is not None).lower()
    js.log.notice(f"Purge request for account {name} (streams: {len(streams)}, hasAccount: {has_account})")
    for stream in streams:
        assert jsa is not None
        await jsa.propose(jsa.check_delete_stream(stream))
    try:
        await asyncio.to_thread(_remove, Path(js.config.store_dir) / name)
    except OSError as exc:
        raise errors.STREAM_GENERAL(err=os_error(exc)) from None
    return {"initiated": True}


def _remove(directory: Path) -> None:
    if directory.name and directory.exists():
        shutil.rmtree(directory)


def _route(verb: str, handle: object, response: str, tokens: int = 1, **more: Any) -> Route:
    return replace(Route(verb, handle, response, tokens), **more)  # type: ignore[arg-type]


_NOTHING_PAGED = {**PAGED, "streams": None}
_OF_ACCOUNT: dict[str, Any] = {"is_info": True, "scope": Scope.ACCOUNT}
_OF_STREAM: dict[str, Any] = {"is_info": True, "scope": Scope.STREAM}
_CHANGE: dict[str, Any] = {"scope": Scope.STREAMS_CHANGE, "limited": True}
_NO_STREAMS = {**PAGED, "streams": []}
# Not here: DIRECT.GET, to which each stream subscribes in its account.
ROUTES = (
    _route("INFO", _account_info, "account_info_response", 0, **_OF_ACCOUNT),
    _route("STREAM.CREATE", _create, "stream_create_response", **_CHANGE, body=STREAM_BODY),
    _route("STREAM.UPDATE", _update, "stream_update_response", **_CHANGE, body=STREAM_BODY),
    _route(
        "STREAM.NAMES",
        _names,
        "stream_names_response",
        0,
        empty=_NOTHING_PAGED,
        **_OF_ACCOUNT,
        body=NAMES_BODY,
    ),
    _route("STREAM.LIST", _list, "stream_list_response", 0, empty=_NO_STREAMS, **_OF_ACCOUNT, body=LIST_BODY),
    _route("STREAM.INFO", _info, "stream_info_response", empty=PAGED, **_OF_STREAM, body=_INFO_BODY),
    _route("STREAM.DELETE", _delete, "stream_delete_response", **_CHANGE),
    _route(
        "STREAM.PURGE", _purge, "stream_purge_response", empty={"purged": 0}, body=_PURGE_BODY, limited=True
    ),
    _route("STREAM.MSG.DELETE", _delete_message, "stream_msg_delete_response", body=_DELETE_BODY),
    _route("STREAM.MSG.GET", _get_message, "stream_msg_get_response", scope=Scope.STREAM, body=_GET_BODY),
    _route("STREAM.SNAPSHOT", _snapshot, "stream_snapshot_response", body=_SNAPSHOT_BODY),
    _route(
        "STREAM.RESTORE",
        _restore,
        "stream_restore_response",
        empty={"deliver_subject": ""},
        **_CHANGE,
        body=_RESTORE_BODY,
    ),
    _route("STREAM.PEER.REMOVE", cluster_required, "stream_remove_peer_response"),
    _route("STREAM.PEER.EVACUATE", cluster_required, "stream_evacuate_peer_response"),
    _route("STREAM.CANCEL_MOVE", cluster_required, "stream_cancel_move_response"),
    _route("STREAM.LEADER.STEPDOWN", cluster_required, "stream_leader_stepdown_response"),
)
