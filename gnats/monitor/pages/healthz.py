"""/healthz: the health of the server (Healthz in monitor.go)."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gnats.go.text import quote
from gnats.monitor.pages.linkz import LinkedServer, problems
from gnats.monitor.pages.options import HealthzOptions
from gnats.monitor.pages.render import Page

if TYPE_CHECKING:
    from gnats.jetstream.cluster.entries import StreamAssignment
    from gnats.jetstream.control.consumers import Consumer
    from gnats.jetstream.control.jetstream import JetStream
    from gnats.jetstream.control.metagroup import MetaGroup
    from gnats.jetstream.control.streams import Stream
    from gnats.options.options import Options

OK, BAD_REQUEST, NOT_FOUND, INTERNAL_ERROR, UNAVAILABLE = 200, 400, 404, 500, 503


class HealthzServer(LinkedServer, Protocol):
    """The server as this page sees it."""

    @property
    def accepting(self) -> bool: ...
    @property
    def opts(self) -> "Options": ...
    @property
    def jetstream(self) -> "JetStream | None": ...


def healthz(server: HealthzServer, options: HealthzOptions) -> Page:
    """Check the server's health.

    The page has `status` ("ok", "error" or "unavailable"), `status_code` (an HTTP status), and on failure
    `error` or, with details, `errors`. With `options.links` it also has `links`, the problems of links: these
    do not make the server unhealthy, and nats-server knows no such member.
    """
    page = _health(server, options)
    if options.links:
        page["links"] = problems(server)
    return page


def _health(server: HealthzServer, options: HealthzOptions) -> Page:
    for missing, asked, what in (
        ("account", options.stream, "stream"),
        ("stream", options.consumer, "consumer"),
    ):
        if asked and not getattr(options, missing):
            problem = f'"{missing}" must not be empty when checking {what} health'
            return _unwell(BAD_REQUEST, "BAD_REQUEST", problem, options.details)
    if not server.accepting:
        problem = "failed to be ready for connections after 1ms: server"
        return _unwell(INTERNAL_ERROR, "CONNECTION", problem, options.details)
    if options.js_server_only or not server.opts.jetstream.enabled:
        return {"status": "ok", "status_code": OK}
    js = server.jetstream
    if js is None:
        from gnats.jetstream.errors import NOT_ENABLED

        return _unwell(UNAVAILABLE, "JETSTREAM", str(NOT_ENABLED()), options.details, status="unavailable")
    if options.js_enabled or options.js_enabled_only:
        return {"status": "ok", "status_code": OK}
    if js.cluster:
        if problem := _meta_problem(js.cluster):
            return _unwell(UNAVAILABLE, "JETSTREAM", problem, options.details, status="unavailable")
        if options.js_meta_only:
            return {"status": "ok", "status_code": OK}
        return _assets_health(js, js.cluster, options)
    return _jetstream_health(js, options)


def _meta_problem(meta: "MetaGroup") -> str:
    """Return what is wrong with this server's part of the meta group, "": nothing."""
    if meta.failure:
        return f"JetStream meta layer is not running: {meta.failure}"
    if meta.is_recovering:
        return "JetStream is still recovering meta layer"
    if not meta.leader:
        return "JetStream has not established contact with a meta leader"
    if not meta.is_current:
        return "JetStream is not current with the meta leader"
    return ""


def _assets_health(js: "JetStream", meta: "MetaGroup", options: HealthzOptions) -> Page:
    """Check the streams and consumers that the cluster has assigned to this server."""
    account, stream, consumer = options.account, options.stream, options.consumer
    assigned = {(each.account, each.name) for each in _assigned(meta)}
    if account and next(meta.state.streams_of(account), None) is None:
        return _missing("ACCOUNT", f"JetStream account {quote(account)} not found", options)
    if stream and (account, stream) not in assigned:
        problem = f"JetStream stream {quote(stream)} not found on account {quote(account)}"
        return _missing("STREAM", problem, options)
    if consumer:
        known = meta.state.consumer(account, stream, consumer)
        if known is None or not known.group.is_member(meta.peer):
            return _no_consumer(options)
    return _report(list(_asset_problems(js, meta, options)), options)


def _assigned(meta: "MetaGroup") -> "Iterator[StreamAssignment]":
    for stream in meta.state.streams():
        if stream.group.is_member(meta.peer) and stream.restore is None and not stream.unsupported:
            yield stream


def _asset_problems(js: "JetStream", meta: "MetaGroup", options: HealthzOptions) -> Iterator[Page]:
    """Yield assigned streams and consumers that are not served or cannot be written."""
    for asset in _assigned(meta):
        name = asset.account
        if options.account not in ("", name) or options.stream not in ("", asset.name):
            continue
        about: Page = {"account": name, "stream": asset.name}
        jsa = js.accounts.get(name)
        stream = jsa.streams.get(asset.name) if jsa else None
        problem = _stream_problem(stream) if stream else "stream not found"
        if stream is None or problem:
            where = f"JetStream stream '{name} > {asset.name}' is not current"
            yield {"type": "STREAM"} | about | {"error": f"{where}: {problem}"}
            continue
        for each in meta.state.consumers_of(name, asset.name):
            if options.consumer not in ("", each.name) or not each.group.is_member(meta.peer):
                continue
            consumer = stream.consumers.get(each.name)
            if problem := _consumer_problem(consumer) if consumer else "consumer not found":
                where = f"JetStream consumer '{name} > {asset.name} > {each.name}' is not current"
                about["consumer"] = each.name
                yield {"type": "CONSUMER"} | about | {"error": f"{where}: {problem}"}


def _stream_problem(stream: "Stream") -> str:
    """Return why a stream that is here is not served, or not up to date."""
    if problem := stream.failure or stream.offline_reason:
        return problem
    if not stream.replicated:
        return ""
    return stream.member.problem() if stream.member else "stream node missing"


def _consumer_problem(consumer: "Consumer") -> str:
    """Return why a consumer that is here is not up to date."""
    if not consumer.replicated:
        return ""
    return consumer.member.problem() if consumer.member else "consumer node missing"


def _jetstream_health(js: "JetStream", options: HealthzOptions) -> Page:
    account, stream, consumer = options.account, options.stream, options.consumer
    base = Path(js.config.store_dir)
    if account and not (_is_name(account) and (base / account).is_dir()):
        return _missing("ACCOUNT", f"JetStream account {quote(account)} not found", options)
    if stream and not (_is_name(stream) and (base / account / "streams" / stream).is_dir()):
        problem = f"JetStream stream {quote(stream)} not found on account {quote(account)}"
        return _missing("STREAM", problem, options)
    page = _report(list(_problems(js, base, options)), options)
    if consumer and page["status_code"] == OK:
        found = js.accounts[account].streams.get(stream) if account in js.accounts else None
        if found is None or consumer not in found.consumers:
            return _no_consumer(options)
    return page


def _report(problems: list[Page], options: HealthzOptions) -> Page:
    if not problems:
        return {"status": "ok", "status_code": OK}
    if not options.details:
        return {"status": "unavailable", "status_code": UNAVAILABLE, "error": problems[0]["error"]}
    return {"status": "error", "status_code": UNAVAILABLE, "errors": problems}


def _no_consumer(options: HealthzOptions) -> Page:
    problem = (
        f"JetStream consumer {quote(options.consumer)} not found for stream {quote(options.stream)}"
        f" on account {quote(options.account)}"
    )
    return _missing("CONSUMER", problem, options)


_LONGEST = 255
"""Most bytes of a file's name."""


def _is_name(text: str) -> bool:
    """Whether a text is a valid name for a directory: neither a path nor "." or ".."."""
    return not set(text) & {"/", "\0"} and text not in (".", "..") and len(os.fsencode(text)) <= _LONGEST


def _problems(js: "JetStream", base: Path, options: HealthzOptions) -> Iterator[Page]:
    """Yield streams and consumers in the store's directory that are not served or cannot be written."""
    accounts = [base / options.account] if options.account else sorted(base.iterdir())
    for directory in accounts:
        if directory.name.startswith(".") or not directory.is_dir():
            continue
        name = directory.name
        if name not in js.server_accounts:
            problem = f"JetStream account '{name}' could not be resolved"
            yield {"type": "ACCOUNT", "account": name, "error": problem}
            continue
        jsa = js.accounts.get(name)
        streams = directory / "streams"
        for entry in sorted(streams.iterdir()) if streams.is_dir() else ():
            if entry.name.startswith(".") or (options.stream and entry.name != options.stream):
                continue
            about: dict[str, object] = {"type": "STREAM", "account": name, "stream": entry.name}
            stream = jsa.streams.get(entry.name) if jsa else None
            where = f"JetStream stream '{name} > {entry.name}'"
            if stream is None:
                yield about | {"error": f"{where} could not be recovered"}
            elif failure := stream.failure:
                yield about | {"error": f"{where} write error: {failure}"}


def _missing(kind: str, error: str, options: HealthzOptions) -> Page:
    if not options.details:
        return {"status": "unavailable", "status_code": NOT_FOUND, "error": error}
    about = {
        name: getattr(options, name) for name in ("account", "stream", "consumer") if getattr(options, name)
    }
    shown = {"ACCOUNT": 1, "STREAM": 2, "CONSUMER": 3}[kind]
    found = {"type": kind, **dict(list(about.items())[:shown]), "error": error}
    return {"status": "error", "status_code": NOT_FOUND, "errors": [found]}


def _unwell(code: int, kind: str, error: str, details: bool, status: str = "error") -> Page:
    if details:
        return {"status": "error", "status_code": code, "errors": [{"type": kind, "error": error}]}
    return {"status": status, "status_code": code, "error": error}
