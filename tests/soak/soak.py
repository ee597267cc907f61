"""Let consumers of all kinds wait, on several servers at once; compare the end and the duration of each wait.

The same seed gives the same script: several workers, each with a connection and a stream of its own, run one
episode after the other. An episode makes a consumer, has it wait, and records the outcome. This does not
depend on the server's speed, since deadlines are half a wait apart.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from support.caller import Message
from support.jetstream import config
from support.servers import KINDS, Kind, Server
from support.waits import MS, Waiter, header, is_marker, rfc3339

from gnats.go.text import SECOND

WORKERS = 12
UNIT = 500 * MS
"""The unit of the waits, in ns: most waits last a few units."""


@dataclass
class Record:
    """The outcomes of a worker's episodes, waits that ended too early, and how late the others were (ns)."""

    said: list[tuple[str, list[str]]] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    late: list[tuple[int, str]] = field(default_factory=list)


class Worker:
    """Runs episodes on one connection."""

    def __init__(self, server: Server, seed: int, index: int, record: Record) -> None:
        self.random = random.Random(f"{seed} {index}")
        self.stream = f"S{index}"
        self.record = record
        self.client = Waiter(server, inbox=f"_INBOX.soak{index}")
        self.names = 0
        self.episode = ""
        self.client.stream(self.stream)
        self.advisories = self.client.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.*.{self.stream}.>")
        self.client.stream(
            f"{self.stream}-M",
            subjects=[f"M{index}.>"],
            allow_msg_ttl=True,
            subject_delete_marker_ttl=SECOND,
            allow_msg_schedules=True,
            allow_rollup_hdrs=True,
        )
        self.markers = self.client.subscribe(f"deliver.{index}")
        self.client.consumer(f"{self.stream}-M", "all", deliver_subject=f"deliver.{index}", ack_policy="none")
        self.index = index

    def run(self, *, episodes: int = 0, until: float = 0.0) -> None:
        """Run a number of episodes, or until a time (time.monotonic())."""
        done = 0
        while done < episodes or time.monotonic() < until:
            episode: Callable[[Worker], list[str]] = self.random.choice(EPISODES)
            self.episode = f"{self.stream} {done} {episode.__name__}"
            self.record.said.append((self.episode, episode(self)))
            done += 1
        self.client.connection.close()

    # -- for episodes --

    def name(self) -> str:
        self.names += 1
        return f"c{self.names}"

    def ended(self, came: int, due: int) -> None:
        if came < due:
            self.record.early.append(f"{self.episode}: {(due - came) / MS} ms")
        self.record.late.append((came - due, self.episode))

    def consumer(self, **more: object) -> str:
        name = self.name()
        config = {
            "filter_subject": f"{self.stream}.{name}",
            "max_waiting": 512,
            "inactive_threshold": 60 * SECOND,
        }
        self.client.consumer(self.stream, name, **config | more)
        return name

    def store(self, name: str, n: int = 1) -> int:
        """Store n messages; return the time before (monotonic ns)."""
        begun = time.monotonic_ns()
        self.client.store_many([f"{self.stream}.{name}"] * n)
        return begun

    def pull(self, name: str, **request: object) -> tuple[str, int]:
        begun = time.monotonic_ns()
        return self.client.pull(self.stream, name, **request), begun

    def until_status(self, sid: str) -> list[Message]:
        """Return messages up to and including a status that is not a heartbeat."""
        came = []
        while True:
            came.append(self.client.next_with(sid))
            if came[-1].status and "Idle Heartbeat" not in came[-1].status:
                return came

    def gone(self, name: str) -> None:
        """Delete an episode's consumer."""
        self.client.api(f"CONSUMER.DELETE.{self.stream}.{name}")


def delivery(message: Message) -> str:
    """Describe a message: its delivery count and sequence, or its status."""
    if found := message.status:
        return found
    _, _, _, _, deliveries, _, dseq, *_ = message.reply.split(".")
    return f"{deliveries}/{dseq}"


def expires(w: Worker) -> list[str]:
    name = w.consumer()
    units = w.random.randint(1, 6)
    beats = w.random.choice((0, 0, 2, 4))
    request: dict[str, object] = {"batch": w.random.randint(1, 5), "expires": units * UNIT}
    if beats:
        request["idle_heartbeat"] = int(units * UNIT / (beats + 0.5))
    sid, begun = w.pull(name, **request)
    came = w.until_status(sid)
    w.ended(w.client.when(came[-1]), begun + units * UNIT)
    w.gone(name)
    return [delivery(message) for message in came]


def satisfied(w: Worker) -> list[str]:
    """Requests get their messages; one more waits and gets none."""
    n = w.random.choice((1, 3, 100))
    name = w.consumer(ack_wait=60 * SECOND, max_ack_pending=-1)
    sids = [w.pull(name, batch=1, expires=UNIT)[0] for _ in range(n)]
    w.store(name, n)
    while sids:  # on a busy machine a request may expire: send it again
        late = 0
        for sid in sids:
            message = w.client.next_with(sid)
            if message.status:
                late += 1
            else:
                w.client.ack_sync(message)
        sids = [w.pull(name, batch=1, expires=UNIT)[0] for _ in range(late)]
    sid, begun = w.pull(name, batch=1, expires=2 * UNIT)
    came = w.until_status(sid)
    w.ended(w.client.when(came[-1]), begun + 2 * UNIT)
    w.gone(name)
    return [f"{n}", *(delivery(message) for message in came)]


def redelivers(w: Worker) -> list[str]:
    units, times = w.random.randint(1, 3), w.random.randint(1, 3)
    wait = units * UNIT
    n = w.random.randint(1, 4)
    name = w.consumer(ack_wait=wait)
    begun = w.store(name, n)
    sid, _ = w.pull(name, batch=100, expires=int((times + 0.5) * wait))
    came = w.until_status(sid)
    for message in came[:-1]:
        before = int(message.reply.split(".")[4]) - 1
        w.ended(w.client.when(message), begun + before * wait)
    w.gone(name)
    return sorted(delivery(message).split("/")[0] for message in came)


def backs_off(w: Worker) -> list[str]:
    first, second = w.random.randint(1, 2) * UNIT, w.random.randint(1, 3) * UNIT
    name = w.consumer(backoff=[first, second], max_deliver=3)
    begun = w.store(name)
    sid, _ = w.pull(name, batch=100, expires=first + second + UNIT)
    came = w.until_status(sid)
    due = [0, first, first + second]
    for message, after in zip(came, due, strict=False):
        if not message.status:
            w.ended(w.client.when(message), begun + after)
    w.gone(name)
    return [delivery(message).split("/")[0] for message in came]


def naks(w: Worker) -> list[str]:
    delay = w.random.randint(1, 4) * UNIT
    name = w.consumer(ack_wait=60 * SECOND)
    w.store(name)
    sid, _ = w.pull(name, batch=2, expires=60 * SECOND)
    first = w.client.next_with(sid)
    begun = time.monotonic_ns()
    w.client.ack(first, b'-NAK {"delay": %d}' % delay)
    again = w.client.next_with(sid)
    w.ended(w.client.when(again), begun + delay)
    w.gone(name)
    return [delivery(again).split("/")[0]]


def progresses(w: Worker) -> list[str]:
    wait = w.random.randint(2, 3) * UNIT
    name = w.consumer(ack_wait=wait)
    w.store(name)
    sid, _ = w.pull(name, batch=2, expires=60 * SECOND)
    message = w.client.next_with(sid)
    begun = 0
    for _ in range(w.random.randint(1, 200)):
        begun = time.monotonic_ns()
        w.client.ack(message, b"+WPI")
    again = w.client.next_with(sid)
    w.ended(w.client.when(again), begun + wait)
    w.gone(name)
    return [delivery(again).split("/")[0]]


def acknowledges(w: Worker) -> list[str]:
    """Acknowledged and terminated messages do not come again."""
    name = w.consumer(ack_wait=UNIT)
    w.store(name, 3)
    sid, begun = w.pull(name, batch=100, expires=3 * UNIT)
    for answer in w.random.sample([b"+ACK", b"+TERM", b"+TERM it is over"], 3):
        w.client.ack_sync(w.client.next_with(sid), answer)
    came = w.until_status(sid)
    w.ended(w.client.when(came[-1]), begun + 3 * UNIT)
    w.gone(name)
    return [delivery(message) for message in came]


def goes_away(w: Worker) -> list[str]:
    threshold = w.random.randint(1, 4) * UNIT
    begun = time.monotonic_ns()
    name = w.consumer(inactive_threshold=threshold)
    while True:
        message = w.client.next_with(w.advisories)
        if (
            message.subject.startswith("$JS.EVENT.ADVISORY.CONSUMER.DELETED.")
            and message.json["consumer"] == name
        ):
            w.ended(w.client.when(message), begun + threshold)
            return ["gone"]


def pauses(w: Worker) -> list[str]:
    units = w.random.randint(1, 4)
    name, deliver = w.name(), f"deliver.{w.stream}.{w.names}"
    w.store(name)
    sid = w.client.subscribe(deliver)
    begun, until = time.monotonic_ns(), time.time_ns() + units * UNIT
    w.client.consumer(
        w.stream,
        name,
        filter_subject=f"{w.stream}.{name}",
        deliver_subject=deliver,
        pause_until=rfc3339(until),
    )
    message = w.client.next_with(sid)
    w.ended(w.client.when(message), begun + units * UNIT)
    w.gone(name)
    return [delivery(message)]


def beats(w: Worker) -> list[str]:
    beat = w.random.randint(1, 3) * UNIT
    name, deliver = w.name(), f"deliver.{w.stream}.{w.names}"
    sid = w.client.subscribe(deliver)
    begun = time.monotonic_ns()
    w.client.consumer(
        w.stream,
        name,
        filter_subject=f"{w.stream}.{name}",
        deliver_subject=deliver,
        idle_heartbeat=beat,
        flow_control=w.random.choice((True, False)),
    )
    came = [w.client.next_with(sid) for _ in range(3)]
    for n, message in enumerate(came, 1):
        w.ended(w.client.when(message), begun + n * beat)
    w.gone(name)
    return [delivery(message) for message in came]


def unpins(w: Worker) -> list[str]:
    ttl = w.random.randint(1, 4) * UNIT
    name = w.consumer(priority_groups=["g"], priority_policy="pinned_client", priority_timeout=ttl)
    w.store(name)
    sid, begun = w.pull(name, batch=1, expires=60 * SECOND, group="g")
    message = w.client.next_with(sid)
    while True:
        advisory = w.client.next_with(w.advisories)
        if ".UNPINNED." in advisory.subject and advisory.json["consumer"] == name:
            break
    w.ended(w.client.when(advisory), begun + ttl)
    w.gone(name)
    return [delivery(message), advisory.json["reason"]]


def fades(w: Worker) -> list[str]:
    ttl = w.random.randint(1, 2)
    subject = f"M{w.index}.{w.name()}"
    for other in w.random.sample(["1h", "7000000000", "never"], 2):
        w.client.store(f"{subject}.{other}", f"Nats-TTL: {other}")
    begun = time.monotonic_ns()
    w.client.store(subject, f"Nats-TTL: {ttl}s")
    marker = is_marker(subject)
    while not marker(message := w.client.next_with(w.markers)):
        pass
    w.ended(w.client.when(message), begun + ttl * SECOND)
    return ["marker"]


def schedules(w: Worker) -> list[str]:
    units = w.random.randint(1, 6)
    subject = f"M{w.index}.{w.name()}"
    begun, when = time.monotonic_ns(), time.time_ns() + units * UNIT
    lines = (f"Nats-Schedule: @at {rfc3339(when)}", f"Nats-Schedule-Target: {subject}.target")
    later = ("Nats-Schedule: @at 2261-01-01T00:00:00Z", f"Nats-Schedule-Target: {subject}.never")
    w.client.publish(f"{subject}.later", b"", "", header(*later))
    w.client.store(subject, *lines)
    while (message := w.client.next_with(w.markers)).subject != f"{subject}.target":
        pass
    w.ended(w.client.when(message), begun + units * UNIT)
    return [message.payload.decode()]


EPISODES: list[Callable[[Worker], list[str]]] = [
    expires, satisfied, redelivers, backs_off, naks, progresses, acknowledges, goes_away, pauses, beats,
    unpins, fades, schedules,
]  # fmt: skip


@contextmanager
def running(kinds: list[Kind]) -> Iterator[list[Server]]:
    """Run servers of these kinds with JetStream at the same time."""
    with TemporaryDirectory() as root:
        servers: list[Server] = []
        try:
            for kind in kinds:
                directory = Path(root) / kind.name
                servers.append(Server(kind, directory, config=config(directory / "js")))
            yield servers
        finally:
            for server in servers:
                server.stop()


def soak(kinds: list[Kind], seed: int, *, episodes: int = 0, seconds: float = 0.0) -> dict[str, list[Record]]:
    """Run workers on servers of each kind; return records by kind. Raises a worker's first exception."""
    records: dict[str, list[Record]] = {kind.name: [Record() for _ in range(WORKERS)] for kind in kinds}
    failures: list[BaseException] = []
    until = time.monotonic() + seconds if seconds else 0.0

    def work(server: Server, index: int) -> None:
        try:
            worker = Worker(server, seed, index, records[server.kind.name][index])
            worker.run(episodes=episodes, until=until)
        except BaseException as error:
            failures.append(error)
            raise

    with running(kinds) as servers:
        threads = [
            threading.Thread(
                target=work, args=(server, index), name=f"{server.kind.name} {index}", daemon=True
            )
            for server in servers
            for index in range(WORKERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return records


def differences(records: dict[str, list[Record]]) -> list[str]:
    """Describe gnats's waits that ended too early, and episodes that differ from those of the first kind."""
    found = []
    (reference, expected), *others = records.items()
    for name, seen in others:
        for mine, theirs in zip(seen, expected, strict=True):
            found += [f"{name} was too early: {each}" for each in mine.early]
            # With a time limit, one worker has more episodes.
            for (episode, said), (_, meant) in zip(mine.said, theirs.said, strict=False):
                if said != meant:
                    found.append(f"{episode}: {name} {said}, {reference} {meant}")
    return found


def latest(records: list[Record], n: int = 3) -> list[tuple[int, str]]:
    """Return (ns late, episode) of the waits that ended latest."""
    return sorted((each for record in records for each in record.late), reverse=True)[:n]


__all__ = ["KINDS", "differences", "latest", "soak"]
