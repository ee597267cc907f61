"""The queue of bytes for a socket: what is put in comes out, whatever the sizes and however it is put in."""

import random

import pytest

from gnats.core.net.outbound import Queue

pytestmark = pytest.mark.timeout(60)

NOISE = random.Random(3).randbytes(300_000)
LARGEST = 64 * 1024


def edges() -> list[int]:
    return sorted({n for power in range(19) for n in range((1 << power) - 80, (1 << power) + 17) if n >= 0})


def largest_piece() -> int:
    """Bytes that a chunk holds at most."""
    low, high = 0, LARGEST + 1
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if Queue().put(NOISE[:middle]) else (low, middle)
    return low


def test_a_piece_is_taken_when_a_chunk_holds_it_and_refused_when_none_does() -> None:
    most = largest_piece()
    assert LARGEST - 64 < most < LARGEST
    for n in edges():
        queue = Queue()
        assert queue.put(NOISE[:n]) == (n <= most)
        assert len(queue) == (n if n <= most else 0)
        assert queue.put(b"after")
        assert queue.take(n + 10) == (NOISE[:n] if n <= most else b"") + b"after"


@pytest.mark.parametrize("first", [0, 1, 2000, LARGEST - 40, LARGEST - 32, LARGEST - 1])
def test_pieces_behind_each_other_keep_their_bytes(first: int) -> None:
    for n in edges():
        queue = Queue()
        queue.append(NOISE[:first])
        if not queue.put(NOISE[100 : 100 + n]):
            queue.append(NOISE[100 : 100 + n])
        queue.append(b"end")
        assert queue.take(first + n + 3) == NOISE[:first] + NOISE[100 : 100 + n] + b"end"
        assert len(queue) == 0


def test_what_is_taken_back_leaves_no_trace() -> None:
    for n in edges():
        queue = Queue()
        queue.append_and_take_back(NOISE[:n])
        assert (len(queue), queue.take(10)) == (0, b"")
        queue.append(NOISE[: n // 2])
        queue.append_and_take_back(NOISE[:n])
        queue.append(b"end")
        assert queue.take(n + 3) == NOISE[: n // 2] + b"end"


@pytest.mark.parametrize("seed", range(5))
def test_any_sequence_of_operations_keeps_the_bytes(seed: int) -> None:
    rng = random.Random(seed)
    sizes = edges()
    queue, model = Queue(), b""
    for _ in range(600):
        data = NOISE[rng.randrange(1000) :][: rng.choice(sizes)]
        match rng.randrange(6):
            case 0:
                queue.append(data)
                model += data
            case 1:
                model += data if queue.put(data) else b""
            case 2:
                queue.append_and_take_back(data)
            case 3:
                other = Queue()
                for _ in range(rng.randrange(4)):
                    piece = data[: rng.choice(sizes)]
                    other.append(piece)
                    model += piece
                queue.merge(other)
            case _:
                n = rng.choice(sizes) * rng.randrange(1, 4)
                assert queue.take(n) == model[:n]
                model = model[n:]
        assert len(queue) == len(model)
    assert queue.take(len(model) + 1) == model
