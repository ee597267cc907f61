"""Let clients come and go for a while at a hub and a leaf node; memory and interest stay what they were.

Run it as `python -m soak.churn --minutes 60`. Each pair of servers has its clients, which subscribe, publish,
ask, unsubscribe and leave, some without a word; now and then the connection between the servers is cut. At
the end of each third of the time all clients leave: what a gnats server has then must not grow.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from clusters.domains import Link
from clusters.proxy import PASS, REFUSE
from support.caller import Caller
from support.monitor import monitor
from support.servers import KINDS, REFERENCE, Kind, Server, reserve_port, until
from support.wire import PING, Connection, connect_op, header, publish_op

KEPT = 1 << 20
"""Bytes by which the memory of a gnats server may grow from the first third to the last one."""
SHARE = 0.02
"""The same, as a share of what it has: the larger of the two counts."""
CLIENTS = 12
"""Clients of a pair at one time."""
BURST = 500
"""Messages of a burst before the clients come: their bursts are smaller."""
ROUNDS = 40
"""Rounds from one look at the interest to the next."""
LOOKS = 50
"""Looks at a server that must show nothing that goes away."""
CUT = 0.3
"""How likely the connection between the servers is cut before that."""
PAIRS: tuple[tuple[str, str], ...] = (
    ("gnats-threads", "reference"),
    ("reference", "gnats-threads"),
    ("gnats-loop", "gnats-threads"),
)
"""Hubs and leaf nodes."""
ACCOUNTS = 'accounts { A { users [ { user: a, password: p } ], mappings { "map.*": "mapped.$1" } } }'
SUBJECTS = ("all.*", "all.>", "*.one", "all.one", "deep.a.*.c.>", "map.x", "mapped.*")
PUBLISHED = ("all.one", "all.two", "two.one", "deep.a.b.c.d", "map.x", "nobody")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Held:
    """What a server has when no client is connected."""

    memory: int
    """Bytes of anonymous memory."""
    descriptors: int
    subscriptions: int

    def without_memory(self) -> Held:
        return replace(self, memory=0)

    def __str__(self) -> str:
        kilobytes = self.memory >> 10
        return f"{kilobytes} KiB, {self.descriptors} descriptors, {self.subscriptions} subscriptions"


def held(server: Server) -> Held:
    process = Path(f"/proc/{server.process.pid}")
    rollup = (process / "smaps_rollup").read_text()
    memory = next(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Anonymous:"))
    descriptors = len(list((process / "fd").iterdir()))
    return Held(memory, descriptors, monitor(server, "/subsz")["num_subscriptions"])


def at_rest(server: Server) -> Held:
    """Return what a server has without what is being closed: the least that it has for a while."""
    least, looks = held(server), 0
    while looks < LOOKS:
        now = held(server)
        fewer = now.descriptors < least.descriptors or now.subscriptions < least.subscriptions
        least, looks = (now, 0) if fewer else (least, looks + 1)
    return least


class Guest:
    """A client that comes, does things at random, and leaves."""

    def __init__(self, server: Server, chance: random.Random) -> None:
        self.connection = Connection(server.address)
        self.chance = chance
        self.subjects: dict[int, str] = {}
        self.sids = 0
        self.connection.send(connect_op("a", "p", headers=True, no_responders=True))

    def act(self) -> None:
        """Subscribe, unsubscribe, publish and ask; read what has come."""
        chance, ops = self.chance, []
        for _ in range(chance.randint(1, 6)):
            self.sids += 1
            fresh = f"own.{next(_numbers)}.{chance.choice('ab*')}"
            subject = chance.choice((*SUBJECTS, fresh, fresh))
            group = chance.choice(("", "", "g1", "g2"))
            ops.append(f"SUB {subject} {group} {self.sids}\r\n")
            if chance.random() < 0.2:
                ops.append(f"UNSUB {self.sids} {chance.randint(1, 3)}\r\nUNSUB {self.sids}\r\n")
            else:
                self.subjects[self.sids] = subject
        for sid in [sid for sid in self.subjects if chance.random() < 0.3]:
            ops.append(f"UNSUB {sid}\r\n")
            del self.subjects[sid]
        data = "".join(ops).encode()
        block = header(f"N: {self.sids}")
        for subject in chance.choices(PUBLISHED, k=8):
            payload = b"x" * chance.choice((0, 10, 1000))
            data += f"HPUB {subject} {len(block)} {len(block) + len(payload)}\r\n".encode()
            data += block + payload + b"\r\n"
        inbox = f"_INBOX.{next(_numbers)}"
        data += f"SUB {inbox} 0\r\nPUB {chance.choice(PUBLISHED)} {inbox} 0\r\n\r\nUNSUB 0\r\n".encode()
        self.connection.send(data)
        self.connection.fence()

    def leave(self) -> None:
        """Close the connection, some with the rest of their input unread."""
        if self.chance.random() < 0.3:
            self.connection.send(PING)
        self.connection.close()


class Pair:
    """A hub and a leaf node, with a connection that can be cut."""

    def __init__(self, directory: Path, kinds: Sequence[Kind], stack: ExitStack) -> None:
        port = reserve_port(self)
        self.link = Link(port)
        stack.callback(self.link.close)
        blocks = (
            f"server_name: hub\nleafnodes {{ listen: '127.0.0.1:{port}', no_advertise: true }}",
            "server_name: leaf\nleafnodes { reconnect: '0.2s', remotes [\n"
            f"{{ url: 'nats-leaf://a:p@127.0.0.1:{self.link.port}', account: A }}\n] }}",
        )
        self.servers: list[Server] = []
        for number, (kind, block) in enumerate(zip(kinds, blocks, strict=True)):
            folder = directory / f"{number}"
            folder.mkdir(parents=True)
            config = f"{block}\nmax_closed_clients: 100\n{ACCOUNTS}"
            server = Server(kind, folder, "-m", "-1", config=config)
            stack.callback(server.stop)
            self.servers.append(server)
        self.wait_linked()
        self.rest: list[set[str]] = []
        """The interest that each server has of the other one while there are no clients."""
        for server, other in itertools.permutations(range(2)):
            with Caller(self.servers[server], "a", "p", "_INBOX.first"):
                until(lambda other=other: "_INBOX.first.*" in self.told(other))  # type: ignore[misc]
            until(lambda other=other: "_INBOX.first.*" not in self.told(other))  # type: ignore[misc]
        self.rest = [self.told(n) for n in (0, 1)]
        self.before = [at_rest(server) for server in self.servers]

    def wait_linked(self) -> None:
        for server in self.servers:
            until(lambda server=server: monitor(server, "/leafz")["leafnodes"] == 1)  # type: ignore[misc]

    def told(self, number: int) -> set[str]:
        """Return what a server has been told of, but for subjects that last as long as the connection."""
        (leaf,) = monitor(self.servers[number], "/leafz?subs=1").get("leafs") or [{}]
        subjects = leaf.get("subscriptions_list") or []
        return {each for each in subjects if not each.startswith(("$LDS.", "_R_."))}

    def cut(self) -> None:
        self.link.set(REFUSE)
        until(lambda: all(monitor(server, "/leafz")["leafnodes"] == 0 for server in self.servers))
        self.link.set(PASS)
        self.wait_linked()

    def warm_up(self) -> None:
        """Have each poller queue more at once than later: it keeps the buffers of its busiest moment."""
        data = publish_op("warm", b"x" * 1000) * BURST
        for here in self.servers:
            with ExitStack() as stack:
                listeners = [
                    stack.enter_context(Connection(server.address))
                    for server in self.servers
                    for _ in range(CLIENTS)
                ]
                for listener in listeners:
                    listener.send(connect_op("a", "p") + b"SUB warm 1\r\n")
                    listener.fence()
                until(lambda: all("warm" in self.told(number) for number in range(2)))
                with Connection(here.address) as publisher:
                    publisher.send(connect_op("a", "p") + data)
                    publisher.fence()
                for listener in listeners:
                    for _ in range(BURST):
                        listener.read_op()

    def check_interest(self, guests: list[Guest]) -> None:
        """Wait until each server knows just what the clients of the other one subscribe to."""
        for number in range(2):
            there = self.servers[1 - number].address
            wanted = set(self.rest[number])
            for guest in guests:
                if guest.connection.sock.getpeername()[1] == there[1]:
                    wanted.update(guest.subjects.values())
            try:
                until(lambda number=number, wanted=wanted: self.told(number) == wanted)  # type: ignore[misc]
            except TimeoutError:
                told = self.told(number)
                raise AssertionError(
                    f"{self.servers[number].kind.name} lacks {wanted - told}, keeps {told - wanted}"
                ) from None

    def check_messages(self) -> None:
        """Send a message each way, which must come once."""
        for here, there in itertools.permutations(self.servers):
            with Caller(here, "a", "p", "_INBOX.h") as publisher, Caller(there, "a", "p") as subscriber:
                subject = f"check.{next(_numbers)}"
                subscriber.subscribe(f"{subject}.*")
                publisher_server = self.servers.index(here)
                until(lambda: f"{subject}.*" in self.told(publisher_server))  # noqa: B023
                for n in range(10):
                    publisher.publish(f"{subject}.{n}")
                came = [subscriber.next().subject for _ in range(10)]
                assert came == [f"{subject}.{n}" for n in range(10)]
                publisher.fence()
                assert subscriber.fence() == []
                assert subscriber.kept() == []

    def settled(self) -> list[Held]:
        """Return what the servers have when all clients have left; only memory may differ from the start."""
        self.check_interest([])

        try:
            until(lambda: not self.changed())
        except TimeoutError:
            raise AssertionError("; ".join(self.changed())) from None
        return [held(server) for server in self.servers]

    def changed(self) -> list[str]:
        """Return what gnats servers hold that they did not hold at the start, or no longer."""
        return [
            f"{server.kind.name} of {[each.kind.name for each in self.servers]} had {before}, has {now}"
            for server, before in zip(self.servers, self.before, strict=True)
            if not server.kind.is_reference
            and (now := held(server)).without_memory() != before.without_memory()
        ]


def churn(pair: Pair, seconds: float, seed: int) -> list[list[Held]]:
    """Let clients come and go; return what the servers had at the end of each third."""
    chance = random.Random(seed)
    found = []
    pair.warm_up()
    begun = time.monotonic()
    for third in range(3):
        guests: list[Guest] = []
        while time.monotonic() < begun + seconds * (third + 1) / 3:
            for _ in range(ROUNDS):
                if len(guests) < CLIENTS:
                    guests.append(Guest(chance.choice(pair.servers), chance))
                chance.choice(guests).act()
                if len(guests) == CLIENTS or chance.random() < 0.3:
                    guests.pop(chance.randrange(len(guests))).leave()
            if chance.random() < CUT:
                pair.cut()
            for guest in guests:
                guest.connection.fence()
            pair.check_interest(guests)
        for guest in guests:
            guest.leave()
        pair.check_messages()
        found.append(pair.settled())
    return found


@contextmanager
def pairs(kinds: Sequence[tuple[Kind, Kind]]) -> Iterator[list[Pair]]:
    """Run a hub and a leaf node of each two kinds."""
    with TemporaryDirectory() as directory, ExitStack() as stack:
        yield [Pair(Path(directory) / f"{n}", two, stack) for n, two in enumerate(kinds)]


def run(seconds: float, seed: int = 1) -> list[tuple[str, list[Held]]]:
    """Run all pairs at once; return what each gnats server had at the end of each third, with its name."""
    kinds = [(KINDS[hub], KINDS[leaf]) for hub, leaf in PAIRS]
    found = []
    with pairs(kinds) as running, ThreadPoolExecutor(len(running)) as pool:
        churned = list(pool.map(lambda pair: churn(pair, seconds, seed), running))
    for (hub, leaf), thirds in zip(PAIRS, churned, strict=True):
        for number, (role, name) in enumerate((("hub", hub), ("leaf", leaf))):
            if KINDS[name] is not REFERENCE:
                found.append((f"{role} {name} of {hub}, {leaf}", [each[number] for each in thirds]))
    return found


def grown(found: list[tuple[str, list[Held]]]) -> list[str]:
    """Return the servers whose memory has grown too much from the first third to the last one."""
    return [
        f"{name}: {first} became {last}"
        for name, (first, _, last) in found
        if last.memory - first.memory > max(KEPT, SHARE * first.memory)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make churn", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    found = run(args.minutes * 60, args.seed)
    for name, thirds in found:
        print(f"{name}: {'; '.join(map(str, thirds))}")
    for line in (wrong := grown(found)):
        print(f"grown: {line}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
