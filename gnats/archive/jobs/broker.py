"""The archive's requests to a server: information about a stream, purges, publishes."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from gnats.archive.errors import ArchiveError
from gnats.archive.files import times
from gnats.archive.jobs.verify import Verified, purgeable
from gnats.archive.storage import first_line, shown
from gnats.go.times import unix_ns
from gnats.jetstream.errors import NO_MESSAGE_FOUND

SCHEMES = "nats", "tls", "ws", "wss"
TIMEOUT = 30.0
"""Seconds to wait for an answer. A purge may take long."""
_CREDS = re.compile(rb"BEGIN NATS USER JWT.*\n.+\n(?s:.*)BEGIN USER NKEY SEED.*\n(.+)\n")


class NoMessage(ArchiveError):
    """The stream does not have the requested message."""


def _check_creds(path: str) -> None:
    """Raise ArchiveError for a file without a JWT and a seed. nats-py detects that only while connecting."""
    try:
        data = Path(path).read_bytes()
    except OSError as exc:
        raise ArchiveError(f"credentials {path} cannot be read: {exc.strerror}") from None
    try:
        import nkeys
    except ImportError:
        raise ArchiveError("nkeys is needed for credentials: pip install gnats[archive]") from None
    found = _CREDS.search(data)
    try:
        if not found:
            raise ValueError("there is no JWT with a seed behind it")
        nkeys.from_seed(bytearray(found[1])).wipe()
    except (nkeys.NkeysError, ValueError) as exc:
        raise ArchiveError(f"credentials {path} are none: {exc}") from None


def _encrypted() -> Any:
    """Make a client of nats-py that sends nothing without TLS. The plain client leaves TLS to the server."""
    from nats.aio.client import Client
    from nats.errors import Error

    class Encrypted(Client):
        async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
            if initial_connection:
                if not (info.get("tls_required") or info.get("tls_available")):
                    assert self._transport
                    self._transport.close()  # type: ignore[no-untyped-call]
                    raise Error("the server offers no TLS")
                info["tls_required"] = True
            await super()._process_info(info, initial_connection)

    return Encrypted()


@dataclass(frozen=True)
class Broker:
    """The address and credentials of a server."""

    server: str = "nats://127.0.0.1:4222"
    creds: str | None = None
    tls_ca: str | None = None
    domain: str | None = None

    def check(self) -> ssl.SSLContext | None:
        """Check the URL and the files; return the TLS context, None for the system's. Raises ArchiveError."""
        split = self._split()
        if not split.hostname or split.port == 0 or split.scheme not in SCHEMES:
            raise ArchiveError(f"{self.shown!r} is no server: a URL is {', '.join(SCHEMES)}://HOST:PORT")
        if self.creds:
            _check_creds(self.creds)
        if not self.tls_ca:
            return None
        if split.scheme == "ws":
            raise ArchiveError(f"{self.shown} has no TLS to use a CA for: wss has")
        try:
            return ssl.create_default_context(cafile=self.tls_ca)
        except OSError as exc:  # also for a file without a certificate
            raise ArchiveError(f"CA {self.tls_ca} cannot be used: {exc.strerror or exc}") from None

    @property
    def _url(self) -> str:
        return self.server if "://" in self.server else f"nats://{self.server}"

    def _split(self) -> SplitResult:
        try:
            split = urlsplit(self._url)
            _ = split.port  # raises for a malformed port
        except ValueError as exc:
            why = str(exc).partition(" as ")[0]  # cut off the part of the URL, which may have a password
            raise ArchiveError(f"{shown(self._url)!r} is no server: {why}") from None
        return split

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return shown(self._url)

    @property
    def prefix(self) -> str:
        return f"$JS.{self.domain}.API" if self.domain else "$JS.API"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        """Connect with nats-py. Raises ArchiveError."""
        tls = self.check()
        try:
            from nats.aio.client import Client
            from nats.errors import Error
        except ImportError:
            raise ArchiveError("nats-py is needed: pip install gnats[archive]") from None

        errors: list[Exception] = []

        async def note(exc: Exception) -> None:
            errors.append(exc)

        options: dict[str, Any] = {
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0.2,
            "connect_timeout": 10,
            "error_cb": note,
        }
        if tls:
            options["tls"] = tls
        if self.creds:
            options["user_credentials"] = self.creds
        scheme = self._split().scheme
        connection = _encrypted() if scheme == "tls" or (tls and scheme == "nats") else Client()
        try:
            await connection.connect(self.server, name="gnats archive", **options)
        except (Error, OSError, TimeoutError, ValueError) as exc:
            why = (errors or [exc])[-1]
            raise ArchiveError(f"{self.shown} cannot be reached: {first_line(why)}") from None
        try:
            yield connection
        except (Error, OSError, TimeoutError) as exc:
            raise ArchiveError(f"{self.shown}: {first_line(exc)}") from None
        finally:
            await connection.close()

    async def account(self, connection: Any) -> str:
        """Return the account of a connection. Raises ArchiveError when the server does not name it."""
        from nats.errors import NoRespondersError

        try:
            message = await connection.request("$SYS.REQ.USER.INFO", b"", timeout=TIMEOUT)
            return str(json.loads(message.data)["data"]["account"])
        except (NoRespondersError, ValueError, KeyError, TypeError):
            raise ArchiveError(f"{self.shown} does not say which account this is") from None

    async def ask(self, connection: Any, api: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request to the JetStream API, return the answer. Raises ArchiveError when it is refused."""
        body = json.dumps(request).encode() if request else b""
        message = await connection.request(f"{self.prefix}.{api}", body, timeout=TIMEOUT)
        answer: dict[str, Any] = json.loads(message.data)
        if error := answer.get("error"):
            kind = NoMessage if error.get("err_code") == NO_MESSAGE_FOUND.err_code else ArchiveError
            raise kind(f"{self.shown}: {api}: {error.get('description')}")
        return answer

    async def next_message(self, connection: Any, stream: str, seq: int) -> dict[str, Any] | None:
        """Return the first message of a stream from `seq` on, None without one. Raises ArchiveError."""
        request = {"seq": seq, "next_by_subj": ">"}
        try:
            answer = await self.ask(connection, f"STREAM.MSG.GET.{stream}", request)
        except NoMessage:
            return None
        message: dict[str, Any] = answer["message"]
        return message


@dataclass(frozen=True)
class Purged:
    """The result of a purge: it removed `count` messages before sequence `before`."""

    before: int
    count: int


def purge_archived(broker: Broker, verified: Verified) -> Purged:
    """Make the server purge messages that are archived and were verified just now. Raises ArchiveError.

    Purges from the stream's first message up to the first sequence that is not archived and verified.
    """
    return asyncio.run(_purge(broker, verified))


async def _purge(broker: Broker, verified: Verified) -> Purged:
    origin = verified.state.origin
    stream = origin.stream
    if not origin.created:
        raise ArchiveError(
            f"{origin.directory}: it is not known when the stream was created; nothing is purged"
        )
    async with broker.connect() as connection:
        account = await broker.account(connection)
        if account != origin.account:
            raise ArchiveError(
                f"{broker.shown}: this is account {account}, the archive is of {origin.account}; "
                "nothing is purged"
            )
        info = await broker.ask(connection, f"STREAM.INFO.{stream}")
        if unix_ns(info["created"]) != unix_ns(origin.created):
            raise ArchiveError(
                f"{broker.shown}: stream {stream} was created at {info['created']}, the archived one at "
                f"{origin.created}; nothing is purged"
            )
        first = int(info["state"]["first_seq"])
        last = min(purgeable(verified, first), int(info["state"]["last_seq"]))
        if last < first:
            return Purged(first, 0)
        await _check_same(broker, connection, verified, first, last)
        answer = await broker.ask(connection, f"STREAM.PURGE.{stream}", {"seq": last + 1})
        return Purged(last + 1, int(answer["purged"]))


async def _check_same(broker: Broker, connection: Any, verified: Verified, first: int, last: int) -> None:
    """Raise ArchiveError when the first or last message to be purged differs from the archived one.

    The server may not be the one whose store was read, and may have another copy of the stream. From the
    point where two copies have diverged, all messages differ: so the last one does.
    """
    stream = verified.state.origin.stream
    for message in await _ends(broker, connection, stream, first, last):
        if not _is_archived(verified, message):
            raise ArchiveError(
                f"{broker.shown}: message {message['seq']} of stream {stream} is not the archived one; "
                "nothing is purged"
            )


async def _ends(broker: Broker, connection: Any, stream: str, first: int, last: int) -> list[dict[str, Any]]:
    """Return the first and the last message of the server's stream with sequences from `first` to `last`."""
    found: list[dict[str, Any]] = []
    low, high = first, last
    middle = first
    while low <= high:
        message = await broker.next_message(connection, stream, middle)
        if message is None or message["seq"] > last:
            high = middle - 1
        else:
            found = [*found[:1], message]
            low = message["seq"] + 1
        middle = (low + high + 1) // 2
    return found


def _is_archived(verified: Verified, message: dict[str, Any]) -> bool:
    seq, ns = message["seq"], unix_ns(message["time"])
    for entry in verified.state.entries:
        if entry.first_seq <= seq <= entry.last_seq:
            found, times_ = times(verified.manifest, entry, seq, seq)
            if ns in times_[found == seq]:
                return True
    return False
