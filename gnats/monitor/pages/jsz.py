"""/jsz: JetStream's accounts, streams and consumers (Jsz in monitor.go); its part of other pages."""

from typing import TYPE_CHECKING, Protocol

from gnats.clock import time_ns
from gnats.errors import FilteredError, RequestError
from gnats.go.text import quote, rfc3339
from gnats.monitor.pages.options import JszOptions
from gnats.monitor.pages.render import Named, Page

if TYPE_CHECKING:
    from gnats.accounts.accounts import Accounts
    from gnats.jetstream.control.jetstream import JetStream
    from gnats.jetstream.control.jsaccount import JSAccount
    from gnats.jetstream.control.streams import Stream

PAGE_SIZE = 1024
_NO_API = {"level": 0, "total": 0, "errors": 0}


class JszServer(Named, Protocol):
    """The server as these pages see it; it may have JetStream."""

    @property
    def accounts(self) -> "Accounts": ...
    @property
    def jetstream(self) -> "JetStream | None": ...


def jsz(server: JszServer, options: JszOptions) -> Page:
    """Describe JetStream.

    Raises FilteredError.
    """
    js = server.jetstream
    page: Page
    if js is None:
        if options.leader_only:
            raise FilteredError("filtered response: not leader")
        return {
            "memory": 0,
            "storage": 0,
            "reserved_memory": 0,
            "reserved_storage": 0,
            "accounts": 0,
            "ha_assets": 0,
            "api": _NO_API,
            "server_id": server.id,
            "now": rfc3339(time_ns()),
            "disabled": True,
            "config": {"max_memory": 0, "max_storage": 0},
            "streams": 0,
            "consumers": 0,
            "messages": 0,
            "bytes": 0,
            "total": 0,
        }
    if options.leader_only and js.cluster and not js.cluster.leads:
        raise FilteredError("filtered response: not leader")
    streams = [stream for jsa in js.accounts.values() for stream in jsa.streams.values()]
    states = [stream.state() for stream in streams]
    page = {
        **js.stats(),
        "server_id": server.id,
        "now": rfc3339(time_ns()),
        "config": js.config.json(),
        "limits": js.config.options.limits.json(),
        "streams": len(streams),
    }
    if options.raft and streams:
        page["streams_leader"] = len(streams)
    page["consumers"] = sum(state["consumer_count"] for state in states)
    leaders = sum(stream.consumer_count for stream in streams)
    if options.raft and leaders:
        page["consumers_leader"] = leaders
    page["messages"] = sum(state["messages"] for state in states)
    page["bytes"] = sum(state["bytes"] for state in states)
    if meta := js.meta_info(full=True):
        page["meta_cluster"] = meta
    if accounts := _asked(server, options):
        page["account_details"] = [account_detail(jsa, options, js.cluster_info) for jsa in accounts]
    page["total"] = len(js.accounts)
    return page


def _asked(server: JszServer, options: JszOptions) -> "list[JSAccount]":
    """Return the requested accounts, at most a page of them."""
    assert server.jetstream is not None
    accounts = server.jetstream.accounts
    if options.account in accounts:
        return [accounts[options.account]]
    every = options.accounts or ((options.streams or options.consumer) and not options.account)
    if not every:
        return []
    found = sorted(accounts.values(), key=lambda jsa: jsa.name)
    limit = options.limit or PAGE_SIZE
    offset = max(options.offset, 0)
    return found[offset : offset + limit] if limit > 0 else found


def account_detail(jsa: "JSAccount", options: JszOptions, cluster: Page) -> Page:
    """Describe an account, and its streams if they are requested."""
    info = jsa.usage_info()
    default = jsa.limits.get("")
    detail: Page = {
        "name": jsa.account.name_tag,
        "id": jsa.name,
        "memory": info["memory"],
        "storage": info["storage"],
        "reserved_memory": _unsigned(default.max_memory if default else 0),
        "reserved_storage": _unsigned(default.max_storage if default else 0),
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": jsa.api_total, "errors": jsa.api_errors},
    }
    if (options.streams or options.consumer) and jsa.streams:
        detail["stream_detail"] = [_stream_detail(each, options, cluster) for each in jsa.streams.values()]
    return detail


def _unsigned(value: int) -> int:
    """Convert to uint64 as Go does."""
    return value % (1 << 64)


def _stream_detail(stream: "Stream", options: JszOptions, cluster: Page) -> Page:
    from gnats.jetstream.control.consumers import consumer_info

    detail: Page = {"name": stream.name, "created": rfc3339(stream.created)}
    detail["cluster"] = stream.member.cluster_info() if stream.member else cluster
    if options.config:
        detail["config"] = stream.config.json()
    detail["state"] = stream.state()
    if options.consumer and not stream.offline_reason:
        details: dict[bool, list[Page]] = {False: [], True: []}
        for consumer in stream.consumers.values():
            info = consumer_info(consumer, dynamic=False)
            if not options.config:
                del info["config"]
            details[consumer.config.direct].append(info)
        if details[False]:
            detail["consumer_detail"] = details[False]
        if options.direct_consumer and details[True]:
            detail["direct_consumer_detail"] = details[True]
    if mirror := stream.origins.mirror_info():
        detail["mirror"] = mirror
    if sources := stream.origins.sources_info():
        detail["sources"] = sources
    return detail


def jsz_account(server: JszServer, name: str, options: JszOptions) -> Page:
    """Describe one account (JszAccount). Raises RequestError."""
    js = server.jetstream
    if js is None:
        raise RequestError("jetstream not enabled")
    if name not in server.accounts:
        raise RequestError(f"account {quote(name)} not found")
    if name not in js.accounts:
        raise RequestError(f"account {quote(name)} not jetstream enabled")
    return account_detail(js.accounts[name], options, js.cluster_info)


def varz_jetstream(server: JszServer, *, directory: bool = True) -> Page:
    """Return JetStream's part of varz, or without `directory` of statsz.

    That omits the store directory and, unless the server leads the meta group, the group's replicas.
    """
    js = server.jetstream
    if js is None:
        return {}
    shown = js.config.json()
    if not directory:
        del shown["store_dir"]
    page: Page = {"config": shown, "stats": js.stats()}
    if meta := js.meta_info(full=directory or (js.cluster is not None and js.cluster.leads)):
        page["meta"] = meta
    return page | {"limits": js.config.options.limits.json()}
