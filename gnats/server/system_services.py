"""The services of the system account (events.go): requests about the server, its accounts and its clients."""

import json
from collections.abc import Awaitable, Callable, Container, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gnats.accounts.internal_client import InternalClient, Message
from gnats.errors import FilteredError, OptionError, RequestError, ServerError
from gnats.events.events import Events, encode, encode_steps
from gnats.events.replies import Replies
from gnats.go.json import JSONError, Struct, marshal, marshal_steps, unmarshal
from gnats.go.text import SECOND
from gnats.options.values.auth import Permissions, SubjectPermission
from gnats.runtime.long_work import LongWork
from gnats.server.subscriber_counts import SubscriberCounts

if TYPE_CHECKING:
    import asyncio

    from gnats.accounts.accounts import Accounts
    from gnats.client.session import Session
    from gnats.log.logger import Logger
    from gnats.monitor.services import PagesServer
    from gnats.options.options import Options
    from gnats.runtime.steps import Steps

_ACCOUNT_AT = 3  # index of the account's token in $SYS.REQ.ACCOUNT.<account>.<what>

FILTER: Struct = {
    "server_name": "string",
    "cluster": "string",
    "host": "string",
    "exact_match": "bool",
    "tags": "strings",
    "domain": "string",
}
"""The fields of a request's body that select the servers to answer (EventFilterOptions)."""

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
"""The pages of gnats.monitor.services, which the first request loads. PROFILEZ is apart, because it measures
for a while."""

ACCOUNT_PAGES = ("SUBSZ", "CONNZ", "LEAFZ", "JSZ", "INFO")


Answer = Callable[[Message], "Steps[object]"]


class Services:
    """Answer the requests that arrive in the system account.

    `client` subscribes and answers. `pages` is the server as the monitoring pages see it. `sessions` are the
    clients by id. `options` returns the current options. `spawn` runs a coroutine as a task, until the server
    shuts down. `reload` reloads the configuration, and raises OptionError or ServerError. `disconnect` closes
    a client by its id, `lame_duck` sends it the INFO of lame duck mode; both raise KeyError for an unknown
    one. `connections` contains the ids of all connections that requests come from: clients and routes.
    """

    def __init__(
        self,
        client: InternalClient,
        events: Events,
        replies: Replies,
        pages: "PagesServer",
        accounts: "Accounts",
        sessions: "Mapping[int, Session]",
        log: "Logger",
        *,
        connections: Container[int],
        options: "Callable[[], Options]",
        spawn: "Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]",
        reload: Callable[[], Awaitable[None]],
        disconnect: Callable[[int], None],
        lame_duck: Callable[[int], None],
    ) -> None:
        self._client = client
        self._events = events
        self._pages = pages
        self._accounts = accounts
        self._sessions = sessions
        self._log = log
        self._options = options
        self._spawn = spawn
        self._reload_server = reload
        self._long_work = LongWork(connections, spawn, log)
        me = f"$SYS.REQ.SERVER.{events.server_id}"
        self._on("$SYS.REQ.SERVER.PING", self._statsz)
        for prefix in (me, "$SYS.REQ.SERVER.PING"):
            self._on(f"{prefix}.STATSZ", self._statsz)
            self._on(f"{prefix}.IDZ", self._idz)
            self._on(f"{prefix}.PROFILEZ", self._profilez)
            for name in SERVER_PAGES:
                self._serve(f"{prefix}.{name}", name.capitalize(), partial(self._page, name))
        self._on(f"{me}.RELOAD", self._reload)
        self._on(f"{me}.KICK", lambda request: self._about_client(request, disconnect))
        self._on(f"{me}.LDM", lambda request: self._about_client(request, lame_duck))
        for name in ACCOUNT_PAGES:
            what = "AccInfo" if name == "INFO" else name.capitalize()
            self._serve(f"$SYS.REQ.ACCOUNT.*.{name}", what, partial(self._account_page, name))
        self._serve("$SYS.REQ.ACCOUNT.*.STATZ", "AccountStatz", self._account_statz)
        self._serve("$SYS.REQ.ACCOUNT.PING.STATZ", "AccountStatz", self._statz)
        self._on("$SYS.REQ.ACCOUNT.*.CONNS", self._account_conns)
        SubscriberCounts(client, replies, pages, accounts, sessions, self._long_work, log, spawn)
        self._on("$SYS.REQ.USER.*.INFO", self._user_info)

    # -- the form of requests and answers --------------------------------------------------------------------

    def _on(self, subject: str, handle: Callable[[Message], None]) -> None:
        self._client.subscribe(subject.encode(), handle)

    def _serve(self, subject: str, what: str, answer: Answer) -> None:
        """Answer requests to `subject` with the result of `answer` (zReq), in steps; `what` is for errors.

        When `answer` raises JSONError, the requester gets error 400; for RequestError error 500, and for
        FilteredError no answer.
        """

        def begin(request: Message) -> None:
            if request.reply:
                work = self._answer(request, f"{what}EventOptions", answer)
                self._long_work.begin(request.producer, request.account, work)

        self._on(subject, begin)

    def _answer(self, request: Message, what: str, answer: Answer) -> "Steps[None]":
        try:
            if not self._filtered(request, what):
                page = yield from answer(request)
                message = yield from marshal_steps({"server": self._events.server_info(), "data": page})
                accepts = request.header_value(b"Accept-Encoding")
                header, payload = yield from encode_steps(message, accepts)
                self._client.publish(request.reply, payload, reply=b"", header=header)
        except FilteredError:
            return
        except JSONError as exc:
            self._fail(request, 400, str(exc))
        except RequestError as exc:
            self._fail(request, 500, str(exc), data=None)

    def _respond(self, request: Message, result: dict[str, object]) -> None:
        message = marshal({"server": self._events.server_info()} | result)
        header, payload = encode(message, request.header_value(b"Accept-Encoding"))
        self._client.publish(request.reply, payload, reply=b"", header=header)

    def _fail(self, request: Message, code: int, text: str, **result: object) -> None:
        result["error"] = {"code": code, "description": text}
        self._events.respond(request.reply, {"server": self._events.server_info()} | result)

    def _filtered(self, request: Message, what: str) -> bool:
        """Whether the request's filter excludes this server. Raises JSONError."""
        if not request.payload:
            return False
        opts = self._options()
        options: dict[str, Any] = unmarshal(request.payload, FILTER, what)
        for key, mine in (
            ("server_name", self._events.server_name),
            ("host", opts.host),
            ("cluster", opts.cluster.name),
        ):
            wanted = options.get(key)
            if wanted and (wanted != mine if options.get("exact_match") else wanted not in mine):
                return True
        tags = {tag.strip().lower() for tag in options.get("tags") or ()}
        domain = options.get("domain")
        return bool(domain and domain != opts.jetstream.domain) or not tags <= set(opts.server_tags)

    def _wanted(self, request: Message) -> bool:
        """Whether this server must carry out a request; answers a malformed one with error 400."""
        try:
            return bool(request.reply) and not self._filtered(request, "EventFilterOptions")
        except JSONError as exc:
            self._fail(request, 400, str(exc))
            return False

    # -- the server ------------------------------------------------------------------------------------------

    def _page(self, name: str, request: Message) -> "Steps[object]":
        from gnats.monitor.services import server_page  # the first request loads the pages

        return server_page(self._pages, name, request.payload)

    def _statsz(self, request: Message) -> None:
        try:
            if self._filtered(request, "StatszEventOptions"):
                return
        except JSONError as exc:
            self._fail(request, 400, str(exc))
            return
        if request.reply:
            self._events.respond(request.reply, self._events.statsz())
        else:
            self._events.statsz_update(now=True)

    def _idz(self, request: Message) -> None:
        events = self._events
        if request.reply:
            me = {"name": events.server_name, "host": self._options().host, "id": events.server_id}
            events.respond(request.reply, me)

    def _profilez(self, request: Message) -> None:
        try:
            if not request.reply or self._filtered(request, "ProfilezEventOptions"):
                return
            from gnats.monitor.pages.profilez import ProfilezOptions, profilez

            options = ProfilezOptions.from_json(request.payload)
        except JSONError as exc:
            self._fail(request, 400, str(exc))
            return

        async def answer() -> None:
            self._respond(request, {"data": await profilez(options)})

        self._spawn(answer())

    def _reload(self, request: Message) -> None:
        if self._wanted(request):
            self._spawn(self._reload_and_answer(request))

    async def _reload_and_answer(self, request: Message) -> None:
        try:
            await self._reload_server()
        except (OptionError, ServerError) as exc:
            self._fail(request, 500, str(exc))
        else:
            self._respond(request, {})

    def _about_client(self, request: Message, act: Callable[[int], None]) -> None:
        try:
            cid = unmarshal(request.payload, {"cid": "uint64"}, "KickClientReq").get("cid", 0)
        except JSONError as exc:
            self._log.error(f"SYSTEM - Error unmarshalling kick client request: {exc}")
            return
        assert isinstance(cid, int)
        if self._wanted(request):
            try:
                act(cid)
            except LookupError as exc:
                self._fail(request, 500, str(exc.args[0]))
            else:
                self._respond(request, {})

    # -- accounts and users ----------------------------------------------------------------------------------

    def _account_page(self, name: str, request: Message) -> "Steps[object]":
        from gnats.monitor.services import account_page

        return account_page(self._pages, name, _account_name(request), request.payload)

    def _account_statz(self, request: Message) -> "Steps[object]":
        name = _account_name(request)
        if name == "PING":  # the subscription to ACCOUNT.PING.STATZ answers this
            raise FilteredError
        return (yield from self._statz(request, name))

    def _statz(self, request: Message, *accounts: str) -> "Steps[object]":
        from gnats.monitor.services import statz
        from gnats.runtime.steps import at_once

        page = yield from at_once(lambda: statz(self._pages, request.payload, accounts))
        if page is None:
            raise FilteredError
        return page

    def _account_conns(self, request: Message) -> None:
        name = _account_name(request)
        try:
            asked = unmarshal(request.payload, {"acc": "string"}, "accNumConnsReq") if request.payload else {}
        except JSONError as exc:
            self._log.error(f"SYSTEM - Error unmarshalling account connections request message: {exc}")
            return
        if asked.get("acc", name) != name:
            self._log.error("SYSTEM - Error unmarshalled account does not match subject")
            return
        account = self._accounts.get(name)
        if account and request.reply and (account.clients or account.leafs):
            self._events.send_conns(account, request.reply.decode(errors="replace"))

    def _user_info(self, request: Message) -> None:
        session = self._sessions.get(request.producer)
        if session is None or not request.reply:  # the client has gone, or wants no answer
            return
        requester: dict[str, object] = json.loads(request.requester or b"{}")
        info = user_info(session, str(requester.get("acc", "")))
        self._events.respond(request.reply, {"server": self._events.server_info(), "data": info})


def _account_name(request: Message) -> str:
    return request.subject.split(b".")[_ACCOUNT_AT].decode(errors="replace")


def user_info(session: "Session", account: str) -> dict[str, object]:
    """Describe a client's user for the client itself (UserInfo in events.go).

    An empty `account`: the request came through no import, and the answer names neither user nor account.
    """
    info: dict[str, object] = {"user": session.raw_auth_user() if account else "", "account": account}
    if account and session.account.name_tag:
        info["account_name"] = session.account.name_tag
    if account and session.grant.name_tag:
        info["user_name"] = session.grant.name_tag
    if session.grant.permissions is not None:
        info["permissions"] = public_permissions(session.grant.permissions)
    if expires := int(session.expires_in()):
        info["expires"] = expires * SECOND
    return info


def public_permissions(permissions: Permissions) -> dict[str, object]:
    """Return permissions in the form of the answers that clients get (times in ns)."""
    public: dict[str, object] = {
        "publish": _subjects(permissions.publish),
        "subscribe": _subjects(permissions.subscribe),
    }
    if response := permissions.response:
        public["responses"] = {"max": response.max_msgs, "ttl": round(response.expires * SECOND)}
    return public


def _subjects(permission: SubjectPermission | None) -> dict[str, object]:
    if permission is None:
        return {}
    lists = {"allow": permission.allow, "deny": permission.deny}
    return {name: list(subjects) for name, subjects in lists.items() if subjects}
