"""The queue of bytes for a socket: bytes come out as they went in, for all sizes and ways to queue."""

import random
from dataclasses import dataclass, field

import pytest

from gnats.core.net.outbound import Block, Queue

pytestmark = pytest.mark.timeout(60)

NOISE = random.Random(3).randbytes(300_000)
LARGEST = 64 * 1024


def edges() -> list[int]:
    return sorted({n for power in range(19) for n in range((1 << power) - 80, (1 << power) + 17) if n >= 0})


def largest_piece() -> int:
    """Return the most bytes that a chunk holds."""
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


def test_what_the_control_plane_takes_back_is_freed() -> None:
    """The control plane, without a pool, drops what it has queued of a message when memory runs out."""
    queue = Queue()
    for before in (b"", NOISE[:100]):
        queue.append(before, pooled=False)
        queue.mark()
        queue.append(NOISE, pooled=False)
        assert queue.chunks > 2
        queue.take_back(pooled=False)
        assert queue.take(1 << 20) == before


def test_what_is_taken_back_leaves_no_trace() -> None:
    block = Block(NOISE)
    for n in edges():
        queue = Queue()
        for before in (b"", NOISE[: n // 2]):
            queue.append(before)
            queue.mark()
            queue.append(NOISE[:n])
            queue.refer(block, n, 7)
            queue.append(NOISE[:n])
            queue.take_back()
            assert len(queue) == len(before)
            assert block.users == 1
        queue.append(b"end")
        assert queue.take(n + 3) == NOISE[: n // 2] + b"end"


def test_a_reference_counts_all_of_its_bytes_and_copies_none() -> None:
    block = Block(NOISE)
    queues = [Queue() for _ in range(10)]
    for queue in queues:
        queue.append(b"line")
        queue.refer(block, 5, 200_000)
        queue.append(b"after")
        assert len(queue) == 4 + 200_000 + 5
    assert block.users == 1 + len(queues)
    for left, queue in enumerate(reversed(queues)):
        assert queue.take(1 << 20) == b"line" + NOISE[5:200_005] + b"after"
        assert block.users == len(queues) - left


def test_a_block_is_held_until_the_last_byte_of_a_reference_is_taken() -> None:
    block, queue = Block(NOISE), Queue()
    queue.refer(block, 0, 3)
    assert queue.take(2) == NOISE[:2]
    assert block.users == 2
    assert queue.take(1) == NOISE[2:3]
    assert block.users == 1


def test_what_follows_a_reference_begins_with_a_small_chunk() -> None:
    block, queue = Block(NOISE), Queue()
    for _ in range(50):
        queue.append(b"a line")
        queue.refer(block, 0, 100_000)
    assert queue.chunks == 100
    assert queue.take(1 << 30) == (b"a line" + NOISE[:100_000]) * 50


def test_a_queue_that_ends_drops_its_references() -> None:
    block = Block(NOISE)
    for freed in (True, False):
        queue = Queue()
        queue.refer(block, 0, 10)
        queue.append(b"between")
        queue.refer(block, 10, 10)
        assert block.users == 3
        if freed:
            queue.free()
            assert (len(queue), block.users) == (0, 1)
        del queue
        assert block.users == 1


def test_a_chunk_that_comes_back_to_its_pool_drops_its_block_once() -> None:
    block, queue, other = Block(NOISE), Queue(), Queue()
    for _ in range(3):
        for _ in range(4):
            other.refer(block, 0, 10)
        queue.merge(other)
        assert block.users == 5
        assert queue.take(35) == NOISE[:10] * 3 + NOISE[:5]
        assert block.users == 2
        other.refer(block, 1, 1)  # in chunks that were freed before
        assert block.users == 3
        assert other.take(10) == NOISE[1:2]
        assert queue.take(10) == NOISE[5:10]
        assert block.users == 1


@dataclass
class Model:
    """A naive queue: pieces of bytes, and the block that each refers to."""

    pieces: list[tuple[bytes, Block | None]] = field(default_factory=list)

    def take(self, n: int) -> bytes:
        taken = b""
        while self.pieces and len(taken) < n:
            data, block = self.pieces.pop(0)
            part = data[: n - len(taken)]
            taken += part
            if part != data:
                self.pieces.insert(0, (data[len(part) :], block))
        return taken

    def bytes(self) -> bytes:
        return b"".join(data for data, _ in self.pieces)

    def users(self, block: Block) -> int:
        return 1 + sum(of is block for _, of in self.pieces)


@pytest.mark.parametrize("seed", range(8))
def test_any_sequence_of_operations_keeps_the_bytes_and_counts_the_users(seed: int) -> None:
    rng = random.Random(seed)
    sizes = edges()
    blocks = [Block(NOISE), Block(NOISE[7:])]
    queue, model, other = Queue(), Model(), Queue()

    def append(to: Queue, added: list[tuple[bytes, Block | None]]) -> None:
        start, n = rng.randrange(1000), rng.choice(sizes)
        if rng.random() < 0.5 or n == 0:
            to.append(NOISE[start : start + n])
            added += [(NOISE[start : start + n], None)] if n else []
        else:
            which = rng.randrange(len(blocks))
            to.refer(blocks[which], start, n)
            at = start + (7 if which else 0)
            added.append((NOISE[at : at + n], blocks[which]))

    for _ in range(600):
        match rng.randrange(7):
            case 0 | 1:
                append(queue, model.pieces)
            case 2:
                data = NOISE[rng.randrange(1000) :][: rng.choice(sizes)]
                if queue.put(data) and data:
                    model.pieces.append((data, None))
            case 3:
                queue.mark()
                for _ in range(rng.randrange(4)):
                    append(queue, [])
                queue.take_back()
            case 4:
                if rng.random() < 0.5:
                    other = Queue()
                for _ in range(rng.randrange(4)):
                    append(other, model.pieces)
                queue.merge(other)
            case _:
                n = rng.choice(sizes) * rng.randrange(1, 4)
                assert queue.take(n) == model.take(n)
        assert len(queue) == sum(len(data) for data, _ in model.pieces)
        assert [block.users for block in blocks] == [model.users(block) for block in blocks]
    assert queue.take(len(queue) + 1) == model.bytes()
    assert [block.users for block in blocks] == [1, 1]


@pytest.mark.parametrize("first", [0, 1, 3000])
def test_a_queue_is_poured_behind_another_one(first: int) -> None:
    for n in edges():
        queue, other = Queue(), Queue()
        queue.append(NOISE[:first])
        other.append(NOISE[:n])
        assert queue.pour(other)
        assert (len(queue), len(other)) == (first + n, 0)
        other.append(b"again")
        queue.append(b"end")
        assert queue.take(first + n + 3) == NOISE[:first] + NOISE[:n] + b"end"
        assert other.take(5) == b"again"


def test_a_line_overtakes_what_waits_but_no_part_of_a_message() -> None:
    messages = [b"%06d:" % n + NOISE[: (n * 997) % 40_000] for n in range(40)]
    for taken in (0, 1, 1000, 100_000):
        queue, block = Queue(), Block(NOISE)
        for number, message in enumerate(messages):
            if number % 7 == 3:  # a line, and a payload that queues share
                queue.append(message[:7])
                queue.refer(block, 0, len(message) - 7 or 1)
                messages[number] = message[:7] + NOISE[: len(message) - 7 or 1]
            elif not queue.put(message):
                queue.append(message)
        total = len(queue)
        out = queue.take(taken)
        queue.overtake(b"PONG\r\n")
        assert len(queue) == total - taken + 6
        out += queue.take(total + 6)
        at = out.index(b"PONG\r\n")
        assert out.replace(b"PONG\r\n", b"") == b"".join(messages)
        ends = {sum(map(len, messages[:n])) for n in range(len(messages) + 1)}
        assert at in ends
        assert taken <= at <= taken + 140_000 < total


def test_a_line_that_overtakes_nothing_is_the_last() -> None:
    queue = Queue()
    queue.overtake(b"1")
    queue.append(b"2")
    queue.overtake(b"3")
    assert queue.take(9) == b"123"
