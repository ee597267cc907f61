"""A request to the JetStream API, and the routes that requests take (jetstream_api.go)."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from gnats.core.messages.headers import header_value
from gnats.go.json import Json, JSONError, Struct, unmarshal, unmarshal_stream
from gnats.jetstream import errors
from gnats.jetstream.control.lanes import Claim, account_claim, creation_claims, stream_claim
from gnats.jetstream.state.headers import required_level

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.jetstream.control.jetstream import JetStream
    from gnats.jetstream.control.jsaccount import JSAccount

OFFLINE_DELAY = 0.5
"""Seconds before it is said that a stream or consumer is offline."""


class Responder(Protocol):
    """Sends responses."""

    def respond(self, request: Request, members: Json) -> None:
        """Respond with these members."""

    async def respond_at_length(self, request: Request, members: Json) -> None:
        """The same where they are many."""

    def send(self, request: Request, payload: bytes) -> None:
        """Respond with these bytes."""


@dataclass(slots=True)
class Request:
    """A request to the API, and the response to it as far as it is known."""

    js: JetStream
    responder: Responder
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
            self.js.log.warn(f"Invalid JetStream request '{self.account.label} > {self.subject}': {exc}")
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
        self.responder.respond(self, members)

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


def cluster_required(request: Request) -> Json:
    """Refuse what only a server of a cluster can do. Raises ApiError."""
    raise errors.CLUSTER_REQUIRED()


Handler = Callable[[Request], "Awaitable[Json | None] | Json | None"]
"""Answers with what the response has besides its type; None: it does not answer, or has. Raises ApiError.
One that is no coroutine may return one where it finds out that it has to wait."""


class Scope(Enum):
    """What a request is about: others about the same wait for it, or need not."""

    ACCOUNT = auto()
    """What an account has: it only asks."""
    STREAM = auto()
    """A stream or a consumer: it only asks."""
    STREAM_CHANGE = auto()
    """A stream or its consumers change."""
    STREAMS_CHANGE = auto()
    """Streams come, go, or change what they take."""
    ACCOUNT_END = auto()
    """The account that the next token names is emptied."""


@dataclass(frozen=True, slots=True)
class Route:
    """What is done about requests to `verb`, which has so many tokens behind it, the stream's name first."""

    verb: str
    handle: Handler
    response: str
    tokens: int = 0
    or_more: bool = False
    empty: Json = field(default_factory=dict)
    is_info: bool = False
    """It only asks, and gives way to others."""
    scope: Scope = Scope.STREAM_CHANGE

    is_slow: bool = field(init=False, default=False)
    """It waits for something."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_slow", inspect.iscoroutinefunction(self.handle))

    def claims(self, account: str, tokens: list[str]) -> list[Claim]:
        """The lanes that a request needs; `tokens` as Request has them."""
        at = self.verb.count(".") + 1
        stream = tokens[at] if at < len(tokens) else ""
        match self.scope:
            case Scope.STREAMS_CHANGE:
                return creation_claims(account, stream)
            case Scope.STREAM_CHANGE | Scope.STREAM:
                alone = self.scope is Scope.STREAM_CHANGE
                return [account_claim(account), stream_claim(account, stream, alone=alone)]
            case Scope.ACCOUNT_END:
                return [account_claim(stream, alone=True)]
        return [account_claim(account)]
