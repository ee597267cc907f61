"""Random changes of good and bad input: gnats and the reference must answer alike.

GNATS_FUZZ_CASES sets the number of inputs of each test (300), GNATS_FUZZ_SEED the seed (1).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence

import pytest
from support.exchange import TOKEN, ask
from support.kernel import SocketDiag
from support.launch import Launch
from support.servers import REFERENCE, Server
from support.wire import split_ops

from .corpus import CORPUS

CASES = int(os.environ.get("GNATS_FUZZ_CASES", "300"))
SEED = int(os.environ.get("GNATS_FUZZ_SEED", "1"))
LONGEST = 480  # bytes of an input; a server reads it in one piece
REPEATS = 10  # tries for the reference to answer alike: it chooses a queue member at random

pytestmark = pytest.mark.timeout(60 + CASES // 5)

Pieces = Sequence[bytes]

FRAGMENTS = (
    b" ", b"\t", b"\n", b"\r\n", b"\0", b"\xff", b".", b"*", b">", b"{", b"}", b'"', b"0", b"-1", b"9",
    b"1048577", b"999999999", b"0000000001", b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR x\r\n",
    b"INFO {}\r\n", b"PUB ", b"HPUB ", b"SUB ", b"UNSUB ", b"CONNECT {}\r\n", b"$NRG.", b"_R_.x ", b"_sys_ ",
    b"SUB > 9\r\n", TOKEN, b"zzzz q 5\r\n",
)  # fmt: skip

# Parts of CONNECT objects: names of fields with values that fit, and values that fit few fields or all.
FLAGS = (
    "verbose", "VERBOSE", "verbo\\u0073e", "verbo\u017fe", "pedantic", "Echo", "echo", "headers",
    "tls_required",
)  # fmt: skip
TEXTS = ("name", "user", "pass", "nkey", "n\u212aey", "lang", "version", "sig", "jwt")
STRINGS = (
    '""', '"a"', '"\\u00e9\\n"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\ud800\\u0041"', '"\\udc00"', '"a\x7fb"',
    '"\u00e9\u20ac"', '"\\/"', '"}"',
)  # fmt: skip
GOOD_JSON = (
    "null", "true", "0", "-0", "-1.5e+3", "1E400", '"a"', "[]", "{}", '[1,"a",null]', '{"a":{"b":[{}]}}',
    "[[[[]]]]",
)  # fmt: skip
BAD_JSON = (
    "True", "tru", "falsee", "01", "+1", ".5", "1.", "1e", "0x1", "NaN", '"\\x"', '"\\u12"', '"\\"', '"a\tb"',
    "[1,]", '{"a":1,}', "{]", "", "'a'", "-", '{"a"}', "{1:2}",
)  # fmt: skip
PROBE = b"SUB zzzz 1\r\nPUB zzzz.* 0\r\n\r\nPUB zzzz zzzz.x 0\r\n\r\nHPUB zzzz 12 12\r\nNATS/1.0\r\n\r\n\r\n"


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Return `data` with one to three random changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 1, 1, 2, 4, 16)))
        change = rng.randrange(8)
        if change == 0:  # leave something out
            data = data[:at] + data[end:]
        elif change == 1:  # repeat something
            data = data[:end] + data[at:]
        elif change == 2:  # change a byte
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        elif change == 3:  # change the case
            data = data[:at] + data[at:end].swapcase() + data[end:]
        elif change == 4:  # break off
            data = data[: max(at, 1)]
        elif change == 5:  # continue with another input
            other = rng.choice(list(CORPUS.values()))
            data = data[:at] + other[rng.randrange(len(other)) :]
        else:  # insert something
            data = data[:at] + rng.choice(FRAGMENTS) + data[at:]
        data = data[:LONGEST] or b"\r\n"
    return data


def mutations(rng: random.Random) -> list[bytes]:
    corpus = list(CORPUS.values())
    return [mutate(rng, rng.choice(corpus)) for _ in range(CASES)]


def field(rng: random.Random) -> str:
    """Return a field of a CONNECT object; nine of ten are good."""
    kind = rng.randrange(20)
    if kind < 9:
        return f'"{rng.choice(FLAGS)}":{rng.choice(("true", "false", "null"))}'
    if kind < 13:
        return f'"{rng.choice(TEXTS)}":{rng.choice(STRINGS)}'
    if kind < 15:
        return f'"protocol":{rng.choice(("0", "1", "1", "null", "-0"))}'
    if kind < 18:
        return f'"unknown":{rng.choice(GOOD_JSON)}'
    if kind < 19:
        return f'"{rng.choice(FLAGS + TEXTS + ("protocol",))}":{rng.choice(STRINGS + GOOD_JSON)}'
    return f'"unknown":{rng.choice(BAD_JSON)}'


def connect(rng: random.Random) -> bytes:
    """Return a CONNECT with a good or nearly good object, and verbs that show its effect."""

    def mostly(usual: str, *others: str) -> str:
        return usual if rng.random() < 0.97 else rng.choice(others)

    comma = mostly(",", " ,\t", ",,", ";", "")
    text = mostly("{", " {", "{ ", "{{", "") + comma.join(field(rng) for _ in range(rng.randrange(5)))
    data = (text + mostly("}", " }", "} \t", "", "}}", ",}", "}x", "]")).encode()
    if rng.random() < 0.1:
        at = rng.randrange(len(data))
        data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    return b"CONNECT " + data.replace(b"\n", b"") + b"\r\n" + PROBE


def canonical(answer: bytes) -> list[bytes]:
    """Split an answer into operations; sort adjacent messages, as servers serve subscribers in any order."""
    ops: list[bytes] = []
    messages: list[bytes] = []
    for op in split_ops(answer):
        if op.startswith((b"MSG ", b"HMSG ")):
            messages.append(op)
        else:
            ops += [*sorted(messages), op]
            messages = []
    return ops + sorted(messages)


class Comparison:
    """Sends the same to two servers and keeps the inputs that they answer differently."""

    def __init__(self, tested: Server, reference: Server, diag: SocketDiag) -> None:
        self.tested, self.reference, self.diag = tested, reference, diag
        self.different: list[str] = []

    def answer(self, server: Server, pieces: Pieces) -> list[bytes]:
        (answer,) = ask(server, [pieces], self.diag)
        return canonical(answer)

    def compare(self, pieces: Pieces) -> None:
        """Send `pieces` to the server under test, and the same in one piece to the reference."""
        whole = [b"".join(pieces)]
        tested, expected = self.answer(self.tested, pieces), self.answer(self.reference, whole)
        if tested != expected and not any(
            tested == self.answer(self.reference, whole) for _ in range(REPEATS)
        ):
            self.different.append(f"\nsent      {list(pieces)}\nanswered  {tested}\nreference {expected}")

    def check(self, inputs: Iterable[Pieces]) -> None:
        for pieces in inputs:
            self.compare(pieces)
        different = "\n".join(self.different[:10])
        assert not self.different, f"{len(self.different)} of {CASES} (seed {SEED}){different}"


def test_changed_input(server: Server, reference: Server, diag: SocketDiag) -> None:
    Comparison(server, reference, diag).check([data] for data in mutations(random.Random(SEED)))


def test_changed_input_within_narrow_limits(launch: Launch, diag: SocketDiag) -> None:
    config = "max_control_line: 40\nmax_payload: 10\nmax_subscriptions: 1"
    tested, reference = launch(config=config), launch(config=config, kind=REFERENCE)
    Comparison(tested, reference, diag).check([data] for data in mutations(random.Random(SEED + 1)))


def test_connect_objects(server: Server, reference: Server, diag: SocketDiag) -> None:
    rng = random.Random(SEED + 2)
    Comparison(server, reference, diag).check([connect(rng)] for _ in range(CASES))


def test_changed_input_in_random_pieces(server: Server, reference: Server, diag: SocketDiag) -> None:
    """Skips inputs that the reference answers otherwise when they are cut: CR inside an argument."""
    rng = random.Random(SEED + 3)
    comparison = Comparison(server, reference, diag)
    inputs = []
    for data in mutations(rng):
        cuts = sorted(rng.sample(range(len(data) + 1), min(len(data), rng.randint(1, 5))))
        pieces = [
            data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if start < end
        ]
        if comparison.answer(reference, pieces) == comparison.answer(reference, [data]):
            inputs.append(pieces)
    assert len(inputs) > CASES * 0.9
    comparison.check(inputs)
