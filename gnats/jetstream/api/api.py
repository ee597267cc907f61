"""Answer requests to `$JS.API.>`: find the requester, queue the request, respond (jetstream_api.go).

Accounts import the API from the system account. The requester is known from the connection and the imports
that the request came through (Message.requester, Message.account), never from its header. Requests wait in
two queues; requests for information give way to the others.
request.py has a request and its routes; stream_requests.py and consumer_requests.py have the handlers.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Awaitable, Callable, Container
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gnats.accounts.internal_client import InternalClient, Message
from gnats.clock import Timer, call_later
from gnats.go.json import Json, marshal, marshal_steps
from gnats.go.text import quote, text_bytes
from gnats.jetstream import errors
from gnats.jetstream.api import consumer_requests, leader_requests, stream_requests
from gnats.jetstream.api.answering import Answering
from gnats.jetstream.api.infos import Infos
from gnats.jetstream.api.meta_requests import MetaRequests
from gnats.jetstream.api.queue import Job, RequestQueue
from gnats.jetstream.api.request import RESPONSE_TYPE, Body, LeftToOthers, Request, Route, Scope
from gnats.jetstream.api.results import Results
from gnats.jetstream.errors import ApiError
from gnats.jetstream.threads import in_thread
from gnats.runtime.rotation import Rotation
from gnats.runtime.steps import finish

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.jetstream.cluster.entries import Asset
    from gnats.jetstream.control.jetstream import JetStream

API_SUBJECT = b"$JS.API.>"
ACCOUNT_PURGE = b"$JS.API.ACCOUNT.PURGE.*"
SYSTEM_RESPONSE = f"{RESPONSE_TYPE}system_response"

_SYSTEM_ONLY = ("META.LEADER.STEPDOWN", "SERVER.REMOVE", "SERVER.EVACUATE", "META.RESCUE")
_SLICE = 0.002
"""Seconds of answering after which the loop gets to other work than the API."""
_INFOS_EVERY = 8
"""After this number of requests, one for information goes first, however many others wait."""
_AT_ONCE = 16
"""Limited requests, which mostly wait for files, that are carried out at the same time."""
_AT_ONCE_OF_ONE = 4
"""The same for one account."""
_GATHERING_AT_ONCE = 64
"""Requests that wait for other servers, for seconds if one is silent, at the same time."""
_GATHERING_AT_ONCE_OF_ONE = 8
"""The same for one account."""
_DECODED_AT_ONCE = 2
"""Long payloads that are decoded at the same time: more would only wait for the interpreter's lock."""


class Api:
    """The API of a server's JetStream. Used from the loop's thread.

    `client` subscribes in the system account; `client_ids` contains the ids of the server's clients.
    """

    def __init__(self, js: JetStream, client: InternalClient, client_ids: Container[int]) -> None:
        self.js = js
        self._client_ids = client_ids
        self._client = client
        routes = (*stream_requests.ROUTES, *consumer_requests.ROUTES)
        self._routes: dict[str, Route] = {route.verb: route for route in routes}
        self._answering: Answering | None = None
        self._results: Results | None = None
        self._gathered: Infos | None = None
        if js.cluster:
            self._gathered = Infos(js, js.cluster, client)
            self._results = Results(js.cluster, client, js.log, self._answer_assigned)
            self._answering = Answering(js.cluster, leader_requests.led(routes, self._gathered))
        self._requests = RequestQueue("JetStream API queue")
        self._infos = RequestQueue("JetStream API info queue")
        self._ready, self._ready_limited = Rotation[Job](), Rotation[Job]()
        self._ready_infos, self._ready_gathering = Rotation[Job](), Rotation[Job]()
        self._gathering_first = False
        self._chosen = 0
        self._worker: asyncio.Task[None] | None = None
        self._running: dict[asyncio.Task[None], Job] = {}
        self._current: Job | None = None
        self._decoding = asyncio.Semaphore(_DECODED_AT_ONCE)
        self._later: set[Timer] = set()
        self._sids = [
            client.subscribe(API_SUBJECT, self._dispatch),
            client.subscribe(ACCOUNT_PURGE, self._purge_account),
        ]
        self._meta_requests = MetaRequests(js.cluster, self.serve_system) if js.cluster else None
        self._closed = False
        self.inflight = 0

    @property
    def waiting(self) -> tuple[int, int]:
        """The numbers of requests that wait; last those for information."""
        return len(self._requests), len(self._infos)

    async def close(self) -> None:
        """Stop serving requests: drop those that wait, cancel those under way and wait for their end."""
        self._closed = True
        if self._meta_requests:
            self._meta_requests.close()
        for sid in self._sids:
            self._client.unsubscribe(sid)
        for part in (self._results, self._gathered):
            if part:
                part.close()
        self._requests.clear()
        self._infos.clear()
        for timer in self._later:
            timer.cancel()
        tasks = [*self._running, *([self._worker] if self._worker else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # -- requesters and routes ---------------------------------------------------------------------------

    def _route(self, tokens: list[str]) -> Route | None:
        for length in (3, 2, 1):
            route = self._routes.get(".".join(tokens[:length]))
            if route:
                rest = len(tokens) - length
                if rest == route.tokens or (route.or_more and rest > route.tokens):
                    return route
        return None

    def _dispatch(self, message: Message) -> None:
        """Queue a request that came through an account's import.

        Ignore unknown verbs, those that only clusters or other subscriptions answer, and publishes whose
        account is not known. Within the system account, queue only INFO; refuse clients' other requests.
        """
        subject = message.subject.decode("utf-8", "replace")
        tokens = subject.split(".")[2:]
        if subject[len("$JS.API.") :] in _SYSTEM_ONLY or tokens[0] == "ACCOUNT":
            return
        route = self._route(tokens)
        if route and message.requester and self._answering and self._answering.is_silent(route):
            return
        client, account = self._requester(message)
        if account is None:
            return
        request = Request(
            self.js, self, subject, tokens, message.reply, message.header, message.payload, account, client
        )
        if not message.requester and tokens != ["INFO"]:
            if message.producer in self._client_ids:
                request.response_type, request.client = SYSTEM_RESPONSE, None
                self._answer(request, errors.NOT_ENABLED_FOR_ACCOUNT())
            return
        if route is None:
            return
        request.response_type, request.empty = RESPONSE_TYPE + route.response, route.empty
        if chosen := self._choose(request, route):
            self._enqueue(request, chosen, message.producer)

    def _choose(self, request: Request, route: Route) -> Route | None:
        """Return the route by which this server answers; None when it has refused, or keeps silent."""
        if self._answering is None:
            return route
        try:
            return self._answering.choose(request, route)
        except LeftToOthers:
            return None
        except ApiError as exc:
            self._refuse(request, exc)
            return None

    def _requester(self, message: Message) -> tuple[Json | None, Account | None]:
        """Return the requester's client information and its account (getRequestInfo).

        The account is None when the request came through no import and not from the system account.
        """
        account = self.js.server_accounts.get(message.account_name)
        if message.requester:
            return json.loads(message.requester), account
        return {}, account if account is self.js.server_accounts.system_account else None

    # -- the queues --------------------------------------------------------------------------------------

    def _enqueue(self, request: Request, route: Route, cid: int) -> None:
        options = self.js.config.options
        limit = options.request_queue_limit if options.request_queue_limit > 0 else _DEFAULT_LIMIT
        queue = self._requests
        if route.is_info:
            queue = self._infos
            limit = options.info_queue_limit if options.info_queue_limit > 0 else limit
        job = Job(request, route, cid, queue)
        queue.add(job)
        self.inflight += 1
        if queue.is_full(limit):
            self._drop(queue)
        if job.waits:
            claims = route.claims(request.account.name, request.tokens)
            job.hold = self.js.lanes.enter(claims, partial(self._is_ready, job))

    def _drop(self, queue: RequestQueue) -> None:
        """Drop requests from a full queue, and report them."""
        dropped = queue.drop()
        for job in dropped:
            self._done(job)
        log, text = self.js.log, f"{queue.name} limit reached, dropping"
        if log.allow(text):
            log.warn(f"{text} {len(dropped)} requests")
        self.js.advisories.limit_reached(len(dropped))

    def _is_ready(self, job: Job) -> None:
        """Queue a job that has got all its lanes."""
        if job.route.gathers:
            self._ready_gathering.add(job, job.request.account.name)
        elif job.limited:
            self._ready_limited.add(job, job.request.account.name)
        elif job.route.is_info:
            self._ready_infos.add(job, job.cid)
        else:
            self._ready.add(job, job.cid)
        self._start_worker()

    def _next(self) -> Job | None:
        """Return the next job to begin, None when there is none."""
        self._chosen += 1
        if self._chosen % _INFOS_EVERY == 0 and (job := self._next_info()):
            return job
        if self._under_way() < _AT_ONCE and (job := self._ready_limited.next(self._is_busy)):
            return job
        return self._ready.next() or self._next_info()

    def _next_info(self) -> Job | None:
        """Return the next request for information; those that wait for other servers take turns."""
        self._gathering_first = not self._gathering_first
        if self._gathering_first:
            return self._next_gathering() or self._ready_infos.next()
        return self._ready_infos.next() or self._next_gathering()

    def _next_gathering(self) -> Job | None:
        if self._under_way(gathers=True) >= _GATHERING_AT_ONCE:
            return None
        return self._ready_gathering.next(
            lambda account: self._under_way(account, gathers=True) >= _GATHERING_AT_ONCE_OF_ONE
        )

    def _is_busy(self, account: object) -> bool:
        """Whether an account has as many limited requests under way as it may."""
        return self._under_way(account) >= _AT_ONCE_OF_ONE

    def _under_way(self, account: object = None, *, gathers: bool = False) -> int:
        """Return how many requests wait, for other servers or for other things; None: of all accounts."""
        return sum(
            job.route.gathers is gathers and account in (None, job.request.account.name)
            for job in self._running.values()
        )

    def _start_worker(self) -> None:
        if self._worker is None and not self._closed:
            self._worker = asyncio.create_task(self._work())
            self._worker.add_done_callback(self._worked)

    async def _work(self) -> None:
        """Begin the jobs that are ready, and let the loop do other work in between."""
        try:
            until = time.monotonic() + _SLICE
            while job := self._next():
                job.queue.remove(job)
                self._begin(job)
                if time.monotonic() > until:
                    await asyncio.sleep(0)
                    until = time.monotonic() + _SLICE
        finally:
            self._worker = None

    def _worked(self, worker: asyncio.Task[None]) -> None:
        if not worker.cancelled() and (exc := worker.exception()):
            job, self._current = self._current, None
            if job:
                self._fail(job.request, exc)
                self._done(job)
            self._start_worker()

    def _begin(self, job: Job) -> None:
        self._current = job
        try:
            answer = self._handle_long(job, job.body) if job.body else job.route.handle(job.request)
            if isinstance(answer, Awaitable):
                self._current = None
                task = asyncio.create_task(self._carry_out(job, answer))
                self._running[task] = job
                task.add_done_callback(partial(self._ran, answer))
                return
            self._take_answer(job.request, answer)
        except LeftToOthers:
            pass
        except ApiError as exc:
            self._refuse(job.request, exc)
        self._current = None
        self._done(job)

    async def _handle_long(self, job: Job, body: Body[Any]) -> Json | None:
        """Handle a request whose payload a thread decodes first."""
        async with self._decoding:
            await in_thread(lambda: job.request.read_ahead(body))
        answer = job.route.handle(job.request)
        return await answer if isinstance(answer, Awaitable) else answer

    async def _carry_out(self, job: Job, answer: Awaitable[Json | None]) -> None:
        try:
            self._take_answer(job.request, await answer)
        except LeftToOthers:
            pass
        except ApiError as exc:
            self._refuse(job.request, exc)

    def _ran(self, answer: Awaitable[Json | None], task: asyncio.Task[None]) -> None:
        if inspect.iscoroutine(answer):
            answer.close()  # a task that was cancelled before it ran has not awaited this
        job = self._running.pop(task)
        if not task.cancelled() and (exc := task.exception()):
            self._fail(job.request, exc)
        self._done(job)
        self._start_worker()

    def _done(self, job: Job) -> None:
        self.inflight -= 1
        if job.hold:
            self.js.lanes.leave(job.hold)

    def _take_answer(self, request: Request, answer: Json | None) -> None:
        if answer is not None:
            self.respond(request, answer)

    def _fail(self, request: Request, exc: BaseException) -> None:
        """Log and answer an unexpected exception: a bug, or out of memory."""
        where = quote(f"{request.account.label} > {request.subject}")
        self.js.log.error(f"JetStream API request {where} failed: {exc!r:.500}")
        self._answer(request, errors.STREAM_GENERAL(err="internal error"))

    def _refuse(self, request: Request, exc: ApiError) -> None:
        if request.delay:
            self._call_later(request.delay, partial(self._answer, request, exc))
        else:
            self._answer(request, exc)

    def _call_later(self, seconds: float, call: Callable[[], None]) -> None:
        def run() -> None:
            self._later.discard(timer)
            call()

        timer = call_later(seconds, run)
        self._later.add(timer)

    # -- answers -----------------------------------------------------------------------------------------

    def _answer(self, request: Request, error: ApiError) -> None:
        response = {"type": request.response_type, "error": error.json()} | request.empty
        self.respond_with(request, response, failed=request.counted)

    def respond(self, request: Request, members: Json) -> None:
        """Answer with a success."""
        self.respond_with(request, {"type": request.response_type} | members)

    def respond_with(self, request: Request, response: Json, *, failed: bool = False) -> None:
        """Answer, count the request, and publish the audit advisory."""
        self._respond(request, marshal(response), failed=failed)

    async def respond_at_length(self, request: Request, members: Json) -> None:
        """Answer with a success that is so long that a thread encodes it."""
        response = {"type": request.response_type} | members
        # In steps, because each step holds the interpreter's lock.
        payload = await in_thread(lambda: finish(marshal_steps(response, 2)))
        self._respond(request, payload, failed=False)

    def _respond(self, request: Request, payload: bytes, *, failed: bool) -> None:
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
        """Publish the answer only: no count, no audit."""
        if request.reply:
            self._client.publish(request.reply, payload, reply=b"", header=request.response_header)

    def refuse_assignment(self, asset: Asset, error: ApiError, update: bool) -> None:
        """Tell the meta leader that an assigned stream or consumer could not be made, or changed."""
        if self._results:
            self._results.refuse(asset, error, update)

    def _answer_assigned(self, asset: Asset, error: ApiError, response: str, more: Json) -> None:
        """Refuse the request for which an asset was assigned, with more members of the response."""
        account = self.js.server_accounts.get(asset.account)
        if account is None:
            return
        client = asset.client.json() if asset.client else None
        request = Request(
            self.js,
            self,
            asset.subject,
            [],
            text_bytes(asset.reply),
            b"",
            b"",
            account,
            client,
            response,
            more,
        )
        self._answer(request, error)

    # -- the system account's own --------------------------------------------------------------------------

    def serve_system(self, route: Route) -> Callable[[], None]:
        """Carry out requests of the system account's clients, of any server; return what ends that."""
        sid = self._client.subscribe(f"$JS.API.{route.verb}".encode(), partial(self._take_system, route))
        return partial(self._client.unsubscribe, sid)

    def _purge_account(self, message: Message) -> None:
        """Delete everything stored for an account (jsLeaderAccountPurgeRequest)."""
        if cluster := self.js.cluster:
            if cluster.leads:
                self._take_system(_LEADERS_PURGE, message)
        elif message.producer in self._client_ids:
            self._take_system(_PURGE, message)

    def _take_system(self, route: Route, message: Message) -> None:
        if not message.from_server and message.producer not in self._client_ids:
            return
        client, account = self._requester(message)
        if account is None or account is not self.js.server_accounts.system_account:
            return
        subject = message.subject.decode("utf-8", "replace")
        request = Request(
            self.js,
            self,
            subject,
            subject.split(".")[2:],
            message.reply,
            message.header,
            message.payload,
            account,
            client,
            RESPONSE_TYPE + route.response,
            route.empty,
        )
        self._enqueue(request, route, message.producer)


_PURGE = Route(
    "ACCOUNT.PURGE",
    stream_requests.purge_account,
    "account_purge_response",
    scope=Scope.ACCOUNT_END,
    limited=True,
)
_LEADERS_PURGE = replace(_PURGE, handle=leader_requests.purge_account)
_DEFAULT_LIMIT = 10_000
