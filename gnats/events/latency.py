"""Publish the latencies of services, which the data plane measures (ServiceLatency in accounts.go)."""

import re
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gnats.accounts.account import Account
from gnats.accounts.internal_clients import InternalClients
from gnats.client.session import Session
from gnats.clock import time_ns
from gnats.core.messages.sampling import fields
from gnats.go.json import marshal
from gnats.go.text import rfc3339, text_bytes
from gnats.nkeys.identity import NuidSource
from gnats.options.values.accounts import ServiceLatency

if TYPE_CHECKING:
    from gnats.events.remote_latency import RemoteLatency

SERVICE_LATENCY = "io.nats.server.metric.v1.service_latency"
STATUS = {
    400: "Bad Request",
    408: "Request Timeout",
    503: "Service Unavailable",
    504: "Service Timeout",
}

_MEASURED = struct.Struct("=QQqqQQ")  # core.messages.responses.Measured
_ORDER = (
    *("type", "id", "timestamp", "status", "description", "requestor", "responder", "header"),
    *("start", "service", "system", "total"),
)
_WITH = {
    "Uber-Trace-Id": re.compile("Uberctx-.*"),
    "X-B3-Sampled": re.compile("X-B3-(Traceid|Parentspanid|Spanid)"),
    "X-B3-Traceid": re.compile("X-B3-(Sampled|Parentspanid|Spanid)"),
    "B3": None,
    "Traceparent": re.compile("Tracestate"),
}
"""Header fields that request a measurement, the first one present counts; with each, its companion fields."""


class Latency:
    """Publishes measurements in the accounts that provide the services.

    `server` returns what a client's details say of this server.
    """

    def __init__(
        self,
        server: Callable[[], dict[str, object]],
        sessions: Mapping[int, Session],
        clients: InternalClients,
        remote: "RemoteLatency",
    ) -> None:
        self._server = server
        self._sessions = sessions
        self._clients = clients
        self._remote = remote
        self._ids = NuidSource()

    def measured(
        self, account: Account, wanted: ServiceLatency, status: int, data: bytes, seconds: float
    ) -> None:
        """Publish the measurement of a request that ended with a status (an HTTP status).

        `data` is a core.messages.responses.Measured, the request's header if it requested the measurement,
        and the reply subject if another server measures it, too: then what that has measured is published
        with it, or nothing when that does not come within `seconds`.
        """
        requester, responder, elapsed, when, share, reply_n = _MEASURED.unpack_from(data)
        report = self._report(status, requester, responder, elapsed, when, share=bool(share))
        end = len(data) - reply_n
        if header := tracing_fields(data[_MEASURED.size : end]):
            report["header"] = header

        def publish(report: dict[str, object]) -> None:
            message = {name: report[name] for name in _ORDER if name in report}
            self._clients.of(account).publish(text_bytes(wanted.subject), marshal(message), reply=b"")

        if reply_n and self._remote.exchanges:
            reply = data[end:].decode("utf-8", "surrogateescape")
            self._remote.first_half(account.name, reply, (report, publish), seconds)
        else:
            publish(report)

    def _report(
        self, status: int, requester: int, responder: int, elapsed: int, when: int, *, share: bool
    ) -> dict[str, object]:
        report: dict[str, object] = {"type": SERVICE_LATENCY, "id": self._ids.next(), "status": status}
        if status in STATUS:
            report["description"] = STATUS[status]
        requester_rtt = self._describe(report, "requestor", requester, share=share)
        service = system = total = 0
        if status == 200:
            rtt = self._describe(report, "responder", responder, share=True)
            system = max(time_ns() - when, 0) if rtt else 0
            service = max(elapsed - rtt, 0)
            total = requester_rtt + elapsed + system
        report["timestamp"] = rfc3339(time_ns())
        report["start"] = rfc3339(when - elapsed - requester_rtt)
        report |= {"service": service, "system": system, "total": total}
        return report

    def _describe(self, report: dict[str, object], what: str, cid: int, *, share: bool) -> int:
        """Add a client, if it is still connected, to a report; return its round-trip time in ns, 0 if not."""
        session = self._sessions.get(cid)
        if session is None:
            return 0
        rtt = session.snapshot()["rtt"]
        if share:
            report[what] = session.client_info(rtt=rtt, **self._server(), name_tag=session.grant.name_tag)
        else:
            report[what] = {"acc": session.account.name} | ({"rtt": rtt} if rtt else {})
        return rtt


def tracing_fields(header: bytes) -> dict[str, list[str]]:
    """Return the header field that requested a measurement, with its companion fields."""
    found: dict[str, list[str]] = {}
    for key, value in fields(header):
        found.setdefault(_canonical(key), []).append(value.decode(errors="replace"))
    for name, others in _WITH.items():
        if name in found:
            chosen = [key for key in found if key == name or (others and others.fullmatch(key))]
            return {key: found[key] for key in sorted(chosen)}
    return {}


def _canonical(key: bytes) -> str:
    return "-".join(part.capitalize() for part in key.decode(errors="replace").split("-"))
