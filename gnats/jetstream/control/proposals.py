"""Proposals: changes of streams and consumers, checked and complete (jetstream_api.go).

A change has three steps. A check_...() of JSAccount, Stream or Consumer returns the proposal, or raises
ApiError, and changes nothing. JSAccount.propose() decides when the proposal is applied. An apply_...()
applies it. A proposal has plain values only, among them those that are chosen once: names and times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig

Result = TypeVar("Result")


class Proposal(Generic[Result]):
    """A change that has been checked. JSAccount.propose() returns a Result when it has been applied."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class StreamProposal(Proposal[None]):
    """Make a stream; do nothing when it exists."""

    config: StreamConfig
    created: int
    """In ns since 1970. The identity of the stream comes from it."""
    replicated: bool = False
    """The caller gives it a Membership: it stores what its group commits."""


@dataclass(frozen=True, slots=True)
class StreamRestoreProposal(Proposal[None]):
    """Make a stream of the messages that a restore has staged. It stores nothing until subscribe()."""

    config: StreamConfig
    created: int


@dataclass(frozen=True, slots=True)
class StreamUpdateProposal(Proposal[None]):
    """Change a stream's configuration."""

    config: StreamConfig


@dataclass(frozen=True, slots=True)
class StreamDeleteProposal(Proposal[None]):
    """Delete a stream with its consumers and messages; do nothing when another stream has the name now."""

    stream: str
    created: int


@dataclass(frozen=True, slots=True)
class PurgeProposal(Proposal[int]):
    """Remove messages of a subject ("": all) below `seq` (0: all), or all but the last `keep`.

    The result is the number of removed messages.
    """

    stream: str
    subject: str
    seq: int
    keep: int


@dataclass(frozen=True, slots=True)
class MessageDeleteProposal(Proposal[bool]):
    """Delete a message; `erase` overwrites it. The result is False when there is no such message."""

    stream: str
    seq: int
    erase: bool


@dataclass(frozen=True, slots=True)
class ConsumerProposal(Proposal[None]):
    """Make a consumer, or change the one of that name."""

    stream: str
    name: str
    config: ConsumerConfig
    created: int
    """In ns since 1970."""
    state: bytes = b""
    """The state that a new consumer continues from, as in its file; empty: it begins as `config` says."""
    replicated: bool = False
    """Whether a new one delivers only when this server leads its group."""


@dataclass(frozen=True, slots=True)
class ConsumerDeleteProposal(Proposal[None]):
    """Delete a consumer; do nothing when another consumer has the name now."""

    stream: str
    name: str
    created: int


@dataclass(frozen=True, slots=True)
class ConsumerResetProposal(Proposal[int]):
    """Let a consumer begin anew at `seq`, 0: after its ack floor. The result is the sequence."""

    stream: str
    name: str
    seq: int


@dataclass(frozen=True, slots=True)
class ConsumerUnpinProposal(Proposal[None]):
    """Unpin the pinned client of a priority group, so that another one gets pinned."""

    stream: str
    name: str
    group: str
