"""Measurements of requests whose responder is at another server than their requester (remoteLatencyUpdate).

The requester's server measures all, the responder's server the time that the service took. The latter sends
its half over the system account to the former, which publishes the two as one.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gnats.clock import Timer, call_later, monotonic, monotonic_ns, time_ns
from gnats.core.runtime.inbox import EV_ANSWERED, EV_TRACKED
from gnats.core.subjects.subject import subset_match
from gnats.go.json import JSONError, Struct, marshal, unmarshal
from gnats.go.text import quote, rfc3339, text_bytes
from gnats.nkeys.identity import server_hash

if TYPE_CHECKING:
    from gnats.accounts.accounts import Accounts
    from gnats.accounts.internal_client import InternalClient, Message
    from gnats.client.session import Session
    from gnats.log.logger import Logger
    from gnats.runtime.dispatch import EventTable

MOST = 65536
"""Halves of each kind, and requests without an answer, that are kept; beyond them the oldest go."""
EARLY = 10.0
"""Seconds that a second half waits for the answer."""
GONE = 1000
"""Ends of entries that have gone, beyond the number of those that are there, before they are cleared away."""
PAUSE = 0.1
"""Seconds from one time of forgetting what has ended to the next."""
_SUBJECT = "$SYS.LATENCY.M2."
_NO_TIME = "0001-01-01T00:00:00Z"
_MAPPED = "_GR_."
_PREFIX_TOKENS = 3
"""Tokens before the reply in a mapped one."""
_HASH_AT = -2
"""Index of the requester's server in the tokens of a reply."""
_REMOTE: Struct = {"account": "string", "req_id": "string", "m2": {"service": "int64", "responder": "any"}}

Key = TypeVar("Key")
Value = TypeVar("Value")
Report = dict[str, object]
Half = tuple[Report, Callable[[Report], None]]
"""What the requester's server has measured, and what publishes it."""


class Waiting(Generic[Key, Value]):
    """What waits for something else by a key, for so many seconds each.

    The cost of an entry does not grow with the number of others.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[Key, tuple[float, Value]] = OrderedDict()
        self._ends: list[tuple[float, int, Key]] = []
        """A heap of when entries end, also of some that have gone."""
        self._numbers = count()
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: Key, value: Value, seconds: float) -> None:
        """Keep a value, in the place of another one with the key."""
        until = monotonic() + seconds
        self._entries[key] = until, value
        self._entries.move_to_end(key)
        heappush(self._ends, (until, next(self._numbers), key))
        if len(self._entries) > MOST:
            self._entries.popitem(last=False)
        if len(self._ends) > 2 * len(self._entries) + GONE:
            self._ends = [(end, next(self._numbers), key) for key, (end, _) in self._entries.items()]
            heapify(self._ends)
        if self._timer is None:
            self._timer = call_later(seconds, self._expire)

    def take(self, key: Key) -> Value | None:
        """Return a value that is still there, and forget it."""
        until, value = self._entries.pop(key, (0.0, None))
        return value if until > monotonic() else None

    def close(self) -> None:
        """Forget all."""
        self._entries.clear()
        self._ends.clear()
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        now = monotonic()
        while self._ends and self._ends[0][0] <= now:
            until, _, key = heappop(self._ends)
            if self._entries.get(key, (0.0, None))[0] == until:
                del self._entries[key]
        self._timer = None
        if self._ends:
            self._timer = call_later(max(self._ends[0][0] - now, PAUSE), self._expire)


class RemoteLatency:
    """Both halves: those that this server makes for others, and those that it gets from them.

    `server` returns the members of a client's details that are the server's.
    """

    def __init__(
        self,
        accounts: "Accounts",
        sessions: "Mapping[int, Session]",
        log: "Logger",
        *,
        server: Callable[[], dict[str, object]],
    ) -> None:
        self._accounts = accounts
        self._sessions = sessions
        self._log = log
        self._server = server
        self._client: InternalClient | None = None
        self._asked: Waiting[tuple[int, bytes], int] = Waiting()
        self._first: Waiting[tuple[str, str], Half] = Waiting()
        self._second: Waiting[tuple[str, str], Report] = Waiting()

    @property
    def exchanges(self) -> bool:
        """Whether there are other servers to exchange halves with."""
        return self._client is not None

    def serve(self, events: "EventTable") -> None:
        """Handle the events about requests of other servers."""
        events.on(EV_TRACKED, self._on_tracked)
        events.on(EV_ANSWERED, self._on_answered)

    def start(self, server_name: str, client: "InternalClient") -> None:
        """Exchange halves with other servers by the system account's client.

        Only what another server sends is a half of its: a client can publish anything.
        """
        self._client = client
        client.subscribe(text_bytes(_SUBJECT + server_hash(server_name)), self._on_half)

    def close(self) -> None:
        """Cancel all timers."""
        for waiting in (self._asked, self._first, self._second):
            waiting.close()

    # -- requests of other servers ---------------------------------------------------------------------------

    def _on_tracked(self, source: object, cid: int, now: int, data: object) -> None:
        """Note that a client got a request."""
        session = self._sessions.get(cid)
        if session is None or not isinstance(data, bytes):
            return
        reply, subject = data.split(b" ")
        name = subject.decode("utf-8", "surrogateescape")
        for pattern, service in session.account.services.items():
            if subset_match(name, pattern):
                self._asked.add((cid, reply), now, service.threshold)
                return

    def _on_answered(self, source: object, cid: int, now: int, reply: object) -> None:
        """Tell the requester's server of an answer."""
        session = self._sessions.get(cid)
        if session is None or not isinstance(reply, bytes) or not self._client:
            return
        asked = self._asked.take((cid, reply))
        if asked is None:
            return
        rtt = session.snapshot()["rtt"]
        elapsed = now - asked
        half = {
            "type": "",
            "id": "",
            "timestamp": _NO_TIME,
            "status": 200,
            "responder": session.client_info(rtt=rtt, **self._server(), name_tag=session.grant.name_tag),
            "start": rfc3339(time_ns() - (monotonic_ns() - asked)),
            "service": max(elapsed - rtt, 0),
            "system": 0,
            "total": max(elapsed - rtt, 0) + rtt,
        }
        text = reply.decode("utf-8", "surrogateescape")
        remote = {"account": session.account.name, "req_id": text, "m2": half}
        self._client.publish(text_bytes(_SUBJECT + text.split(".")[_HASH_AT]), marshal(remote), reply=b"")

    # -- requests of this server's clients -------------------------------------------------------------------

    def first_half(self, account: str, reply: str, half: Half, seconds: float) -> None:
        """Publish what this server has measured once the other half is here; forget it after `seconds`."""
        if second := self._second.take((account, reply)):
            _publish(half, second)
        else:
            self._first.add((account, reply), half, seconds)

    def _on_half(self, message: "Message") -> None:
        if not message.from_server:
            return
        try:
            remote: dict[str, Any] = unmarshal(message.payload, _REMOTE, "remoteLatency")
        except JSONError as exc:
            self._log.error(f"Error unmarshalling remote latency measurement: {exc}")
            return
        account = str(remote.get("account", ""))
        if account not in self._accounts:
            self._log.warn(f"Could not lookup account {quote(account)} for latency measurement")
            return
        reply = str(remote.get("req_id", ""))
        if reply.startswith(_MAPPED):  # as the request came over a gateway
            reply = reply.split(".", _PREFIX_TOKENS)[-1]
        key = account, reply
        second = remote.get("m2") or {}
        if half := self._first.take(key):
            _publish(half, second)
        else:
            self._second.add(key, second, EARLY)


def _publish(half: Half, second: Report) -> None:
    """Publish both halves as one (ServiceLatency.merge)."""
    report, publish = half
    service = max(int(second.get("service", 0)), 0)  # type: ignore[call-overload]
    responder = second.get("responder")
    rtt = responder.get("rtt") if isinstance(responder, dict) else 0
    elapsed = int(report["service"])  # type: ignore[call-overload]
    report["system"] = max(elapsed - service - (rtt if isinstance(rtt, int) else 0), 0)
    report["service"] = service
    if isinstance(responder, dict):
        report["responder"] = responder
    publish(report)
