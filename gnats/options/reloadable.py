"""The options that a reload may change, and the log line of each (diffOptions in reload.go)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gnats.errors import OptionError
from gnats.go.text import duration_of, friendly_bytes
from gnats.options.leafnode_changes import leafnode_changes
from gnats.options.options import Options
from gnats.options.values.auth import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT, AuthCallout
from gnats.options.values.cluster import ClusterOptions, Compression
from gnats.options.values.gateway import GatewayOptions
from gnats.options.values.jetstream import DYNAMIC, JetStreamOptions
from gnats.options.values.tls import TLS_TIMEOUT, TLSOptions

LOG_OPTIONS = frozenset(("Logtime", "LogtimeUTC", "LogFile", "Syslog", "RemoteSyslog"))
"""Fields whose change needs a new log."""

Notice = Callable[[Any], str]


def fields(opts: Options) -> dict[str, object]:
    """Return the options by nats-server's field names, which errors show, in the order of the log lines."""
    tls = opts.tls or TLSOptions()
    return {
        "ServerName": opts.server_name,
        "Host": opts.host,
        "Port": opts.port,
        "ClientAdvertise": opts.client_advertise,
        "Trace": opts.trace,
        "Debug": opts.debug,
        "TraceVerbose": opts.trace_verbose,
        "TraceHeaders": opts.trace_headers,
        "NoSublistCache": opts.no_sublist_cache,
        "NoHeaderSupport": opts.no_header_support,
        "Logtime": opts.logtime,
        "LogtimeUTC": opts.logtime_utc,
        "MaxConn": opts.max_conn,
        "MaxSubs": opts.max_subs,
        "MaxSubTokens": opts.max_sub_tokens,
        "Nkeys": opts.nkeys,
        "Users": (opts.users, opts.permissions),
        "Accounts": (opts.accounts, opts.mappings),
        "NoAuthUser": opts.no_auth_user,
        "DefaultSentinel": opts.default_sentinel,
        "SystemAccount": opts.system_account,
        "NoSystemAccount": opts.no_system_account,
        "Username": opts.username,
        "Password": opts.password,
        "Authorization": opts.authorization,
        "AuthCallout": opts.auth_callout,
        "PingInterval": opts.ping_interval,
        "MaxPingsOut": opts.ping_max,
        "HTTPHost": opts.https_host if opts.https_port else opts.http_host,
        "HTTPPort": opts.http_port,
        "HTTPBasePath": opts.http_base_path,
        "HTTPSPort": opts.https_port,
        "AuthTimeout": opts.auth_timeout,
        "MaxControlLine": opts.max_control_line,
        "MaxPayload": opts.max_payload,
        "MaxPending": opts.max_pending,
        "NoFastProducerStall": opts.no_fast_producer_stall,
        **_jetstream_fields(opts.jetstream),
        "JsAccDefaultDomain": opts.default_js_domain,
        "Cluster": _cluster_field(opts.cluster),
        "Gateway": _gateway_field(opts.gateway),
        "LeafNode": opts.leafnodes,
        "ProfPort": opts.prof_port,
        "ProfBlockRate": opts.prof_block_rate,
        "PidFile": opts.pid_file,
        "PortsFileDir": opts.ports_file_dir,
        "LogFile": opts.log_file,
        "LogSizeLimit": opts.log_size_limit,
        "LogMaxFiles": opts.log_max_num,
        "Syslog": opts.syslog,
        "RemoteSyslog": opts.remote_syslog,
        "Routes": frozenset(opts.cluster.routes),
        "TLSTimeout": tls.timeout,
        "TLSMap": tls.verify_and_map,
        "TLSConfig": opts.tls,
        "TLSPinnedCerts": tls.pinned_certs,
        "TLSRateLimit": tls.connection_rate_limit,
        "TLSHandshakeFirst": tls.handshake_first,
        "TLSHandshakeFirstFallback": tls.handshake_first_fallback,
        "AllowNonTLS": opts.allow_non_tls,
        "WriteDeadline": opts.write_deadline,
        "WriteTimeout": opts.write_timeout,
        "MaxClosedClients": opts.max_closed_clients,
        "LameDuckDuration": opts.lame_duck_duration,
        "LameDuckGracePeriod": opts.lame_duck_grace_period,
        "MaxTracedMsgLen": opts.max_traced_msg_len,
        "TrustedKeys": tuple(sorted(opts.trusted_keys)),
        "TrustedOperators": frozenset(opts.trusted_operators),
        "AccountResolver": opts.resolver,
        "ResolverPreload": opts.resolver_preload,
        "ResolverPinnedAccounts": opts.resolver_pinned_accounts,
        "AccountResolverTLSConfig": opts.resolver_tls,
        "ConnectErrorReports": opts.connect_error_reports,
        "ReconnectErrorReports": opts.reconnect_error_reports,
        "Tags": opts.server_tags,
        "Metadata": opts.server_metadata,
        "FeatureFlags": opts.feature_flags,
        "IOThreads": opts.io_threads,
    }


def _cluster_field(cluster: ClusterOptions) -> ClusterOptions:
    """Return the cluster block without its routes, which are a field of their own."""
    return replace(cluster, routes=())


def _gateway_field(gateway: GatewayOptions) -> GatewayOptions:
    """Return the gateway block without what may change: TLS but for its time-outs, and all pinned certs."""
    remotes = [
        replace(remote, tls=TLSOptions(timeout=remote.tls.timeout if remote.tls else 0.0))
        for remote in gateway.gateways
    ]
    remotes.sort(key=lambda remote: remote.name)
    tls = gateway.tls or TLSOptions(timeout=TLS_TIMEOUT if gateway.port else 0.0)
    fixed = TLSOptions(
        timeout=tls.timeout, verify_and_map=tls.verify_and_map, check_known_urls=tls.check_known_urls
    )
    return replace(gateway, tls=fixed, gateways=tuple(remotes))


def _jetstream_fields(js: JetStreamOptions) -> dict[str, object]:
    return {
        "JetStream": js.enabled,
        "NoJetStreamStrict": not js.strict,
        "JetStreamMaxMemory": js.max_memory,
        "JetStreamMaxStore": js.max_store,
        "JetStreamDomain": js.domain,
        "JetStreamExtHint": js.extension_hint,
        "JetStreamKey": js.key,
        "JetStreamOldKey": js.prev_key,
        "JetStreamCipher": js.cipher,
        "JetStreamUniqueTag": js.unique_tag,
        "JetStreamLimits": js.limits,
        "JetStreamRequestQueueLimit": js.request_queue_limit,
        "JetStreamInfoQueueLimit": js.info_queue_limit,
        "StoreDir": js.store_dir,
        "SyncInterval": js.sync_interval,
        "SyncAlways": js.sync_always,
    }


def _assigned(name: str, show: Callable[[Any], str] = str) -> Notice:
    return lambda value: f"Reloaded: {name} = {show(value)}"


def _words(text: str) -> Notice:
    return lambda value: f"Reloaded: {text}"


def _switch(value: object) -> str:
    return str(value).lower()


def _number(value: float) -> str:
    return f"{value:g}"


_RELOADABLE: Mapping[str, Notice | None] = {
    "ClientAdvertise": lambda value: f"Reload: client_advertise = {value}",
    "Trace": _assigned("trace", _switch),
    "Debug": _assigned("debug", _switch),
    "TraceVerbose": _assigned("trace_verbose", _switch),
    "TraceHeaders": _assigned("trace_headers", _switch),
    "Logtime": _assigned("logtime", _switch),
    "LogtimeUTC": _assigned("logtime_utc", _switch),
    "MaxConn": _assigned("max_connections"),
    "Nkeys": _words("authorization nkey users"),
    "Users": _words("authorization users"),
    "Accounts": _words("accounts"),
    "NoAuthUser": None,
    "DefaultSentinel": _assigned("default_sentinel"),
    "SystemAccount": None,
    "Username": _words("authorization username"),
    "Password": _words("authorization password"),
    "Authorization": _words("authorization token"),
    "PingInterval": _assigned("ping_interval", duration_of),
    "MaxPingsOut": _assigned("ping_max"),
    "AuthTimeout": _assigned("authorization timeout", _number),
    "MaxControlLine": _assigned("max_control_line"),
    "MaxPayload": _assigned("max_payload"),
    "NoFastProducerStall": lambda on: f"Reloaded: fast producers will {'not ' if on else ''}be stalled",
    "ProfBlockRate": _assigned("prof_block_rate"),
    "Cluster": _words("cluster"),
    "LeafNode": None,
    "JetStream": _words("JetStream"),
    "JetStreamMaxMemory": _assigned("JetStream max_mem_store", friendly_bytes),
    "JetStreamMaxStore": _assigned("JetStream max_file_store", friendly_bytes),
    "JetStreamLimits": _words("JetStream limits"),
    "StoreDir": None,
    "PidFile": _assigned("pid_file"),
    "PortsFileDir": _assigned("ports_file_dir"),
    "LogFile": _assigned("log_file"),
    "Syslog": _assigned("syslog", _switch),
    "RemoteSyslog": _assigned("remote_syslog"),
    "Routes": _words("cluster routes"),
    "TLSTimeout": _assigned("tls timeout", _number),
    "TLSConfig": lambda tls: f"Reloaded: tls = {'enabled' if tls else 'disabled'}",
    "TLSPinnedCerts": lambda pinned: f"Reloaded: {len(pinned)} pinned_certs",
    "TLSHandshakeFirst": lambda on: f"Reloaded: Client TLS handshake first: {_switch(on)}",
    "TLSHandshakeFirstFallback": (
        lambda delay: f"Reloaded: Client TLS handshake first fallback delay: {duration_of(delay)}"
    ),
    "WriteDeadline": _assigned("write_deadline", duration_of),
    "MaxTracedMsgLen": _assigned("max_traced_msg_len"),
    "ResolverPreload": None,
    "AccountResolverTLSConfig": _words("accounts"),
    "ConnectErrorReports": _assigned("connect_error_reports"),
    "ReconnectErrorReports": _assigned("reconnect_error_reports"),
    "Tags": _words("tags"),
    "Metadata": _words("metadata"),
}
"""By field that may change: makes the log line from the new value; None: no line."""

_DURATIONS = frozenset(("LameDuckDuration", "LameDuckGracePeriod", "SyncInterval"))


def diff_options(old: Options, new: Options) -> dict[str, str]:
    """Return the fields that differ, each with its log line ("": none).

    Raises OptionError when one of them cannot change while the server runs.
    """
    before, after = fields(old), fields(new)
    if any(account.name == SYSTEM_ACCOUNT for account in old.accounts):
        before["SystemAccount"] = old.system_account or SYSTEM_ACCOUNT
    changed = {}
    for name, value in after.items():
        if value == before[name]:
            continue
        if name in _JETSTREAM_SIZES or name == "StoreDir":
            if _jetstream_may_change(name, before[name], value, old, new):
                notice = _RELOADABLE[name]
                changed[name] = notice(value) if notice else ""
            continue
        if name == "Cluster":
            _check_cluster(old.cluster, new.cluster)
        if name == "LeafNode" and not _leafnodes_change(old, new):
            continue
        if name not in _RELOADABLE or not _may_change(name, before[name], new):
            was, will = (_show(name, each[name]) for each in (before, after))
            raise OptionError(f"config reload not supported for {name}: old={was}, new={will}")
        notice = _RELOADABLE[name]
        changed[name] = notice(value) if notice else ""
    return changed


def _leafnodes_change(old: Options, new: Options) -> bool:
    """Return whether there is anything to apply. Raises OptionError for what needs another start."""
    return bool(leafnode_changes(old.leafnodes, new.leafnodes))


def _check_cluster(old: ClusterOptions, new: ClusterOptions) -> None:
    """Raise OptionError when a change needs another start (validateClusterOpts)."""
    changes: tuple[tuple[str, object, object], ...] = (
        ("host", old.host, new.host),
        ("port", old.port, new.port),
    )
    for what, was, will in changes:
        if was != will:
            shown = f"old={_show('', was)}, new={_show('', will)}"
            raise OptionError(f"config reload not supported for cluster {what}: {shown}")


_JETSTREAM_SIZES = ("JetStreamMaxMemory", "JetStreamMaxStore")


def _jetstream_may_change(name: str, was: Any, will: Any, old: Options, new: Options) -> bool:
    """Check a changed size or store directory. Return True if a running JetStream gets a larger size.

    Return False if JetStream does not run, or if the value goes because JetStream is switched off. Raises
    OptionError for other changes.
    """
    if not old.jetstream.enabled:
        return False
    if name == "StoreDir":
        if will:
            raise OptionError("config reload not supported for jetstream storage directory")
        if new.jetstream.enabled:
            raise OptionError("config reload not supported for jetstream storage dir")
        return False
    if was == DYNAMIC:
        raise OptionError("config reload not supported for jetstream dynamic max memory and store")
    if will == DYNAMIC:
        if new.jetstream.enabled:
            raise OptionError("config reload not supported for jetstream max memory and max store")
        return False
    if will < was:
        raise OptionError("config reload not supported for decreasing jetstream max memory and store")
    return True


def _may_change(name: str, before: object, new: Options) -> bool:
    if name == "NoAuthUser":  # it may only be removed, together with its user
        return not new.no_auth_user and all(user.username != before for user in new.users)
    if name == "SystemAccount":  # the name may be removed when it is the default
        return before == SYSTEM_ACCOUNT and not new.system_account
    return True


def _show(name: str, value: object) -> str:
    """Return a value as Go's %v shows it; "..." where Go shows an address."""
    if name in _DURATIONS and isinstance(value, float):
        return duration_of(value)
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return _switch(value)
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        return f"map[{' '.join(f'{key}:{each}' for key, each in sorted(value.items()))}]"
    if isinstance(value, tuple | list):
        return f"[{' '.join(map(str, value))}]"
    if isinstance(value, Compression):
        return value.mode
    if isinstance(value, AuthCallout):
        users, allowed = _show("", value.auth_users), _show("", value.allowed_accounts)
        return f"&{{{value.issuer} {value.account or GLOBAL_ACCOUNT} {users} {value.xkey} {allowed}}}"
    return str(value) if isinstance(value, str | int | float) else "..."
