"""The entries and the snapshot of the group _meta_, in nats-server's forms (jetstream_cluster.go).

An entry is a byte, its operation, and JSON: an assignment of a stream or a consumer to the peers of a Raft
group. A snapshot is one S2 block: a JSON array of the streams' assignments, each with those of its consumers.

Both come from other servers, and wrong ones raise MetaError. An asset whose configuration has unknown fields,
or needs a higher API level, is *unsupported*: it is kept, with its configuration as it came, and must not run
here.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Self, TypeVar

from gnats.codec import s2
from gnats.go.json import (
    Custom,
    JSONError,
    ListOf,
    MapOf,
    Named,
    RawPaths,
    Struct,
    marshal,
    unmarshal,
    unmarshal_raw,
)
from gnats.go.structs import TIME, Document, always, omitempty, one, one_of, strings
from gnats.go.text import quote
from gnats.go.times import ZERO_TIME, parse_rfc3339
from gnats.jetstream.settings.config import (
    FILE,
    INTEREST,
    LIMITS,
    MEMORY,
    REQUIRED_LEVEL_KEY,
    WORKQUEUE,
    ConsumerConfig,
    Placement,
    StreamConfig,
    supports_required_level,
)
from gnats.jetstream.settings.stream_rules import valid_asset_name
from gnats.version import JS_API_LEVEL

MOST_ASSIGNMENT = 64 << 20
"""Most bytes of the JSON in a compressed assignment."""
MOST_SNAPSHOT = 1 << 30
"""Most bytes of the JSON in a snapshot."""


class MetaError(ValueError):
    """An entry, or a snapshot, that no meta group may have; the text gives the fault."""


class Op(enum.IntEnum):
    """The operations of the meta layer, by their bytes (entryOp)."""

    ASSIGN_STREAM = 0
    ASSIGN_CONSUMER = 1
    REMOVE_STREAM = 2
    REMOVE_CONSUMER = 3
    ASSIGN_COMPRESSED_CONSUMER = 9
    UPDATE_STREAM = 11


# ---- parts of assignments ----


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientInfo(Document):
    """The client that asked for an assignment, to be answered (events.go)."""

    start: str = omitempty(TIME, "")
    host: str = omitempty("string", "")
    id: int = omitempty("uint64", 0)
    acc: str = omitempty("string", "")
    svc: str = omitempty("string", "")
    user: str = omitempty("string", "")
    name: str = omitempty("string", "")
    lang: str = omitempty("string", "")
    ver: str = omitempty("string", "")
    rtt: int = omitempty("duration", 0)
    server: str = omitempty("string", "")
    cluster: str = omitempty("string", "")
    alts: tuple[str, ...] = strings()
    stop: str = omitempty(TIME, "")
    jwt: str = omitempty("string", "")
    issuer_key: str = omitempty("string", "")
    name_tag: str = omitempty("string", "")
    tags: tuple[str, ...] = strings()
    kind: str = omitempty("string", "")
    client_type: str = omitempty("string", "")
    client_id: str = omitempty("string", "")
    nonce: str = omitempty("string", "")
    reply: str = omitempty("string", "")

    @property
    def service_account(self) -> str:
        """The account of the asset: of the service when the request came through an import."""
        return self.svc or self.acc

    def for_snapshot(self) -> ClientInfo:
        """Return the parts that a snapshot keeps (forAssignmentSnap)."""
        return ClientInfo(acc=self.acc, svc=self.svc, cluster=self.cluster)

    def for_proposal(self) -> ClientInfo:
        """Return it without secrets, which must not be stored (forProposal)."""
        return dataclasses.replace(self, jwt="", issuer_key="") if self.jwt or self.issuer_key else self


def _read_retention(value: object) -> object:
    return "" if value is None else _RETENTION.read(value)


_RETENTION = one_of(LIMITS, INTEREST, WORKQUEUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredOrigin(Document):
    """An asset before it began to move or to scale (desiredRaftGroupOrigin)."""

    go_name = "desiredRaftGroupOrigin"

    peers: tuple[str, ...] = always("strings", (), tuple)
    cluster: str = omitempty("string", "")
    replicas: int = always("int", 0)
    placement: Placement | None = one(Placement)
    retention: str = omitempty(Custom(_read_retention), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredGroup(Document):
    """Where a group moves, or scales, to (desiredRaftGroup)."""

    go_name = "desiredRaftGroup"

    created: str = omitempty(TIME, "")
    id: str = always("string", "")
    term: int = omitempty("uint64", 0)
    """Of the group's leader that moves it; requests of older ones are refused."""
    peers: tuple[str, ...] = always("strings", (), tuple)
    cluster: str = omitempty("string", "")
    preferred: str = omitempty("string", "")
    scale_down: bool = omitempty("bool", False)
    """The leader has yet to choose which of `peers` stay."""
    move: bool = omitempty("bool", False)
    removed: tuple[str, ...] = strings()
    """Peers that an operator has removed; a group without a quorum may evict these alone."""
    members: tuple[str, ...] = strings()
    """Members of the Raft group, as its leader has reported them (since 2.15.1, as is `created`)."""
    origin: DesiredOrigin | None = one(DesiredOrigin)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftGroup(Document):
    """The Raft group of a stream or consumer (raftGroup)."""

    go_name = "raftGroup"

    name: str = always("string", "")
    peers: tuple[str, ...] = always("strings", (), tuple)
    store: str = always(one_of(FILE, MEMORY), "")
    cluster: str = omitempty("string", "")
    preferred: str = omitempty("string", "")
    """The peer that shall lead first."""
    scale_up: bool = omitempty("bool", False)
    """Peers are new: those with an empty log may not vote one another into the lead."""
    excluded: tuple[str, ...] = strings()
    """Peers that have been evacuated; the group must not be healed with them."""
    desired: DesiredGroup | None = one(DesiredGroup)

    def is_member(self, peer: str) -> bool:
        """Whether a peer is in the group (isMember)."""
        return peer in self.peers

    def settled(self) -> RaftGroup:
        """Return it without the members that count while it is new (setStreamAssignmentRecovering)."""
        scale_up = self.scale_up and self.desired is not None
        if not self.preferred and self.scale_up == scale_up:
            return self
        return dataclasses.replace(self, preferred="", scale_up=scale_up)


def _counts(read: Iterable[int | None]) -> tuple[int, ...]:
    return tuple(each or 0 for each in read)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostStreamData(Document):
    """Messages that a stream has lost."""

    msgs: tuple[int, ...] = always(ListOf("uint64"), (), _counts)
    bytes: int = always("uint64", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState(Document):
    """The state of a stream that is restored (StreamState in store.go), for its first assignment."""

    messages: int = always("uint64", 0)
    bytes: int = always("uint64", 0)
    first_seq: int = always("uint64", 0)
    first_ts: str = always(TIME, ZERO_TIME, lambda read: read or ZERO_TIME)
    last_seq: int = always("uint64", 0)
    last_ts: str = always(TIME, ZERO_TIME, lambda read: read or ZERO_TIME)
    num_subjects: int = omitempty("int", 0)
    subjects: dict[str, int] = omitempty(
        MapOf("uint64"), {}, lambda read: {subject: count or 0 for subject, count in read.items()}
    )
    num_deleted: int = omitempty("int", 0)
    deleted: tuple[int, ...] = omitempty(ListOf("uint64"), (), _counts)
    lost: LostStreamData | None = one(LostStreamData)
    consumer_count: int = always("int", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencePair(Document):
    """A consumer's sequence, and the stream's."""

    consumer_seq: int = always("uint64", 0)
    stream_seq: int = always("uint64", 0)


_PAIR = Named("SequencePair", SequencePair.schema())
_PENDING: Struct = {"Sequence": "uint64", "Timestamp": "int64"}
_LONGEST_SEQ = 20
"""Digits of the highest sequence."""
_SEQ_END = 1 << 64


def _by_seq(read: Mapping[str, object]) -> dict[str, object]:
    """Check the keys of an object: sequences."""
    for key in read:
        if not (key.isdecimal() and key.isascii() and len(key) <= _LONGEST_SEQ and int(key) < _SEQ_END):
            raise JSONError(f"json: cannot unmarshal number {key} into Go value of type uint64")
    return dict(read)


def _pending(read: Mapping[str, Any]) -> dict[str, object]:
    pending: dict[str, object] = {}
    for seq, each in _by_seq(read).items():
        assert each is None or isinstance(each, Mapping)
        found = {"Sequence": 0, "Timestamp": 0} | dict(each or {})
        pending[seq] = {name: found[name] for name in _PENDING}
    return pending


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerState(Document):
    """The state of a restored consumer (ConsumerState in store.go); keys are the stream's sequences."""

    delivered: SequencePair = always(_PAIR, SequencePair(), SequencePair.from_members)
    ack_floor: SequencePair = always(_PAIR, SequencePair(), SequencePair.from_members)
    pending: dict[str, dict[str, int]] = omitempty(MapOf(Named("Pending", _PENDING)), {}, _pending)
    redelivered: dict[str, int] = omitempty(
        MapOf("uint64"), {}, lambda read: {seq: count or 0 for seq, count in _by_seq(read).items()}
    )


# ---- assignments ----

Config = TypeVar("Config", StreamConfig, ConsumerConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment(Generic[Config]):
    """The common parts of assignments. They are values: changes make new ones."""

    client: ClientInfo | None
    created: str
    """When the asset was created; it stays through updates, and is a part of the asset's identity."""
    config: Config
    config_json: str
    """The configuration as it came: an unsupported one has members that `config` lacks."""
    group: RaftGroup
    subject: str = ""
    """The subject of the API request."""
    reply: str = ""
    """Where the answer to the request goes."""
    unsupported: str = ""
    """The reason why this server must not run it; "": it may."""

    @classmethod
    def of(cls, config: Config, **members: Any) -> Self:
        """Make an assignment of a configuration that this server has made."""
        return cls(config=config, config_json=marshal(config.json()).decode(), **members)

    @property
    def account(self) -> str:
        """The name of the asset's account."""
        return self.client.service_account if self.client else ""

    @property
    def created_ns(self) -> int:
        """`created` in ns since 1970."""
        return parse_rfc3339(self.created)[0]

    def is_as_old(self, other: _Assignment[Any]) -> bool:
        """Whether another asset was created at the same time."""
        return self.created == other.created or self.created_ns == other.created_ns

    def is_remade(self, other: _Assignment[Any]) -> bool:
        """Whether `other`, of the same name, is another asset: one was deleted, and one made anew."""
        return self.group.name != other.group.name and not self.is_as_old(other)

    def with_config(self, config: Config) -> Self:
        """Return it with another configuration, which this server has made."""
        return dataclasses.replace(self, config=config, config_json=marshal(config.json()).decode())

    def _head(self, client: ClientInfo | None) -> dict[str, object]:
        head: dict[str, object] = {"client": client.json()} if client else {}
        return head | {"created": self.created}

    def _tail(self) -> dict[str, object]:
        tail = {"subject": self.subject, "reply": self.reply}
        return {name: value for name, value in tail.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAssignment(_Assignment[StreamConfig]):
    """A stream, and the peers that have it (streamAssignment)."""

    sync: str
    """The subject on which replicas ask for missing messages; "" is a fault that the leader repairs."""
    restore: StreamState | None = None
    """The state of the stream that the client is about to restore."""

    @property
    def name(self) -> str:
        return self.config.name

    def recovered(self) -> StreamAssignment:
        """Return it as one that was assigned some time ago (setStreamAssignmentRecovering)."""
        group = self.group.settled()
        if group is self.group and self.restore is None:
            return self
        return dataclasses.replace(self, group=group, restore=None)

    def json(self) -> bytes:
        """Return its JSON in an entry."""
        members = self._head(self.client.for_proposal() if self.client else None)
        rest = {"group": self.group.json(), "sync": self.sync, **self._tail()}
        if self.restore:
            rest["restore_state"] = self.restore.json()
        return _joined(members, "stream", self.config_json, rest)

    def snapshot_json(self, consumers: Iterable[ConsumerAssignment]) -> bytes:
        """Return its JSON in a snapshot."""
        client = self.client.for_snapshot() if self.client else ClientInfo()
        rest: dict[str, object] = {"group": self.group.json(), "sync": self.sync}
        head = _joined(self._head(client), "stream", self.config_json, rest)
        return head[:-1] + b',"Consumers":[' + b",".join(each.snapshot_json() for each in consumers) + b"]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerAssignment(_Assignment[ConsumerConfig]):
    """A consumer, and the peers that have it (consumerAssignment)."""

    name: str
    stream: str
    state: ConsumerState | None = None
    """Where the consumer of a restored stream goes on."""

    def recovered(self) -> ConsumerAssignment:
        """Return it as one that was assigned some time ago (setConsumerAssignmentRecovering)."""
        group = self.group.settled()
        return self if group is self.group else dataclasses.replace(self, group=group)

    def json(self) -> bytes:
        """Return its JSON in an entry."""
        members = self._head(self.client.for_proposal() if self.client else None)
        rest = {"group": self.group.json(), **self._tail()}
        if self.state:
            rest["state"] = self.state.json()
        return _joined(members | self._names(), "consumer", self.config_json, rest)

    def snapshot_json(self) -> bytes:
        """Return its JSON in a snapshot."""
        client = self.client.for_snapshot() if self.client else ClientInfo()
        rest: dict[str, object] = {"group": self.group.json()}
        return _joined(self._head(client) | self._names(), "consumer", self.config_json, rest)

    def _names(self) -> dict[str, object]:
        return {"name": self.name, "stream": self.stream}


Asset = StreamAssignment | ConsumerAssignment
"""What is assigned."""


def _joined(before: Mapping[str, object], name: str, raw: str, after: Mapping[str, object]) -> bytes:
    """Return an object's JSON, in which the member `name` has the JSON `raw`."""
    return b"%b,%b:%b,%b" % (marshal(before)[:-1], marshal(name), raw.encode(), marshal(after)[1:])


# ---- reading ----

_GROUP = Named("raftGroup", RaftGroup.schema())
_CLIENT = Named("ClientInfo", ClientInfo.schema())
_STORED: Struct = {"client": _CLIENT, "created": TIME, "group": _GROUP}
"""Members of streams and consumers, in entries and in snapshots."""
_ASKED: Struct = {"subject": "string", "reply": "string"}
_STREAM: Struct = {**_STORED, "stream": "raw", "sync": "string"}
_CONSUMER: Struct = {**_STORED, "name": "string", "stream": "string", "consumer": "raw"}
_STREAM_ENTRY = Named(
    "streamAssignment",
    {**_STREAM, **_ASKED, "restore_state": Named("StreamState", StreamState.schema())},
)
_CONSUMER_ENTRY = Named(
    "consumerAssignment",
    {**_CONSUMER, **_ASKED, "state": Named("ConsumerState", ConsumerState.schema())},
)
_CONSUMERS = ListOf(Named("writeableConsumerAssignment", _CONSUMER, pointer=True))
_SNAPSHOT = ListOf(
    Named("writeableStreamAssignment", {**_STREAM, "Consumers": _CONSUMERS, "consumers": _CONSUMERS})
)
_RAW_STREAM: RawPaths = {"stream": {}}
_RAW_CONSUMER: RawPaths = {"consumer": {}}
_RAW_SNAPSHOT: RawPaths = {"stream": {}, "Consumers": _RAW_CONSUMER, "consumers": _RAW_CONSUMER}


class Entry(NamedTuple):
    """An operation and its assignment, of a stream or of a consumer as the operation says."""

    op: Op
    assignment: Asset


class SnapshotStream(NamedTuple):
    """A stream in a snapshot."""

    assignment: StreamAssignment
    consumers: tuple[ConsumerAssignment, ...]


def decode_entry(data: bytes) -> Entry:
    """Read an entry (applyMetaEntries, decodeStreamAssignment). Raises MetaError."""
    if not data:
        raise MetaError("empty meta entry")
    try:
        op = Op(data[0])
    except ValueError:
        raise MetaError(f"unknown meta entry op type: {data[0]}") from None
    body = data[1:]
    if op in (Op.ASSIGN_STREAM, Op.REMOVE_STREAM, Op.UPDATE_STREAM):
        return Entry(op, _read(body, _STREAM_ENTRY, _RAW_STREAM, _stream))
    packed = op is Op.ASSIGN_COMPRESSED_CONSUMER
    if packed:
        try:
            body = s2.decode(body, MOST_ASSIGNMENT)
        except ValueError as exc:
            raise MetaError(f"compressed consumer assignment: {exc}") from None
    # Readers of a compressed assignment ignore bytes behind the first value (json.Decoder).
    return Entry(op, _read(body, _CONSUMER_ENTRY, _RAW_CONSUMER, _consumer, first=packed))


def encode_entry(op: Op, assignment: Asset) -> bytes:
    """Write an entry (encodeAddStreamAssignment, encodeAddConsumerAssignment)."""
    body = assignment.json() + b"\n"
    return bytes((op,)) + (s2.encode(body) if op is Op.ASSIGN_COMPRESSED_CONSUMER else body)


def decode_snapshot(data: bytes) -> list[SnapshotStream]:
    """Read a snapshot (decodeMetaSnapshot). Raises MetaError."""
    if not data:
        return []
    try:
        body = s2.decode_block(data, MOST_SNAPSHOT)
    except ValueError as exc:
        raise MetaError(f"meta snapshot: {exc}") from None
    streams: list[SnapshotStream] = _read(body, _SNAPSHOT, _RAW_SNAPSHOT, _streams)
    return streams


def encode_snapshot(streams: Iterable[SnapshotStream]) -> bytes:
    """Write a snapshot (encodeMetaSnapshot); of no streams, nothing. Any thread.

    Raises MetaError for more than decode_snapshot() reads.
    """
    found = [assignment.snapshot_json(consumers) for assignment, consumers in streams]
    if (size := sum(map(len, found)) + len(found) + 1) > MOST_SNAPSHOT:
        raise MetaError(f"meta snapshot: {size} bytes are more than {MOST_SNAPSHOT}")
    return s2.encode_block(b"[" + b",".join(found) + b"]") if found else b""


def _read(data: bytes, type_: Named | ListOf, raw: RawPaths, make: Any, *, first: bool = False) -> Any:
    """Read JSON and make the result of its members. Raises MetaError."""
    name = type_.name if isinstance(type_, Named) else "writeableStreamAssignment"
    what = "meta snapshot" if isinstance(type_, ListOf) else "stream assignment"
    if type_ is _CONSUMER_ENTRY:
        what = "consumer assignment"
    empty: object = [] if isinstance(type_, ListOf) else {}
    try:
        return make(unmarshal_raw(data, type_, name, raw, first=first) or empty)
    except JSONError as exc:
        raise MetaError(f"{what}: {exc}") from None


def _streams(found: Iterable[Mapping[str, Any] | None]) -> list[SnapshotStream]:
    streams = []
    for members in found:
        stream = _stream(members or {})
        consumers = (members or {}).get("Consumers") or (members or {}).get("consumers") or ()
        known = tuple(_consumer_of(stream.name, each or {}) for each in consumers)
        streams.append(SnapshotStream(stream, known))
    return streams


def _consumer_of(stream: str, members: Mapping[str, Any]) -> ConsumerAssignment:
    """Read a consumer of a snapshot's stream, whose name it may leave out."""
    named = members.get("stream") or stream
    if named != stream:
        raise MetaError(f"stream {quote(stream)} has a consumer of stream {quote(named)}")
    return _consumer({**members, "stream": stream})


def _stream(members: Mapping[str, Any]) -> StreamAssignment:
    text = _need(members, "stream", "stream assignment")
    config, unsupported = _read_config(text, StreamConfig)
    if config.mirror and config.duplicate_window:  # of an old server (fixCfgMirrorWithDedupWindow)
        config = dataclasses.replace(config, duplicate_window=0)
    _check_name("stream", config.name)
    where = f"stream {quote(config.name)}"
    restore = members.get("restore_state")
    return StreamAssignment(
        config=config,
        config_json=text,
        unsupported=unsupported,
        sync=members.get("sync", ""),
        restore=None if restore is None else StreamState.from_members(restore),
        **_common(members, where),
    )


def _consumer(members: Mapping[str, Any]) -> ConsumerAssignment:
    name, stream = members.get("name", ""), members.get("stream", "")
    _check_name("consumer", name)
    _check_name("stream", stream)
    where = f"consumer {quote(name)} of stream {quote(stream)}"
    text = _need(members, "consumer", where)
    config, unsupported = _read_config(text, ConsumerConfig)
    state = members.get("state")
    return ConsumerAssignment(
        config=config,
        config_json=text,
        unsupported=unsupported,
        name=name,
        stream=stream,
        state=None if state is None else ConsumerState.from_members(state),
        **_common(members, where),
    )


def _common(members: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the arguments that both kinds of assignments have."""
    group = members.get("group")
    if group is None:
        raise MetaError(f"{where} has no group")
    group = RaftGroup.from_members(group)
    _check_name(f"group of {where}", group.name)
    if not group.store:
        raise MetaError(f"group {quote(group.name)} of {where} has no storage type")
    client = members.get("client")
    return {
        "client": None if client is None else ClientInfo.from_members(client),
        "created": members.get("created") or ZERO_TIME,
        "group": group,
        "subject": members.get("subject", ""),
        "reply": members.get("reply", ""),
    }


def _need(members: Mapping[str, Any], name: str, where: str) -> str:
    text = members.get(name)
    if text is None:
        raise MetaError(f"{where} has no configuration")
    assert isinstance(text, str)
    return text


def _check_name(what: str, name: str) -> None:
    """Refuse names that the API refuses: they become names of directories, and tokens of subjects."""
    if not name:
        raise MetaError(f"{what} has no name")
    if not valid_asset_name(name):
        raise MetaError(f"{what}: bad name {quote(name)}")


def _read_config(text: str, cls: type[Config]) -> tuple[Config, str]:
    """Return a configuration, and the reason why it is not supported, "": it is.

    (decodeStreamAssignmentConfig, newUnsupportedStreamAssignment). Raises JSONError.
    """
    data, reason = text.encode(), ""
    try:
        members = unmarshal(data, cls.schema(), cls.__name__, strict=True)
    except JSONError as exc:
        reason = f"unsupported - config error: {str(exc).removeprefix('json: ')}"
        if not str(exc).startswith("json:"):
            reason = f"stopped - {exc}"
        members = unmarshal(data, cls.schema(), cls.__name__)
    config = cls.from_members(members)
    if not reason and not supports_required_level(config.metadata):
        level = config.metadata[REQUIRED_LEVEL_KEY]
        reason = f"unsupported - required API level: {level}, current API level: {JS_API_LEVEL}"
    return config, reason
