"""Connect to other servers: addresses of names, sockets, nats-server's texts for what fails."""

import asyncio
import os
import random
import socket
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from gnats.clock import timeout
from gnats.errors import OptionError
from gnats.go.hostport import split_host_port
from gnats.go.text import join_host_port, os_error, quote

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from gnats.options.options import Options

Address = tuple[str, int]
Connect = Callable[[str, int], "Coroutine[Any, Any, socket.socket]"]
Resolve = Callable[[str], "Coroutine[Any, Any, list[str]]"]


class NoAddressError(Exception):
    """All addresses of a name are this server's own."""


async def connect_socket(host: str, port: int) -> socket.socket:
    """Connect to a numeric address. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (host, port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


async def look_up(host: str) -> list[str]:
    """Return the addresses of a host's name. Raises OSError, also for a name that none can have."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except UnicodeError:  # a label that is empty, too long, or of characters that names do not have
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def dial(address: Address, seconds: float, connect: Connect = connect_socket) -> socket.socket:
    """Connect to an address within a time. Raises OSError with nats-server's text."""
    where = join_host_port(*address)
    try:
        async with timeout(seconds):
            return await connect(*address)
    except TimeoutError:
        raise OSError(f"dial tcp {where}: i/o timeout") from None
    except UnicodeError:  # of an address with a zone that no interface can have
        raise OSError(f"dial tcp {where}: no such host") from None
    except OSError as exc:
        # The loop's own text has the address.
        reason = os.strerror(exc.errno).lower() if exc.errno else os_error(exc)
        raise OSError(f"dial tcp {where}: connect: {reason}") from None


async def random_address(
    text: str, resolve: Resolve = look_up, to_self: Container[Address] = frozenset()
) -> Address:
    """Return one of the addresses that a host and port stand for, at random (getRandomIP).

    A name's addresses that are in `to_self` are left out. Raises OSError for a malformed text and an unknown
    name, NoAddressError.
    """
    try:
        host, number = split_host_port(text)
        port = int(number)
    except OptionError as exc:
        raise OSError(str(exc)) from None
    except ValueError:
        raise OSError(f"dial tcp: lookup tcp/{number}: unknown port") from None
    if not 0 <= port <= 65535:
        raise OSError(f"dial tcp: address {port}: invalid port")
    if _is_numeric(host):
        return host, port
    try:
        found = await resolve(host)
    except OSError as exc:
        raise OSError(f"lookup for host {quote(host)}: lookup {host}: {_lookup_error(exc)}") from None
    others = [each for each in found if (each, port) not in to_self]
    if not others:
        raise NoAddressError
    return random.choice(others), port


def is_reported(opts: "Options", attempts: int, *, first: bool) -> bool:
    """Whether a failed attempt is an error in the log (shouldReportConnectErr), or a line for debugging.

    `first`: there was no connection yet.
    """
    every = opts.connect_error_reports if first else opts.reconnect_error_reports
    return attempts == 1 or (every > 0 and attempts % every == 0)


def _is_numeric(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host.partition("%")[0])
        except (OSError, ValueError):
            continue
        return True
    return False


def _lookup_error(exc: OSError) -> str:
    missing = isinstance(exc, socket.gaierror) and exc.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
    return "no such host" if missing else os_error(exc)
