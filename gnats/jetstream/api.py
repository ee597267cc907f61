"""Requests to `$JS.API.>`: who asks, what is answered, and in which order (jetstream_api.go).

Accounts import the API from the system account. Who asks is known from the connection and the imports that
the request came through (Message.asker, Message.account), never from its header. Requests wait in two queues;
those that only ask give way to the others.
What is done about them is in streamapi and consumerapi.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from gnats.core.headers import header_value
from gnats.gojson import JSONError, Struct, marshal, unmarshal, unmarshal_stream
from gnats.internal import InternalClient, Message
from gnats.jetstream import errors
from gnats.jetstream.errors import ApiError
from gnats.jetstream.headers import required_level

if TYPE_CHECKING:
    from gnats.account import Account
    from gnats.jetstream.jetstream import JetStream
    from gnats.jetstream.jsaccount import JSAccount

API_SUBJECT = b"$JS.API.>"
ACCOUNT_PURGE = b"$JS.API.ACCOUNT.PURGE.*"
SYSTEM_RESPONSE = "io.nats.jetstream.api.v1.system_response"
OFFLINE_DELAY = 0.5
"""Seconds before it is said that a stream or consumer is offline."""

_TYPE = "io.nats.jetstream.api.v1."
_SYSTEM_ONLY = ("META.LEADER.STEPDOWN", "SERVER.REMOVE", "SERVER.EVACUATE", "META.RESCUE")
_TURN = 64
"""Requests after which others have their turn."""

Json = dict[str, Any]


@dataclass(slots=True)
class Request:
    """A request to the API, and the response to it as far as it is known."""

    api: Api
    subject: str
    tokens: list[str]
    """Of the subject, after $JS.API."""
    reply: bytes
    header: bytes
    payload: bytes
    account: Account
    client: Json | None
    """Who asks."""
    response_type: str = ""
    empty: Json = field(default_factory=dict)
    """What the response has besides its type and error when there is nothing to tell."""
    response_header: bytes | None = None
    delay: float = 0.0
    """Seconds before an error is told."""
    counted: bool = True
    """An error counts as one."""

    @property
    def js(self) -> JetStream:
        return self.api.js

    @property
    def jsa(self) -> JSAccount:
        """The account's JetStream. Raises ApiError where it has none."""
        jsa = self.js.accounts.get(self.account.name)
        if jsa is None:
            raise errors.NOT_ENABLED_FOR_ACCOUNT()
        return jsa

    @property
    def text(self) -> str:
        return self.payload.decode("utf-8", "replace")

    def header_value(self, name: bytes) -> bytes:
        """The value of a header, b"" without it."""
        return header_value(self.header, name) or b""

    def check_level(self) -> None:
        """Raise ApiError where the client requires more than is known here (errorOnRequiredApiLevel)."""
        if not required_level(self.header):
            raise errors.REQUIRED_API_LEVEL()

    def read(self, fields: Struct, what: str) -> Json:
        """The payload as JSON. Raises ApiError with Go's text."""
        try:
            return unmarshal_stream(self.payload, fields, what, strict=True)
        except JSONError as exc:
            self.js.server.log.warn(
                f"Invalid JetStream request '{self.account.label} > {self.subject}': {exc}"
            )
            if self.js.config.options.strict:
                raise errors.INVALID_JSON(err=exc) from None
        return self.read_leniently(fields, what)

    def read_leniently(self, fields: Struct, what: str) -> Json:
        """The payload as JSON of which other fields are skipped. Raises ApiError with Go's text."""
        try:
            return unmarshal(self.payload, fields, what)
        except JSONError as exc:
            raise errors.INVALID_JSON(err=exc) from None

    def read_optional(self, fields: Struct, what: str) -> Json:
        """The same, where what is no object or array is none of our business."""
        return self.read(fields, what) if self.payload.lstrip(b" \t\r\n")[:1] in (b"{", b"[") else {}

    def respond(self, members: Json) -> None:
        """Answer now that all is well; the handler's answer is None then."""
        self.api.respond(self, members)

    @property
    def is_empty(self) -> bool:
        """Is there nothing in it? (isEmptyRequest)"""
        if self.payload in (b"", b"{}"):
            return True
        try:
            return bool(json.loads(self.payload) == {})
        except (ValueError, RecursionError):
            return False

    def require_empty(self) -> None:
        if not self.is_empty:
            raise errors.NOT_EMPTY_REQUEST()

    def require_body(self) -> None:
        if self.is_empty:
            raise errors.BAD_REQUEST()


Handler = Callable[[Request], "Awaitable[Json | None] | Json | None"]
"""Answers with what the response has besides its type; None: it does not answer, or has. Raises ApiError."""


@dataclass(frozen=True, slots=True)
class Route:
    """What is done about requests to `verb`, which has so many tokens behind it."""

    verb: str
    handle: Handler
    response: str
    tokens: int = 0
    or_more: bool = False
    empty: Json = field(default_factory=dict)
    is_info: bool = False
    """It only asks."""


class Api:
    """The API of a server's JetStream."""

    def __init__(self, js: JetStream, client: InternalClient) -> None:
        from gnats.jetstream import consumerapi, streamapi

        self.js = js
        self._client = client
        routes = (*streamapi.ROUTES, *consumerapi.ROUTES)
        self._routes: dict[str, Route] = {route.verb: route for route in routes}
        self._requests: deque[tuple[Request, Route]] = deque()
        self._infos: deque[tuple[Request, Route]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._later: set[asyncio.TimerHandle] = set()
        self._sids = [
            client.subscribe(API_SUBJECT, self._dispatch),
            client.subscribe(ACCOUNT_PURGE, self._purge_account),
        ]
        self.inflight = 0
        self.changing = asyncio.Lock()
        """Held while a request is carried out, by others that change streams."""

    def close(self) -> None:
        """Take no more requests; those that wait are dropped."""
        for sid in self._sids:
            self._client.unsubscribe(sid)
        self._requests.clear()
        self._infos.clear()
        if self._worker:
            self._worker.cancel()
        for timer in self._later:
            timer.cancel()

    # -- who asks what -----------------------------------------------------------------------------------

    def _route(self, tokens: list[str]) -> Route | None:
        for length in (3, 2, 1):
            route = self._routes.get(".".join(tokens[:length]))
            if route:
                rest = len(tokens) - length
                if rest == route.tokens or (route.or_more and rest > route.tokens):
                    return route
        return None

    def _dispatch(self, message: Message) -> None:
        subject = message.subject.decode("utf-8", "replace")
        tokens = subject.split(".")[2:]
        if subject[len("$JS.API.") :] in _SYSTEM_ONLY or tokens[0] == "ACCOUNT":
            return
        client, account = self._asker(message)
        if account is None:
            return
        request = Request(
            self, subject, tokens, message.reply, message.header, message.payload, account, client
        )
        if not message.asker and tokens != ["INFO"]:
            if message.producer in self.js.server.clients:
                request.response_type, request.client = SYSTEM_RESPONSE, None
                self._answer(request, errors.NOT_ENABLED_FOR_ACCOUNT())
            return
        route = self._route(tokens)
        if route is None:
            return
        request.response_type, request.empty = _TYPE + route.response, route.empty
        self._enqueue(request, route)

    def _asker(self, message: Message) -> tuple[Json | None, Account | None]:
        """What is known of who asks, and the account that is meant (getRequestInfo)."""
        account = self.js.server.accounts.get(message.account_name)
        if message.asker:
            return json.loads(message.asker), account
        return {}, account if account is self.js.server.system_account else None

    # -- the queues --------------------------------------------------------------------------------------

    def _enqueue(self, request: Request, route: Route) -> None:
        options = self.js.config.options
        limit = options.request_queue_limit if options.request_queue_limit > 0 else _DEFAULT_LIMIT
        queue, name = self._requests, "JetStream API queue"
        if route.is_info:
            queue, name = self._infos, "JetStream API info queue"
            limit = options.info_queue_limit if options.info_queue_limit > 0 else limit
        queue.append((request, route))
        self.inflight += 1
        if len(queue) >= limit:
            dropped = len(queue)
            queue.clear()
            self.inflight -= dropped
            self.js.server.log.warn(f"{name} limit reached, dropping {dropped} requests")
            self.js.advisories.limit_reached(dropped)
        elif self._worker is None:
            self._start_worker()

    def _start_worker(self) -> None:
        self._worker = asyncio.create_task(self._work())
        self._worker.add_done_callback(self._worked)

    def _worked(self, worker: asyncio.Task[None]) -> None:
        self._worker = None
        if worker.cancelled():
            return
        if exc := worker.exception():  # a bug: one request has no answer, the others must have theirs
            self.js.server.log.error(f"JetStream API request failed: {exc!r}")
        if self._requests or self._infos:
            self._start_worker()

    async def _work(self) -> None:
        done = 0
        while self._requests or self._infos:
            request, route = (self._requests or self._infos).popleft()
            self.inflight -= 1
            await self.js.configured()
            async with self.changing:
                await self._process(request, route.handle)
            done += 1
            if done % _TURN == 0:
                await asyncio.sleep(0)

    async def _process(self, request: Request, handle: Handler) -> None:
        try:
            answer = handle(request)
            if isinstance(answer, Awaitable):
                answer = await answer
        except ApiError as exc:
            if request.delay:
                self._call_later(request.delay, partial(self._answer, request, exc))
            else:
                self._answer(request, exc)
        else:
            if answer is not None:
                self.respond(request, answer)

    def _call_later(self, seconds: float, call: Callable[[], None]) -> None:
        def run() -> None:
            self._later.discard(timer)
            call()

        timer = asyncio.get_running_loop().call_later(seconds, run)
        self._later.add(timer)

    # -- answers -----------------------------------------------------------------------------------------

    def _answer(self, request: Request, error: ApiError) -> None:
        response = {"type": request.response_type, "error": error.json()} | request.empty
        self.respond_with(request, response, failed=request.counted)

    def respond(self, request: Request, members: Json) -> None:
        """Answer that all is well."""
        self.respond_with(request, {"type": request.response_type} | members)

    def respond_with(self, request: Request, response: Json, *, failed: bool = False) -> None:
        """Answer, count it, and tell those who audit the API."""
        payload = marshal(response)
        self.js.count_request(request.account, failed=failed)
        self.send(request, payload)
        self.js.advisories.api_audit(
            request.account,
            request.client,
            request.subject,
            request.text,
            payload.decode("utf-8", "replace"),
        )

    def send(self, request: Request, payload: bytes) -> None:
        """The bare answer."""
        if request.reply:
            self._client.publish(request.reply, payload, reply=b"", header=request.response_header)

    # -- the system account's own --------------------------------------------------------------------------

    def _purge_account(self, message: Message) -> None:
        """Delete all that an account has stored (jsLeaderAccountPurgeRequest)."""
        client, account = self._asker(message)
        if account is None or account is not self.js.server.system_account:
            return
        from gnats.jetstream.streamapi import purge_account

        subject = message.subject.decode("utf-8", "replace")
        request = Request(
            self,
            subject,
            subject.split(".")[2:],
            message.reply,
            message.header,
            message.payload,
            account,
            client,
            _TYPE + "account_purge_response",
        )
        self._enqueue(request, Route("", purge_account, ""))


_DEFAULT_LIMIT = 10_000
