"""Random changes of good and bad input: gnats and the reference must agree on what comes of it.

GNATS_FUZZ_CASES sets the number of inputs (300), GNATS_FUZZ_SEED the seed (1).
"""

from __future__ import annotations

import os
import random

import pytest
from support.exchange import TOKEN, ask
from support.kernel import SocketDiag
from support.servers import Server
from support.wire import split_ops

from .corpus import CORPUS

CASES = int(os.environ.get("GNATS_FUZZ_CASES", "300"))
SEED = int(os.environ.get("GNATS_FUZZ_SEED", "1"))
LONGEST = 480  # bytes; a server reads it in one piece
REPEATS = 10  # how often the reference is asked again: who gets a queue's message is up to chance

pytestmark = pytest.mark.timeout(60 + CASES // 5)

FRAGMENTS = (
    b" ", b"\t", b"\n", b"\r\n", b"\0", b"\xff", b".", b"*", b">", b"{", b"}", b'"', b"0", b"-1", b"9",
    b"1048577", b"999999999", b"0000000001", b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR x\r\n",
    b"INFO {}\r\n", b"PUB ", b"HPUB ", b"SUB ", b"UNSUB ", b"CONNECT {}\r\n", b"$NRG.", b"_R_.x ", b"_sys_ ",
    b"SUB > 9\r\n", TOKEN, b"zzzz q 5\r\n",
)  # fmt: skip


def mutate(rng: random.Random, data: bytes) -> bytes:
    """`data` with one to four changes."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 1, 1, 2, 4, 16)))
        change = rng.randrange(8)
        if change == 0:  # leave something out
            data = data[:at] + data[end:]
        elif change == 1:  # say it twice
            data = data[:end] + data[at:]
        elif change == 2:  # change a byte
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        elif change == 3:  # change the case
            data = data[:at] + data[at:end].swapcase() + data[end:]
        elif change == 4:  # break off
            data = data[: max(at, 1)]
        elif change == 5:  # go on with something else
            other = rng.choice(list(CORPUS.values()))
            data = data[:at] + other[rng.randrange(len(other)) :]
        else:  # put something in
            data = data[:at] + rng.choice(FRAGMENTS) + data[at:]
        data = data[:LONGEST] or b"\r\n"
    return data


def inputs() -> list[bytes]:
    rng = random.Random(SEED)
    corpus = list(CORPUS.values())
    return [mutate(rng, rng.choice(corpus)) for _ in range(CASES)]


def canonical(answer: bytes) -> list[bytes]:
    """The operations of an answer, messages that follow each other sorted: subscribers have no order."""
    ops: list[bytes] = []
    messages: list[bytes] = []
    for op in split_ops(answer):
        if op.startswith((b"MSG ", b"HMSG ")):
            messages.append(op)
        else:
            ops += [*sorted(messages), op]
            messages = []
    return ops + sorted(messages)


def test_agrees_with_the_reference(server: Server, reference: Server, diag: SocketDiag) -> None:
    def answer(server: Server, data: bytes) -> list[bytes]:
        (answer,) = ask(server, [[data]], diag)
        return canonical(answer)

    different = []
    for data in inputs():
        tested, expected = answer(server, data), answer(reference, data)
        if tested != expected and not any(tested == answer(reference, data) for _ in range(REPEATS)):
            different.append(f"\nsent      {data!r}\nanswered  {tested}\nreference {expected}")
    assert not different, f"{len(different)} of {CASES} (seed {SEED})" + "\n".join(different[:10])
