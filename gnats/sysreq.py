"""The services of the system account (events.go): requests about the server, its accounts and its clients."""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gnats.authopts import Permissions, SubjectPermission
from gnats.errors import OptionError, RequestError, ServerError
from gnats.events import Events
from gnats.gojson import JSONError, Struct, marshal, unmarshal
from gnats.internal import InternalClient, Message

if TYPE_CHECKING:
    from gnats.server import Server
    from gnats.session import Session

_ACCEPT_ENCODING = re.compile(rb"(?im)^accept-encoding:(.*)$")
_ACCOUNT_AT = 3  # the token of $SYS.REQ.ACCOUNT.<account>.<what>

FILTER: Struct = {
    "server_name": "string",
    "cluster": "string",
    "host": "string",
    "exact_match": "bool",
    "tags": "strings",
    "domain": "string",
}
"""What of a request's body says which servers are to answer (EventFilterOptions)."""

SERVER_PAGES = (
    "VARZ",
    "SUBSZ",
    "CONNZ",
    "ROUTEZ",
    "GATEWAYZ",
    "LEAFZ",
    "ACCOUNTZ",
    "JSZ",
    "HEALTHZ",
    "EXPVARZ",
    "IPQUEUESZ",
    "RAFTZ",
)
ACCOUNT_PAGES = ("SUBSZ", "CONNZ", "LEAFZ", "JSZ", "INFO")

Answer = Callable[[Message], object]


class Skip(Exception):
    """There is nothing to answer."""


class Services:
    """Answers the requests that arrive in the system account."""

    def __init__(self, server: "Server", client: InternalClient, events: Events) -> None:
        self._server = server
        self._events = events
        self._client = client
        me = f"$SYS.REQ.SERVER.{server.id}"
        self._on("$SYS.REQ.SERVER.PING", self._statsz)
        for prefix in (me, "$SYS.REQ.SERVER.PING"):
            self._on(f"{prefix}.STATSZ", self._statsz)
            self._on(f"{prefix}.IDZ", self._idz)
            for name in SERVER_PAGES:
                self._serve(f"{prefix}.{name}", partial(self._page, name))
        self._on(f"{me}.RELOAD", lambda request: server.spawn(self._reload(request)))
        self._on(f"{me}.KICK", lambda request: self._about_client(request, server.disconnect_client_by_id))
        self._on(f"{me}.LDM", lambda request: self._about_client(request, server.ldm_client_by_id))
        for name in ACCOUNT_PAGES:
            self._serve(f"$SYS.REQ.ACCOUNT.*.{name}", partial(self._account_page, name))
        self._serve("$SYS.REQ.ACCOUNT.*.STATZ", self._account_statz)
        self._serve("$SYS.REQ.ACCOUNT.PING.STATZ", self._statz)
        self._on("$SYS.REQ.ACCOUNT.*.CONNS", self._account_conns)
        self._on("$SYS.REQ.ACCOUNT.NSUBS", self._nsubs)
        self._on("$SYS.DEBUG.SUBSCRIBERS", self._debug_subscribers)
        self._on("$SYS.REQ.USER.*.INFO", self._user_info)

    # -- the form of requests and answers --------------------------------------------------------------------

    def _on(self, subject: str, handle: Callable[[Message], None]) -> None:
        self._client.subscribe(subject.encode(), handle)

    def _serve(self, subject: str, answer: Answer) -> None:
        """Answer requests to `subject` with what `answer` makes of them (zReq).

        Its JSONError is told as a bad request, its LookupError, RequestError, OptionError or ServerError as
        an error of the server; Skip answers nothing.
        """
        self._on(subject, lambda request: self._answer(request, answer))

    def _answer(self, request: Message, answer: Answer) -> None:
        if not request.reply:
            return
        response: dict[str, object] = {"server": None}
        try:
            if self._filtered(request):
                return
            data = answer(request)
            if data is not None:
                response["data"] = data
        except Skip:
            return
        except JSONError as exc:
            response["error"] = {"code": 400, "description": str(exc)}
        except (LookupError, RequestError, OptionError, ServerError) as exc:
            response["error"] = {"code": 500, "description": str(exc.args[0]) if exc.args else ""}
        response["server"] = self._events.server_info()
        header, payload = _encode(marshal(response), request.header)
        self._client.publish(request.reply, payload, reply=b"", header=header)

    def _filtered(self, request: Message) -> bool:
        """Whether the request is for other servers. Raises JSONError."""
        if not request.payload:
            return False
        server, opts = self._server, self._server.opts
        options: dict[str, Any] = unmarshal(request.payload, FILTER, "EventFilterOptions")
        for key, mine in (("server_name", server.name), ("host", opts.host), ("cluster", "")):
            wanted = options.get(key)
            if wanted and (wanted != mine if options.get("exact_match") else wanted not in mine):
                return True
        return bool(options.get("domain")) or not set(options.get("tags") or ()) <= set(opts.server_tags)

    # -- the server ------------------------------------------------------------------------------------------

    def _page(self, name: str, request: Message) -> object:
        from gnats.monitor.services import server_page  # only those who ask load the pages

        return server_page(self._server, name, request.payload)

    def _statsz(self, request: Message) -> None:
        if not request.reply:
            self._events.statsz_update()
            return
        try:
            if not self._filtered(request):
                self._events.respond(request.reply, self._events.statsz())
        except JSONError as exc:
            error = {"code": 400, "description": str(exc)}
            self._events.respond(request.reply, {"server": self._events.server_info(), "error": error})

    def _idz(self, request: Message) -> None:
        server = self._server
        if request.reply:
            me = {"name": server.name, "host": server.opts.host, "id": server.id}
            self._events.respond(request.reply, me)

    async def _reload(self, request: Message) -> None:
        problem: Exception | None = None
        try:
            await self._server.reload()
        except (OptionError, ServerError) as exc:
            problem = exc

        def answer(_: Message) -> None:
            if problem:
                raise problem

        self._answer(request, answer)

    def _about_client(self, request: Message, act: Callable[[int], None]) -> None:
        try:
            cid = unmarshal(request.payload, {"cid": "uint64"}, "KickClientReq").get("cid", 0)
        except JSONError as exc:
            self._server.log.error(f"SYSTEM - Error unmarshalling kick client request: {exc}")
            return
        assert isinstance(cid, int)
        self._answer(request, lambda _: act(cid))

    # -- accounts and users ----------------------------------------------------------------------------------

    def _account_page(self, name: str, request: Message) -> object:
        from gnats.monitor.services import account_page

        return account_page(self._server, name, _account_name(request), request.payload)

    def _account_statz(self, request: Message) -> object:
        name = _account_name(request)
        if name == "PING":  # that has a subscription of its own
            raise Skip
        return self._statz(request, name)

    def _statz(self, request: Message, *accounts: str) -> object:
        from gnats.monitor.services import statz

        page = statz(self._server, request.payload, accounts)
        if page is None:
            raise Skip
        return page

    def _account_conns(self, request: Message) -> None:
        account = self._server.accounts.get(_account_name(request))
        if account and request.reply and account.clients:
            self._events.respond(request.reply, self._events.account_connections(account))

    def _nsubs(self, request: Message) -> None:
        try:
            asked: dict[str, Any] = unmarshal(
                request.payload, {"acc": "string", "subject": "string", "queue": "string"}, "accNumSubsReq"
            )
        except JSONError as exc:
            self._server.log.error(f"SYSTEM - Error unmarshalling account nsubs request message: {exc}")
            return
        account = self._server.accounts.get(asked.get("acc", ""))
        if account and account.clients and request.reply:
            from gnats.monitor.services import subscribers

            subject, queue = asked.get("subject", ""), asked.get("queue", "")
            count = subscribers(self._server, account, subject, queue)
            self._events.respond(request.reply, count)

    def _debug_subscribers(self, request: Message) -> None:
        session = self._server.clients.get(request.producer)
        if session is None or not request.reply:
            return
        from gnats.monitor.services import subscribers

        subject, _, queue = request.payload.decode(errors="replace").strip().partition(" ")
        self._events.respond(request.reply, subscribers(self._server, session.account, subject, queue))

    def _user_info(self, request: Message) -> None:
        session = self._server.clients.get(request.producer)
        if session is None or not request.reply:  # it did not wait for the answer, or wants none
            return
        answer = {"server": self._events.server_info(), "data": user_info(session)}
        self._client.publish(request.reply, marshal(answer))


def _account_name(request: Message) -> str:
    return request.subject.split(b".")[_ACCOUNT_AT].decode(errors="replace")


def user_info(session: "Session") -> dict[str, object]:
    """What a client may know about itself (UserInfo in events.go)."""
    grant, account = session.grant, session.account
    info: dict[str, object] = {"user": session.raw_auth_user(), "account": account.name}
    if account.name_tag:
        info["account_name"] = account.name_tag
    if grant.name_tag:
        info["user_name"] = grant.name_tag
    if grant.permissions is not None:
        info["permissions"] = public_permissions(grant.permissions)
    if expires := session.expires_in():
        info["expires"] = int(expires) * 1_000_000_000
    return info


def public_permissions(permissions: Permissions) -> dict[str, object]:
    """Permissions as clients are told them."""
    public: dict[str, object] = {
        "publish": _subjects(permissions.publish),
        "subscribe": _subjects(permissions.subscribe),
    }
    if response := permissions.response:
        public["responses"] = {"max": response.max_msgs, "ttl": round(response.expires * 1e9)}
    return public


def _subjects(permission: SubjectPermission | None) -> dict[str, object]:
    if permission is None:
        return {}
    lists = {"allow": permission.allow, "deny": permission.deny}
    return {name: list(subjects) for name, subjects in lists.items() if subjects}


def _encode(payload: bytes, header: bytes) -> tuple[bytes | None, bytes]:
    """The answer's header and payload, compressed if the request's header asks for it in a way known here."""
    found = _ACCEPT_ENCODING.search(header)
    if found is None or not found[1].strip():
        return None, payload
    if b"gzip" in found[1].lower():
        import gzip

        return b"NATS/1.0\r\nContent-Encoding: gzip\r\n\r\n", gzip.compress(payload)
    return b"NATS/1.0\r\nContent-Encoding: identity\r\n\r\n", payload
