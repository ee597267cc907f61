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
"""Seconds to wait before answering that a stream or consumer is offline."""


class Responder(Protocol):
    """Sends responses."""

    def respond(self, request: Request, members: Json) -> None:
        """Respond with a success that has these fields."""

    async def respond_at_length(self, request: Request, members: Json) -> None:
        """Respond as respond(), but encode a long response in a thread."""

    def send(self, request: Request, payload: bytes) -> None:
        """Respond with these bytes, without count and audit."""


@dataclass(slots=True)
class Request:
    """A request to the API, and the parts of its response that are known."""

    js: JetStream
    responder: Responder
    subject: str
    tokens: list[str]
    """The tokens of the subject after $JS.API."""
    reply: bytes
    header: bytes
    payload: bytes
    account: Account
    client: Json | None
    """The requester's client information, for advisories."""
    response_type: str = ""
    empty: Json = field(default_factory=dict)
    """Fields of an error response besides its type and error."""
    response_header: bytes | None = None
    delay: float = 0.0
    """Seconds to wait before answering with an error."""
    counted: bool = True
    """Whether an error is counted as one."""

    @property
    def jsa(self) -> JSAccount:
        """The account's JetStream. Raises ApiError when it has none."""
        jsa = self.js.accounts.get(self.account.name)
        if jsa is None:
            raise errors.NOT_ENABLED_FOR_ACCOUNT()
        return jsa

    @property
    def text(self) -> str:
        return self.payload.decode("utf-8", "replace")

    def header_value(self, name: bytes) -> bytes:
        """Return the value of a header, b"" without it."""
        return header_value(self.header, name) or b""

    def check_level(self) -> None:
        """Raise ApiError when the header requires a higher API level (errorOnRequiredApiLevel)."""
        if not required_level(self.header):
            raise errors.REQUIRED_API_LEVEL()

    def read(self, fields: Struct, what: str) -> Json:
        """Decode the payload, logging unknown fields; the option `strict` refuses these.

        `what` is the name of Go's type. Raises ApiError with Go's text.
        """
        try:
            return unmarshal_stream(self.payload, fields, what, strict=True)
        except JSONError as exc:
            self.js.log.warn(f"Invalid JetStream request '{self.account.label} > {self.subject}': {exc}")
            if self.js.config.options.strict:
                raise errors.INVALID_JSON(err=exc) from None
        return self.read_leniently(fields, what)

    def read_leniently(self, fields: Struct, what: str) -> Json:
        """Decode the payload, skipping unknown fields. Raises ApiError with Go's text."""
        try:
            return unmarshal(self.payload, fields, what)
        except JSONError as exc:
            raise errors.INVALID_JSON(err=exc) from None

    def read_optional(self, fields: Struct, what: str) -> Json:
        """Decode the payload as read(); ignore one that is neither an object nor an array."""
        return self.read(fields, what) if self.payload.lstrip(b" \t\r\n")[:1] in (b"{", b"[") else {}

    def respond(self, members: Json) -> None:
        """Answer with a success now; the handler must return None."""
        self.responder.respond(self, members)

    @property
    def is_empty(self) -> bool:
        """Whether the payload is empty, or an empty JSON object (isEmptyRequest)."""
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
    """Refuse a request that only a server in a cluster can carry out. Raises ApiError."""
    raise errors.CLUSTER_REQUIRED()


Handler = Callable[[Request], "Awaitable[Json | None] | Json | None"]
"""Carries out a request. Returns the fields of the response besides its type, or None when there is no
response or it has been sent. A plain function may return a coroutine if it has to wait. Raises ApiError."""


class Scope(Enum):
    """The part of JetStream that a request reads or changes: decides which requests exclude each other."""

    ACCOUNT = auto()
    """Reads an account."""
    STREAM = auto()
    """Reads a stream or a consumer."""
    STREAM_CHANGE = auto()
    """Changes a stream or its consumers."""
    STREAMS_CHANGE = auto()
    """Makes, deletes or changes a stream, with its subjects and reservations."""
    ACCOUNT_END = auto()
    """Deletes everything of the account that the next token names."""


@dataclass(frozen=True, slots=True)
class Route:
    """The handler of requests to `verb`, which `tokens` tokens follow, the stream's name first."""

    verb: str
    handle: Handler
    response: str
    tokens: int = 0
    or_more: bool = False
    empty: Json = field(default_factory=dict)
    is_info: bool = False
    """The request asks for information, and gives way to others."""
    scope: Scope = Scope.STREAM_CHANGE

    is_slow: bool = field(init=False, default=False)
    """The handler is a coroutine function, which waits for something."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_slow", inspect.iscoroutinefunction(self.handle))

    def claims(self, account: str, tokens: list[str]) -> list[Claim]:
        """Return the lanes that a request needs; `tokens` are those of the Request."""
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
