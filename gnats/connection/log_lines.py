"""nats-server's levels and texts (client.go) for the codes of the data plane's log and trace records."""

import os
from collections.abc import Callable

from gnats.core.net.log_records import LogCode, TraceCode
from gnats.core.protocol.parser import Violation
from gnats.go.text import SECOND, duration, quote

SNIPPET = 32  # bytes of a bad protocol line that the log shows
_ROUTED = ("processRoutedMsgArgs", "processRoutedHeaderMsgArgs", "processRoutedOriginClusterMsgArgs")
"""What reads RMSG, HMSG and LMSG."""
_LINKS = {"Router": "route", "Gateway": "gateway", "Leafnode": "leafnode"}
"""The words for kinds of links in lines about TLS."""
KINDS = ("Client", "Router", "Gateway", "System", "Leafnode", "JetStream", "Account")


def _kind(client: object) -> str:
    return KINDS[getattr(client, "kind", 0)]


def _bad_operation(client: object, b: int, data: bytes) -> str:
    # b: the parser's state (high 32 bits) and the offset (low 32 bits); data: the input from there on
    state, offset, snippet = b >> 32, b & 0xFFFFFFFF, quote(data[:SNIPPET])
    return f"{_kind(client)} parser ERROR, state={state}, i={offset}: proto='{snippet}...'"


def _line(what: str) -> Callable[[object, int, bytes], str]:
    return lambda client, b, data: f"{what}: {quote(data)}"


def _routed(what: str, *, words: bool = False) -> Callable[[object, int, bytes], str]:
    def text(client: object, b: int, data: bytes) -> str:
        line = data.decode(errors="replace")
        shown = f"[{' '.join(line.split())}]" if words else line
        return f"{_ROUTED[b]} {what}: '{shown}'"

    return text


def _text(text: str) -> Callable[[object, int, bytes], str]:
    return lambda client, b, data: text


def _subscription(client: object, b: int, data: bytes) -> str:
    subject, queue, sid = data.split(b"\0", 2)
    named = f", Queue: {quote(queue)}" if queue else ""
    return f"Subscription Violation - Subject {quote(subject)}{named}, SID {sid.decode(errors='replace')}"


def _import_subscription(client: object, b: int, data: bytes) -> str:
    subject, account = data.split(b"\0", 1)
    return f"Creating import subscription on {quote(subject)} from account {account.decode(errors='replace')}"


def _unknown_account(what: str) -> Callable[[object, int, bytes], str]:
    def text(client: object, b: int, data: bytes) -> str:
        account, subject = data.split(b"\0", 1)
        return f"Unknown account {quote(account)} for {what} {quote(subject)}"

    return text


def _unknown_account_msg(client: object, b: int, data: bytes) -> str:
    kind = "gateway" if _kind(client) == "Gateway" else "routed"
    return _unknown_account(f"{kind} message on subject:")(client, b, data)


def _sent_interest(client: object, b: int, data: bytes) -> str:
    return (
        "Sent queue subscriptions to gateway"
        if _kind(client) == "Gateway"
        else "Sent local subscriptions to route"
    )


def _wrong_direction(client: object, b: int, data: bytes) -> str:
    return f"Received {data.decode()} from gateway on {'inbound' if b else 'outbound'} connection"


def _interest_mode(client: object, b: int, data: bytes) -> str:
    gateway, account = data.split(b"\0", 1)
    done = " complete" if b else ""
    return f"Gateway {quote(gateway)}: switching account {quote(account)} to Interest-Only mode{done}"


def _bad_remote_sub(client: object, b: int, data: bytes) -> str:
    line = data.decode(errors="replace")
    if chr(b) == "G":
        return f"processGatewaySubjectSub Parse Error: '{line}'"
    return f"processRemoteSub Parse Error: '{chr(b)} {line}'"


def _bad_remote_unsub(client: object, b: int, data: bytes) -> str:
    what = "processGatewaySubjectUnsub" if chr(b) == "G" else "processRemoteUnsub"
    return f"{what} parse error: '{data.decode(errors='replace')}'"


def _removed_subscription(client: object, b: int, data: bytes) -> str:
    subject, queue, sid = data.split(b"\0", 2)
    named = f" using queue {quote(queue)}" if queue else ""
    return f"Removed sub {quote(subject)}{named} (sid {quote(sid)})"


def _slow_deadline(client: object, b: int, data: bytes) -> str:
    chunks, size, *still = data.decode().split()
    slow = f"Slow Consumer {'State' if still else 'Detected'}"
    return f"{slow}: WriteDeadline of {duration(b)} exceeded with {chunks} chunks of {size} total bytes."


def _slow_recovered(client: object, b: int, data: bytes) -> str:
    chunks, size = data.decode().split()
    took = f"Flush took {b / SECOND:.3f}s"
    return f"Slow Consumer Recovered: {took} with {chunks} chunks of {size} total bytes."


def _tls_version(client: object, b: int, data: bytes) -> str:
    return f"TLS version 1.{b - 0x0301}, cipher suite {data.decode()}"


def _tls_starting(client: object, b: int, data: bytes) -> str:
    if link := _LINKS.get(_kind(client)):
        return f"Starting TLS {link} {'client' if b else 'server'} handshake"
    return "Starting TLS client connection handshake"


def _tls_error(client: object, b: int, data: bytes) -> str:
    from gnats.tls.errors import handshake_error

    link = _LINKS.get(_kind(client))
    return f"TLS {link + ' ' if link else ''}handshake error: {handshake_error(b, data)}"


def _not_pinned(client: object, b: int, data: bytes) -> str:
    what = f"for key id: {data.decode()}" if data else "as client did not provide a certificate"
    return f"Failed pinned cert test {what}"


_RECORDS: dict[int, tuple[str, Callable[[object, int, bytes], str]]] = {
    Violation.BAD_OPERATION: ("ERR", _bad_operation),
    Violation.BAD_PUB_ARGS: ("ERR", _line("processPub Parse Error")),
    Violation.BAD_PUB_SIZE: ("ERR", _line("processPub Bad or Missing Size")),
    Violation.BAD_HPUB_ARGS: ("ERR", _line("processHeaderPub Parse Error")),
    Violation.BAD_HPUB_HEADER_SIZE: ("ERR", _line("processHeaderPub Bad or Missing Header Size")),
    Violation.BAD_HPUB_SIZE: ("ERR", _line("processHeaderPub Bad or Missing Total Size")),
    Violation.BAD_HPUB_HEADER_OVER_SIZE: ("ERR", _line("processHeaderPub Header Size larger then TotalSize")),
    Violation.HEADERS_NOT_SUPPORTED: ("ERR", _text("message headers not supported")),
    Violation.OVER_MAX_CONTROL_LINE: ("ERR", _text("maximum control line exceeded")),
    Violation.OVER_MAX_PAYLOAD: ("ERR", lambda c, b, d: f"maximum payload exceeded: {b} vs {d.decode()}"),
    Violation.BAD_SUB_ARGS: ("ERR", _line("processSub Parse Error")),
    Violation.BAD_UNSUB_ARGS: ("ERR", _line("processUnsub Parse Error")),
    Violation.BAD_REMOTE_MSG_ARGS: ("ERR", _routed("Parse Error", words=True)),
    Violation.BAD_REMOTE_REPLY_INDICATOR: ("ERR", _routed("Bad or Missing Reply Indicator")),
    Violation.BAD_REMOTE_SIZE: ("ERR", _routed("Bad or Missing Size", words=True)),
    Violation.BAD_REMOTE_HEADER_SIZE: ("ERR", _routed("Bad or Missing Header Size")),
    Violation.BAD_REMOTE_HEADER_OVER_SIZE: ("ERR", _routed("Header Size larger then TotalSize")),
    Violation.UNSUPPORTED_OPERATION: ("ERR", _line("operation not supported on this connection")),
    Violation.BAD_REMOTE_SUB_ARGS: ("ERR", _bad_remote_sub),
    Violation.BAD_REMOTE_UNSUB_ARGS: ("ERR", _bad_remote_unsub),
    LogCode.LOG_UNKNOWN_ACCOUNT: ("ERR", _unknown_account("remote subject")),
    LogCode.LOG_UNKNOWN_ACCOUNT_MSG: ("DBG", _unknown_account_msg),
    LogCode.LOG_UNKNOWN_ACCOUNT_UNSUB: ("DBG", _unknown_account("subject")),
    LogCode.LOG_CANNOT_EXPORT: (
        "DBG",
        lambda c, b, d: f"Can not export {quote(d)}, ignoring remote subscription request",
    ),
    LogCode.LOG_INVALID_REMOTE_SUB: (
        "ERR",
        _text("Could not insert subscription: sublist: invalid subject"),
    ),
    LogCode.LOG_SENT_INTEREST: ("DBG", _sent_interest),
    LogCode.LOG_WRONG_DIRECTION: ("ERR", _wrong_direction),
    LogCode.LOG_INTEREST_MODE: ("DBG", _interest_mode),
    LogCode.LOG_INTEREST_REPAIRED: (
        "WRN",
        lambda c, b, d: (
            f"Interest of the other server was not as it is: {b} subscriptions missing, "
            f"{d.decode()} stale; repaired"
        ),
    ),
    LogCode.LOG_INTEREST_DIFFERS: (
        "ERR",
        _text("Interest of the other server is not as its digest says, although it was told again"),
    ),
    LogCode.LOG_KEPT_FULL: (
        "ERR",
        lambda c, b, d: (
            f"Interest of the other server in accounts that do not exist here exceeds {b >> 20} MiB: "
            "more is dropped, and interest is not compared any more"
        ),
    ),
    LogCode.LOG_PUBLISH_VIOLATION: ("ERR", lambda c, b, d: f"Publish Violation - Subject {quote(d)}"),
    LogCode.LOG_REPLY_VIOLATION: ("ERR", lambda c, b, d: f"Publish Violation - Reply {quote(d)}"),
    LogCode.LOG_SUBSCRIPTION_VIOLATION: ("ERR", _subscription),
    LogCode.LOG_MAX_SUBSCRIPTIONS: ("ERR", _text("maximum subscriptions exceeded")),
    LogCode.LOG_AUTH_VIOLATION: ("ERR", _text("authentication error")),
    LogCode.LOG_AUTH_TIMEOUT: ("DBG", _text("Authentication Timeout")),
    LogCode.LOG_SLOW_PENDING: ("INF", lambda c, b, d: f"Slow Consumer Detected: MaxPending of {b} Exceeded"),
    LogCode.LOG_SLOW_DEADLINE: ("INF", _slow_deadline),
    LogCode.LOG_SLOW_RECOVERED: ("INF", _slow_recovered),
    LogCode.LOG_FLUSH_ERROR: ("DBG", lambda c, b, d: f"Error flushing: {os.strerror(b).lower()}"),
    LogCode.LOG_CLIENT_ERROR: (
        "ERR",
        lambda c, b, d: f"{'Route' if _kind(c) == 'Router' else _kind(c)} Error {d.decode(errors='replace')}",
    ),
    LogCode.LOG_PING_TIMER: ("DBG", lambda c, b, d: f"{_kind(c)} Ping Timer"),
    LogCode.LOG_PING_DELAYED: (
        "DBG",
        lambda c, b, d: f"Delaying PING due to remote client data or ping {duration(round(b, -9))} ago",
    ),
    LogCode.LOG_STALE: ("DBG", _text("Stale Client Connection - Closing")),
    LogCode.LOG_AUTO_UNSUBSCRIBE: (
        "DBG",
        lambda c, b, d: f"Auto-unsubscribe limit of {b} reached for sid '{d.decode(errors='replace')}'",
    ),
    LogCode.LOG_PRODUCER_STALLED: (
        "WRN",
        lambda c, b, d: f"Producer was stalled for a total of {duration(b)}",
    ),
    LogCode.LOG_IMPORT_SUBSCRIPTION: ("DBG", _import_subscription),
    LogCode.LOG_TRACE_ORIGIN: (
        "ERR",
        lambda c, b, d: (
            'Message tracing disabled because of header "Nats-Trace-Origin-Account" with value=' + quote(d)
        ),
    ),
    LogCode.LOG_TRACE_BAD_DESTINATION: (
        "ERR",
        lambda c, b, d: f"Destination {quote(d)} is not valid, won't be able to trace events",
    ),
    LogCode.LOG_CLOSING_OUT_OF_MEMORY: ("ERR", _text("Out of memory - Closing")),
    LogCode.LOG_OUT_OF_MEMORY: ("ERR", lambda c, b, d: f"{_kind(c)} - Out of memory, a message is lost"),
    LogCode.LOG_NOT_WATCHED: (
        "ERR",
        lambda c, b, d: f"Error watching the socket: {os.strerror(b).lower()} - Closing",
    ),
    LogCode.LOG_SUBSCRIPTION_REMOVED: ("INF", _removed_subscription),
    LogCode.LOG_TLS_STARTING: ("DBG", _tls_starting),
    LogCode.LOG_TLS_COMPLETE: ("DBG", _text("TLS handshake complete")),
    LogCode.LOG_TLS_VERSION: ("DBG", _tls_version),
    LogCode.LOG_TLS_TIMEOUT: ("DBG", _text("TLS handshake timeout")),
    LogCode.LOG_TLS_ERROR: ("ERR", _tls_error),
    LogCode.LOG_TLS_PROBE: ("DBG", _tls_error),
    LogCode.LOG_TLS_NOT_PINNED: ("DBG", _not_pinned),
}

_UNEXPECTED_ON_LINKS = frozenset((LogCode.LOG_TLS_TIMEOUT, LogCode.LOG_TLS_PROBE))
"""Anyone may cause these at the ports of clients, but nobody should at those of servers."""

_TRACES: dict[int, Callable[[bytes, int], str]] = {
    TraceCode.TRACE_IN: lambda d, cut: f"<<- [{d.decode(errors='replace')}]",
    TraceCode.TRACE_OUT: lambda d, cut: f"->> [{d.decode(errors='replace')}]",
    TraceCode.TRACE_IN_PAYLOAD: lambda d, cut: f"<<- MSG_PAYLOAD: [{_payload(d, cut)}]",
    TraceCode.TRACE_OUT_PAYLOAD: lambda d, cut: f"->> MSG_PAYLOAD: [{_payload(d, cut)}]",
    TraceCode.TRACE_DELSUB: lambda d, cut: f"<-> [DELSUB {d.decode(errors='replace')}]",
}


def _payload(data: bytes, cut: int) -> str:
    return f'{quote(data)[:-1]}..."' if cut else quote(data)


def describe(client: object, code: int, b: int, data: bytes) -> tuple[str, str]:
    """Return the level ("DBG", "INF", "WRN" or "ERR") and the text of an EV_LOG."""
    level, text = _RECORDS[code]
    if code in _UNEXPECTED_ON_LINKS and _kind(client) in ("Router", "Gateway"):
        level = "ERR"
    return level, text(client, b, data)


def trace_line(code: int, cut: int, data: bytes) -> str:
    """Return the text of an EV_TRACE. `cut` is not 0 when `data` is only the beginning of a payload."""
    return _TRACES[code](data, cut)
