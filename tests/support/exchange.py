"""Send bytes to a server, and make its answers comparable between servers.

An answer is everything that a connection received after INFO, up to its end. The harness sends a last PING on
each connection, so an answer ends with OPEN where the server kept the connection, and without it where the
server closed it (or read the PING as part of an unfinished operation).

Inputs write TOKEN in subjects that other connections to the server must not share: the harness replaces it by
a different word on every connection (`ask`) or conversation (`talk`), and puts TOKEN back into the answers.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterable, Sequence

from .kernel import SocketDiag
from .servers import Server
from .wire import PING, PONG, Closed, Connection, split_ops

OPEN = PONG
TOKEN = b"zzzz"
INFO = b"INFO *\r\n"  # in place of any INFO in an answer; tests of INFO read it themselves
BATCH = 200  # connections open at the same time

_DIGITS = string.digits + string.ascii_lowercase[:-1]  # without z: a word is never TOKEN
_sources = itertools.cycle(f"127.0.1.{n}" for n in range(1, 255))  # one address has 28,000 ports a minute
_words = ("".join(word).encode() for word in itertools.product(_DIGITS, repeat=len(TOKEN)))


def new_word() -> bytes:
    """Return a word as long as TOKEN, a different one at each call."""
    return next(_words)


def normalise(data: bytes, word: bytes = TOKEN) -> bytes:
    """Remove what changes from run to run: each INFO becomes INFO, and `word` becomes TOKEN.

    Drop the server's PINGs: the first comes two seconds after CONNECT, and a test may be slow.
    """
    ops = (INFO if op.startswith(b"INFO {") and op.endswith(b"\r\n") else op for op in split_ops(data))
    return b"".join(op for op in ops if op != PING).replace(word, TOKEN)


def ask(server: Server, inputs: Iterable[Sequence[bytes]], diag: SocketDiag) -> list[bytes]:
    """Send every input on a connection of its own and return the answers, in order.

    An input is a sequence of pieces: the server has read one before the next is sent. At the end each
    connection sends a PING, shuts down its writing side, and reads its answer to the end.
    """
    inputs = list(inputs)
    answers: list[bytes] = []
    for start in range(0, len(inputs), BATCH):
        answers += _ask(server, inputs[start : start + BATCH], diag)
    return answers


def _ask(server: Server, inputs: Sequence[Sequence[bytes]], diag: SocketDiag) -> list[bytes]:
    words = [new_word() for _ in inputs]
    scripts = [_script(pieces, word) for pieces, word in zip(inputs, words, strict=True)]
    connections: list[Connection] = []
    try:
        connections += (Connection(server.address, next(_sources)) for _ in inputs)
        for step in range(max(map(len, scripts))):
            steps = [
                (c, script[step])
                for c, script in zip(connections, scripts, strict=True)
                if step < len(script)
            ]
            diag.wait_read(server.address, [c for c, piece in steps if c.send(piece)])
        for connection in connections:
            connection.end()
        return [normalise(c.rest(), word) for c, word in zip(connections, words, strict=True)]
    finally:
        for connection in connections:
            connection.close()


def _script(pieces: Sequence[bytes], word: bytes) -> list[bytes]:
    """Replace TOKEN by `word` in the pieces, even where it spans two of them, and append the last PING."""
    renamed = b"".join(pieces).replace(TOKEN, word)
    script, start = [], 0
    for piece in pieces:
        script.append(renamed[start : start + len(piece)])
        start += len(piece)
    script[-1] += PING
    return script


def talk(server: Server, steps: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """Hold a conversation of steps (connection name, bytes); return the answer of each connection by name.

    A connection is opened when it is first named. The server has handled one step before the next begins (it
    answered a PING). At the end every connection sends another PING, so that everything on its way to it
    arrives. Steps must not contain a PING.
    """
    word = new_word()
    connections: dict[str, Connection] = {}
    answers: dict[str, bytes] = {}
    closed: set[str] = set()
    try:
        for name, data in steps:
            if name not in connections:
                connections[name] = Connection(server.address)
                answers[name] = b""
            connections[name].send(data.replace(TOKEN, word))
            _listen(name, connections[name], answers, closed)
        for name in connections:
            _listen(name, connections[name], answers, closed)
    finally:
        for connection in connections.values():
            connection.close()
    return {
        name: normalise(answer, word) + (b"" if name in closed else OPEN) for name, answer in answers.items()
    }


def _listen(name: str, connection: Connection, answers: dict[str, bytes], closed: set[str]) -> None:
    """Append everything that the server has sent on connection `name` up to now to its answer."""
    if name in closed:
        return
    try:
        answers[name] += b"".join(connection.fence())
    except Closed as end:
        answers[name] += end.args[0]
        closed.add(name)
