"""A request to the JetStream API, and the routes that requests take (jetstream_api.go)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from gnats.core.messages.headers import header_value
from gnats.go.json import Json, JSONError, Struct, unmarshal, unmarshal_stream
from gnats.jetstream import errors
from gnats.jetstream.control.lanes import Claim, account_claim, creation_claims, stream_claim
from gnats.jetstream.errors import ApiError
from gnats.jetstream.state.headers import required_level

T = TypeVar("T")

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.jetstream.control.jetstream import JetStream
    from gnats.jetstream.control.jsaccount import JSAccount

_EMPTY_OBJECT = re.compile(rb"[ \t\r\n]*\{[ \t\r\n]*\}[ \t\r\n]*")
RESPONSE_TYPE = "io.nats.jetstream.api.v1."
"""What the types of responses begin with."""
OFFLINE_DELAY = 0.5
"""Seconds to wait before answering that a stream or consumer is offline."""


class LeftToOthers(Exception):
    """No answer is due: the account has no JetStream here, but leaf nodes connect servers that may answer."""


class Responder(Protocol):
    """Sends responses."""

    def respond(self, request: Request, members: Json) -> None:
        """Respond with a success that has these fields."""

    async def respond_at_length(self, request: Request, members: Json) -> None:
        """Respond as respond(), but encode a long response in a thread."""

    def send(self, request: Request, payload: bytes) -> None:
        """Respond with these bytes, without count and audit."""


@dataclass(frozen=True, eq=False)
class Body(Generic[T]):
    """The JSON in the payload of requests."""

    fields: Struct
    what: str
    """The name of Go's type."""
    make: Callable[[Json], T]
    """Makes the result of Request.read() from the members."""
    optional: bool = False
    """A payload that is neither an object nor an array is ignored."""
    skips_unknown: bool = False
    """Unknown fields are skipped. Otherwise they are logged, and the option `strict` refuses them."""


def members(fields: Struct, what: str, *, optional: bool = False, skips_unknown: bool = False) -> Body[Json]:
    """Make a body that is read as its members."""
    return Body(fields, what, lambda found: found, optional, skips_unknown)


@dataclass(slots=True)
class Outcome:
    """The result of decoding a payload."""

    body: Body[Any]
    value: Any = None
    error: ApiError | None = None
    warnings: list[str] = field(default_factory=list)


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
    _outcome: Outcome | None = None

    @property
    def jsa(self) -> JSAccount:
        """The account's JetStream. Raises ApiError when it has none, or LeftToOthers (checkJetStream)."""
        jsa = self.js.accounts.get(self.account.name)
        if jsa is None:
            if self.account.leafs or self.account.leafs_elsewhere:
                raise LeftToOthers
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

    def read(self, body: Body[T]) -> T:
        """Decode the payload. Raises ApiError with Go's text."""
        outcome = self._outcome if self._outcome and self._outcome.body is body else self._decode(body)
        for warning in outcome.warnings:
            self.js.log.warn(f"Invalid JetStream request '{self.account.label} > {self.subject}': {warning}")
        if outcome.error:
            raise outcome.error
        value: T = outcome.value
        return value

    def read_ahead(self, body: Body[Any]) -> None:
        """Decode the payload for read(), in a thread."""
        self._outcome = self._decode(body)

    def _decode(self, body: Body[Any]) -> Outcome:
        outcome = Outcome(body)
        if body.optional and self.payload.lstrip(b" \t\r\n")[:1] not in (b"{", b"["):
            outcome.value = body.make({})
            return outcome
        try:
            outcome.value = body.make(self._members(body, outcome.warnings))
        except JSONError as exc:
            outcome.error = errors.INVALID_JSON(err=exc)
        return outcome

    def _members(self, body: Body[Any], warnings: list[str]) -> Json:
        """Return the members of the payload. Raises JSONError."""
        if not body.skips_unknown:
            try:
                return unmarshal_stream(self.payload, body.fields, body.what, strict=True)
            except JSONError as exc:
                warnings.append(str(exc))
                if self.js.config.options.strict:
                    raise
        return unmarshal(self.payload, body.fields, body.what)

    def respond(self, members: Json) -> None:
        """Answer with a success now; the handler must return None."""
        self.responder.respond(self, members)

    @property
    def is_empty(self) -> bool:
        """Whether the payload is empty, or an empty JSON object (isEmptyRequest)."""
        return not self.payload or _EMPTY_OBJECT.fullmatch(self.payload) is not None

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
    body: Body[Any] | None = None
    """The payload that the handler reads: a long one is decoded before, in a thread."""
    limited: bool = False
    """The handler waits, mostly for files: only some such requests are carried out at the same time."""
    gathers: bool = False
    """The handler waits for other servers: such requests are limited, too, and hold up no others."""

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
