"""Options of the pages (monitor.go), from a URL's query or the JSON of a request in the system account."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, cast

from gnats.errors import RequestError
from gnats.go.json import unmarshal
from gnats.go.text import MAX_DIGITS, MAX_INT64, MAX_UINT64, parse_bool, quote

DEFAULT_LIMIT = 1024
"""Connections or subscriptions on a page, by default."""

OPEN, CLOSED, ALL = range(3)
"""States of the connections to list."""

_STATES = {"": OPEN, "open": OPEN, "closed": CLOSED, "any": ALL, "all": ALL}


class Query:
    """The parameters of a URL. Its methods raise RequestError for malformed values."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        return self._values.get(name, "")

    def flag(self, name: str) -> bool:
        text = self.text(name)
        try:
            return bool(text) and parse_bool(text)
        except ValueError as exc:
            raise RequestError(f"Error decoding boolean for '{name}': {exc}") from None

    def integer(self, name: str) -> int:
        text = self.text(name)
        digits = text[1:] if text[:1] in ("+", "-") else text
        return _number(name, "int", "Atoi", text, digits, -MAX_INT64 - 1, MAX_INT64)

    def unsigned(self, name: str) -> int:
        text = self.text(name)
        return _number(name, "uint64", "ParseUint", text, text, 0, MAX_UINT64)

    def subs(self) -> tuple[bool, bool]:
        """Return whether subscriptions are requested: (as a list, in detail)."""
        if self.text("subs").lower() == "detail":
            return False, True
        return self.flag("subs"), False

    def state(self) -> int:
        text = self.text("state")
        if text.lower() not in _STATES:
            raise RequestError(f"Error decoding state for {text}")
        return _STATES[text.lower()]


def _number(name: str, kind: str, function: str, text: str, digits: str, least: int, most: int) -> int:
    if not text:
        return 0
    problem = "invalid syntax"
    if digits.isascii() and digits.isdigit():
        problem = "value out of range"
        if len(digits.lstrip("0")) <= MAX_DIGITS and least <= int(text) <= most:
            return int(text)
    raise RequestError(
        f"Error decoding {kind} for '{name}': strconv.{function}: parsing {quote(text)}: {problem}"
    )


_JSON_TYPES = {bool: "bool", int: "int", str: "string", tuple[str, ...]: "strings"}


@dataclass(frozen=True, slots=True)
class PageOptions:
    """The options of a page. Fields are named as in JSON, with _ for -."""

    unsigned: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read the options of a request; an empty body means the defaults.

        Raises JSONError.
        """
        if not data:
            return cls()
        types = {option.name: option.type for option in fields(cls)}
        names = {name.replace("_", "-") if name in _DASHED else name: name for name in types}
        table = {
            key: "uint64" if name in cls.unsigned else _JSON_TYPES[cast("Any", types[name])]
            for key, name in names.items()
        }
        found = unmarshal(data, table, cls.__name__.removesuffix("Options") + "EventOptions")
        return cls(
            **{names[key]: tuple(value) if isinstance(value, list) else value for key, value in found.items()}
        )


_DASHED = frozenset(("js_enabled", "js_enabled_only", "js_server_only", "js_meta_only"))


@dataclass(frozen=True, slots=True)
class ConnzOptions(PageOptions):
    """`state` is OPEN, CLOSED or ALL; `limit` 0 means DEFAULT_LIMIT; `filter_subject` needs `acc`."""

    unsigned: ClassVar[tuple[str, ...]] = ("cid",)

    sort: str = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    mqtt_client: str = ""
    state: int = OPEN
    user: str = ""
    acc: str = ""
    filter_subject: str = ""

    @classmethod
    def from_query(cls, query: Query) -> Self:
        auth = query.flag("auth")
        subscriptions, detail = query.subs()
        return cls(
            sort=query.text("sort"),
            auth=auth,
            subscriptions=subscriptions,
            subscriptions_detail=detail,
            offset=query.integer("offset"),
            limit=query.integer("limit"),
            cid=query.unsigned("cid"),
            state=query.state(),
            user=query.text("user"),
            acc=query.text("acc"),
            mqtt_client=query.text("mqtt_client"),
        )


@dataclass(frozen=True, slots=True)
class RoutezOptions(PageOptions):
    """Whether to list the routes' subscriptions."""

    subscriptions: bool = False
    subscriptions_detail: bool = False

    @classmethod
    def from_query(cls, query: Query) -> Self:
        return cls(*query.subs())


@dataclass(frozen=True, slots=True)
class GatewayzOptions(PageOptions):
    """`account_name` implies `accounts`."""

    name: str = ""
    accounts: bool = False
    account_name: str = ""
    subscriptions: bool = False
    subscriptions_detail: bool = False

    @classmethod
    def from_query(cls, query: Query) -> Self:
        subscriptions, detail = query.subs()
        accounts, account = query.flag("accs"), query.text("acc_name")
        return cls(query.text("gw_name"), accounts or account != "", account, subscriptions, detail)


@dataclass(frozen=True, slots=True)
class LeafzOptions(PageOptions):
    """`account` "" means all."""

    subscriptions: bool = False
    account: str = ""

    @classmethod
    def from_query(cls, query: Query) -> Self:
        return cls(query.flag("subs"), query.text("acc"))


@dataclass(frozen=True, slots=True)
class SubszOptions(PageOptions):
    """With `test`, a literal subject, only subscriptions that match it."""

    offset: int = 0
    limit: int = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""

    @classmethod
    def from_query(cls, query: Query) -> Self:
        subscriptions = query.flag("subs")
        offset, limit = query.integer("offset"), query.integer("limit")
        return cls(offset, limit, subscriptions, query.text("acc"), query.text("test"))


@dataclass(frozen=True, slots=True)
class AccountzOptions(PageOptions):
    """Without `account`, the page lists the names of all accounts."""

    account: str = ""

    @classmethod
    def from_query(cls, query: Query) -> Self:
        return cls(query.text("acc"))


@dataclass(frozen=True, slots=True)
class AccountStatzOptions(PageOptions):
    """`accounts` empty: all. Accounts without connections are listed only with `include_unused`."""

    accounts: tuple[str, ...] = ()
    include_unused: bool = False

    @classmethod
    def from_query(cls, query: Query) -> Self:
        return cls(include_unused=query.flag("unused"))


@dataclass(frozen=True, slots=True)
class JszOptions(PageOptions):
    """The accounts of JetStream to describe, and the details."""

    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumer: bool = False
    direct_consumer: bool = False
    config: bool = False
    leader_only: bool = False
    offset: int = 0
    limit: int = 0
    raft: bool = False
    stream_leader_only: bool = False

    @classmethod
    def from_query(cls, query: Query) -> Self:
        return cls(
            accounts=query.flag("accounts"),
            streams=query.flag("streams"),
            consumer=query.flag("consumers"),
            direct_consumer=query.flag("direct-consumers"),
            config=query.flag("config"),
            offset=query.integer("offset"),
            limit=query.integer("limit"),
            leader_only=query.flag("leader-only"),
            raft=query.flag("raft"),
            stream_leader_only=query.flag("stream-leader-only"),
            account=query.text("acc"),
        )


@dataclass(frozen=True, slots=True)
class HealthzOptions(PageOptions):
    """The parts of the server to check; `details` lists every failure, `links` those of links (gnats)."""

    js_enabled: bool = False
    js_enabled_only: bool = False
    js_server_only: bool = False
    js_meta_only: bool = False
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False
    links: bool = False

    @classmethod
    def from_query(cls, query: Query) -> Self:
        return cls(
            query.flag("js-enabled"),
            query.flag("js-enabled-only"),
            query.flag("js-server-only"),
            query.flag("js-meta-only"),
            details=query.flag("details"),
            account=query.text("account"),
            stream=query.text("stream"),
            consumer=query.text("consumer"),
            links=query.flag("links"),
        )


@dataclass(frozen=True, slots=True)
class IpqueueszOptions(PageOptions):
    """Queues whose name contains `filter`; empty ones only with `all`."""

    all: bool = False
    filter: str = ""

    @classmethod
    def from_query(cls, query: Query) -> Self:
        return cls(query.flag("all"), query.text("queues"))


@dataclass(frozen=True, slots=True)
class RaftzOptions(PageOptions):
    """The account and the name of the groups to list."""

    account: str = ""
    group: str = ""

    @classmethod
    def from_query(cls, query: Query) -> Self:
        return cls(query.text("acc"), query.text("group"))
