"""Producers, pullers, acks, deletions, purges and resets at the same time: nothing is lost."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.caller import Message
from support.js import NativeJs, Peer
from support.servers import until

from gnats.go.text import SECOND

pytestmark = pytest.mark.timeout(300)
MESSAGES = 4000
WORKERS = 4


@pytest.fixture(params=[0, 2], ids=["loop", "threads"])
def js_on_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NativeJs]:
    js = NativeJs(request.param, tmp_path)
    yield js
    js.close()


class Crew:
    """Threads whose failures fail the test."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.failures: list[BaseException] = []

    def start(self, func: Callable[..., None], *args: object) -> None:
        def run() -> None:
            try:
                func(*args)
            except BaseException as error:
                self.failures.append(error)
                raise

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(240)
            assert not thread.is_alive()
        assert not self.failures


def produce(js: NativeJs, subject: str, n: int) -> None:
    with js.peer() as peer:
        for i in range(n):
            peer.pub(subject, b"%d" % i)
        peer.flush()


def batch(peer: Peer, inbox: str, n: int, expires: int) -> Iterator[Message]:
    """Pull up to n messages; yield them as they come."""
    body = json.dumps({"batch": n, "expires": expires}).encode()
    peer.pub("$JS.API.CONSUMER.MSG.NEXT.S.C", body, inbox)
    for _ in range(n):
        message = peer.msg()
        if message.status:
            return
        yield message


def test_every_message_is_acknowledged(js: NativeJs) -> None:
    """Clients pull from a work queue, ack most messages, nak some and forget others: it ends empty."""
    js.create_stream("S", subjects=["s.>"], retention="workqueue")
    js.create_consumer(
        "S", "C", durable_name="C", ack_policy="explicit", ack_wait=SECOND // 2, max_ack_pending=500
    )
    acked: Counter[int] = Counter()
    lock = threading.Lock()
    done = threading.Event()

    def work(seed: int) -> None:
        rng = random.Random(seed)
        with js.peer() as peer:
            inbox = peer.inbox()
            while not done.is_set():
                for message in batch(peer, inbox, rng.choice([1, 7, 50]), SECOND // 2):
                    fate = rng.random()
                    if fate < 0.9:
                        peer.pub(message.reply, b"+ACK")
                        with lock:
                            acked[message.ack[1]] += 1
                    elif fate < 0.97:
                        peer.pub(message.reply, rng.choice([b"-NAK", b"-NAK 10ms", b"+WPI"]))

    crew = Crew()
    for seed in range(WORKERS):
        crew.start(work, seed)
    for part in range(2):
        crew.start(produce, js, f"s.{part}", MESSAGES // 2)

    def finished() -> bool:
        info = js.consumer_info("S", "C")
        return info["ack_floor"] == (info["delivered"][0], MESSAGES) and js.messages("S") == 0

    until(lambda: finished() or crew.failures)
    done.set()
    crew.join()
    assert set(acked) == set(range(1, MESSAGES + 1))
    info = js.consumer_info("S", "C")
    assert (info["num_ack_pending"], info["num_pending"], info["num_redelivered"]) == (0, 0, 0)


def test_push_consumers_get_everything_in_order(js: NativeJs) -> None:
    js.create_stream("S", subjects=["s.>"])
    seen: dict[int, list[int]] = {}

    def listen(number: int) -> None:
        with js.peer() as peer:
            peer.sub(f"to.{number}")
            js.create_consumer(
                "S",
                f"C{number}",
                ack_policy="none" if number % 2 else "all",
                deliver_subject=f"to.{number}",
                **({"filter_subject": "s.0"} if number > 1 else {}),
            )
            seqs = seen[number] = []
            wanted = MESSAGES if number <= 1 else MESSAGES // 2
            while len(seqs) < wanted:
                message = peer.msg()
                assert message.ack[0] == 1
                seqs.append(message.ack[1])
                if number % 2 == 0 and len(seqs) % 100 == 0:
                    peer.pub(message.reply)

    crew = Crew()
    for number in range(4):
        crew.start(listen, number)
    for part in range(2):
        crew.start(produce, js, f"s.{part}", MESSAGES // 2)
    crew.join()
    assert seen[0] == seen[1] == list(range(1, MESSAGES + 1))
    assert seen[2] == seen[3] == sorted(seen[2])


def test_everything_at_once(js: NativeJs) -> None:
    """Delete and purge messages, make, update, reset and delete consumers, while others publish and pull.

    In the end the info of the consumer that stays is right.
    """
    js.create_stream("S", subjects=["s.>"], max_msgs=2000)
    js.create_consumer("S", "C", durable_name="C", ack_policy="explicit", ack_wait=SECOND // 5)
    done = threading.Event()

    def work(seed: int) -> None:
        rng = random.Random(seed)
        with js.peer() as peer:
            inbox = peer.inbox()
            while not done.is_set():
                for message in batch(peer, inbox, 20, SECOND // 20):
                    peer.pub(
                        message.reply, rng.choice([b"+ACK", b"+ACK", b"+TERM", b"-NAK", b"+WPI", b"nonsense"])
                    )

    def meddle(seed: int) -> None:
        rng = random.Random(seed)
        for step in range(60):
            choice = rng.randrange(5)
            if choice == 0:
                seq = js.call(lambda _: js.consumers["S", "C"].info())["delivered_stream"]
                js.call(lambda _, seq=seq: js.streams["S"].delete_msg(max(1, seq - rng.randrange(20))))
            elif choice == 1:
                js.purge("S", filter=rng.choice(["s.0", "s.1", ""]), keep=rng.choice([0, 50]))
            elif choice == 2:
                js.reset("S", "C", rng.choice([0, 1, 500]))
            elif choice == 3:
                js.update_consumer(
                    "S",
                    "C",
                    durable_name="C",
                    ack_policy="explicit",
                    ack_wait=SECOND // 5,
                    **rng.choice([{}, {"filter_subject": "s.0"}, {"max_ack_pending": 5}]),
                )
            else:
                name = f"X{seed}{step}"
                js.create_consumer("S", name, ack_policy="none", deliver_subject="to.nobody")
                js.delete_consumer("S", name)

    crew, others = Crew(), Crew()
    for seed in range(2):
        crew.start(work, seed)
    for part in range(2):
        others.start(produce, js, f"s.{part}", MESSAGES)
    others.start(meddle, 1)
    others.join()
    js.update_consumer("S", "C", durable_name="C", ack_policy="explicit", ack_wait=SECOND // 5)

    def settled() -> bool:
        info = js.consumer_info("S", "C")
        return info["num_pending"] == 0 and info["num_ack_pending"] == 0

    until(lambda: settled() or crew.failures)
    done.set()
    crew.join()
    info = js.consumer_info("S", "C")
    assert info["ack_floor"][1] == info["delivered"][1] or info["ack_floor"][0] == info["delivered"][0]
    js.publish("s.0")
    with js.peer() as peer:
        message = peer.request("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":1,"expires":20000000000}')
        assert message.ack[0] == 1
        assert message.ack[3] == 0


def test_consumers_come_and_go_while_messages_do(js: NativeJs) -> None:
    """Add, change and remove consumers while a stream stores messages and drops old ones.

    The consumers that stay count their pending messages right, and the stream finds the interested ones.
    """
    subjects = [f"s.{number}" for number in range(20)]
    js.create_stream("S", subjects=["s.>"], max_msgs_per_subject=100)
    staying = {f"C{number}": subject for number, subject in enumerate([*subjects, "s.*", ""])}
    for name, subject in staying.items():
        js.create_consumer(
            "S",
            name,
            durable_name=name,
            ack_policy="explicit",
            **({"filter_subject": subject} if subject else {}),
        )
    done = threading.Event()

    def meddle(seed: int) -> None:
        rng = random.Random(seed)
        mine: list[str] = []

        def choice() -> dict[str, object]:
            return {"filter_subjects": rng.sample(subjects, rng.randrange(4))}

        for step in range(150):
            if not mine or (rng.random() < 0.5 and len(mine) < 20):
                mine.append(f"X{seed}-{step}")
                js.create_consumer("S", mine[-1], ack_policy="explicit", **choice())
            elif rng.random() < 0.5:
                js.update_consumer("S", rng.choice(mine), ack_policy="explicit", **choice())
            else:
                js.delete_consumer("S", mine.pop(rng.randrange(len(mine))))
        for name in mine:
            js.delete_consumer("S", name)

    def look(seed: int) -> None:
        """Purge from a thread that is not a poller's."""
        rng = random.Random(seed)
        while not done.is_set():
            js.streams["S"].purge(rng.choice(subjects).encode(), 0, 50)

    crew = Crew()
    for part in range(3):
        crew.start(lambda part: [produce(js, subject, 300) for subject in subjects[part::3]], part)
    meddlers = Crew()
    meddlers.start(look, 7)
    for seed in range(2):
        crew.start(meddle, seed)
    crew.join()
    done.set()
    meddlers.join()
    left = js.call(lambda _: js.streams["S"].store.subjects_totals((b"s.>",)))
    assert len(js.call(lambda _: js.streams["S"].consumers)) == len(staying)
    assert sum(left.values()) == js.messages("S")
    pending = {name: js.consumer_info("S", name)["num_pending"] for name in staying}
    assert pending == {
        name: left.get(subject.encode(), 0) if subject[-1:].isdigit() else sum(left.values())
        for name, subject in staying.items()
    }


@pytest.mark.parametrize("others", [0, 40])
@pytest.mark.parametrize("ack_policy", ["explicit", "none"])
def test_removed_messages_are_counted_off(js: NativeJs, ack_policy: str, others: int) -> None:
    """Consumers read what the stream is about to drop.

    Each still counts what is left for it, and awaits no ack of a message that is gone.
    """
    js.create_stream("S", subjects=["s.>"], max_msgs=300, max_msgs_per_subject=50)
    subjects = [f"s.{number}" for number in range(9)]
    filters = {f"C{number}": subjects[number : number + 3] for number in range(6)} | {
        "all": [],
        "wild": ["s.*"],
    }
    for name in [*filters, *(f"idle{number}" for number in range(others))]:
        js.create_consumer(
            "S",
            name,
            durable_name=name,
            ack_policy=ack_policy,
            max_ack_pending=100_000,
            ack_wait=600 * SECOND,
            filter_subjects=filters.get(name, []),
        )
    done = threading.Event()
    waiting: dict[str, set[int]] = {name: set() for name in filters}

    def read(name: str, seed: int) -> None:
        rng = random.Random(f"{name} {seed}")
        with js.peer() as peer:
            inbox = peer.inbox()
            while not done.is_set():
                n = rng.randrange(1, 30)
                body = json.dumps({"batch": n, "expires": SECOND // 20}).encode()
                peer.pub(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", body, inbox)
                for _ in range(n):
                    message = peer.msg()
                    if message.status:
                        break
                    if ack_policy == "explicit":
                        waiting[name].add(message.ack[1])
                        if rng.random() < 0.7:
                            peer.pub(message.reply, b"+ACK")
                            waiting[name].remove(message.ack[1])
            peer.flush()

    def delete(seed: int) -> None:
        rng = random.Random(seed)

        def some(_: object) -> None:
            state = js.streams["S"].state()
            js.streams["S"].delete_msg(rng.randint(state.first_seq, state.last_seq + 1))

        while not done.is_set():
            js.call(some)

    def write(part: int) -> None:
        while not done.is_set():
            for subject in subjects[part::3]:
                produce(js, subject, 40)

    crew = Crew()
    for part in range(3):
        crew.start(write, part)
    for name in filters:
        crew.start(read, name, 1)
        crew.start(read, name, 2)
    crew.start(delete, 1)
    time.sleep(1.5)
    done.set()
    crew.join()
    store = js.call(lambda _: js.streams["S"].store)
    state = js.call(lambda _: store.state())
    left: dict[int, str] = {}
    message = store.get_next()
    while message:
        left[message[0]] = message[2].decode()
        message = store.get_next((), message[0] + 1)
    assert len(left) == state.msgs
    for name in [*filters, *(f"idle{number}" for number in range(others))]:
        info = js.consumer_info("S", name)
        mine = filters.get(name, []) if name[0] == "C" else subjects
        ahead = sum(seq > info["delivered"][1] and subject in mine for seq, subject in left.items())
        assert info["num_pending"] == ahead, name
        assert info["num_ack_pending"] == len(waiting.get(name, set()) & left.keys()), name


@pytest.mark.parametrize("push", [False, True])
def test_a_message_is_shown_when_it_is_durable(js_on_disk: NativeJs, push: bool) -> None:
    """With sync_always neither acknowledgement nor delivery comes before the sync."""
    js = js_on_disk
    js.create_stream("S", subjects=["s.>"])
    stream = js.streams["S"]
    js.call(lambda _: stream.configure(stream.config, sync_always=True))
    js.publish("s.0", "s.1")
    with js.peer() as peer, js.peer() as other:
        to = peer.inbox()
        many = {"ack_policy": "explicit", "max_waiting": 20}
        js.create_consumer("S", "C", **({"ack_policy": "none", "deliver_subject": to} if push else many))
        if not push:
            peer.pub("$JS.API.CONSUMER.MSG.NEXT.S.C", b"20", to)
        assert [peer.msg().ack[1] for _ in range(2)] == [1, 2]
        js.call(lambda _: js.engine.stop_sync())
        answers = other.inbox()
        other.pub("s.2", b"", answers)
        other.pub("s.3")
        assert other.nothing()
        assert js.messages("S") == 4
        # New consumers and gets see the durable messages only.
        js.create_consumer("S", "D", ack_policy="explicit", filter_subject="s.2")
        last = {"deliver_policy": "last_per_subject", "filter_subject": "s.>"}
        js.create_consumer("S", "L", ack_policy="explicit", **last)
        js.create_consumer("S", "A", ack_policy="explicit")
        asked = {name: other.inbox() for name in "DLA"}
        for name, inbox in asked.items():
            other.pub(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", b"4", inbox)
        assert [other.msg().ack[1] for _ in range(4)] == [1, 2, 1, 2]
        assert other.nothing()
        assert peer.nothing()
        js.call(lambda _: js.engine.start_sync())
        assert [peer.msg().ack[1] for _ in range(2)] == [3, 4]
        found = sorted(message.ack[1] if message.reply else 0 for message in other.msgs(6))
        assert found == [0, 3, 3, 3, 4, 4]
        other.pub("s.5")
        assert peer.msg().ack[1] == 5
