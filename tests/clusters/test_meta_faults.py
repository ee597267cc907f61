"""Servers of a JetStream cluster are killed and stopped while clients make, change and delete streams.

GNATS_CLUSTER_SECONDS is how long each cluster suffers, GNATS_CLUSTER_SEED what is drawn from.
"""

from __future__ import annotations

import base64
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.clusters import Cluster
from support.monitor import monitor
from support.servers import REFERENCE, Kind, selected, until
from support.wire import Closed

from .campaign import SEED, seconds
from .conftest import require_all
from .members import named
from .test_jetstream import Members, running

SECONDS = seconds(8)
SIZE = 3
CLIENTS = 4
ANSWER = 3.0
"""Seconds that a client waits for an answer before it does not know."""
AWAY = (10005, 10023, 10118, 10119)
"""Codes of refusals because servers are away."""
PATIENCE = 40.0
"""Seconds until a whole cluster must be as it should be."""

LOST = (OSError, TimeoutError, Closed)

pytestmark = [pytest.mark.timeout(300 + 4 * SECONDS), pytest.mark.waits]


class Client(threading.Thread):
    """Makes, changes, fills and deletes streams of its own, one after the other, at random members.

    `streams` are those that must be there, with what must be in them; those in `unknown` may be there or not.
    """

    def __init__(self, cluster: Cluster, number: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.cluster = cluster
        self.number = number
        self.rng = random.Random(seed)
        self.streams: dict[str, dict[str, Any]] = {}
        self.gone: set[str] = set()
        self.unknown: set[str] = set()
        self.acknowledged = 0
        self.ends = threading.Event()
        self.faults: list[str] = []
        self._caller: Caller | None = None
        self._numbers = 0

    def run(self) -> None:
        while not self.ends.is_set():
            try:
                self.step()
            except LOST:
                self.drop()
                self.ends.wait(0.05)
            except Exception as error:  # noqa: BLE001 - the test's thread tells it
                self.faults.append(repr(error))
                return
        self.drop()

    def drop(self) -> None:
        if self._caller:
            self._caller.connection.close()
        self._caller = None

    def ask(self, subject: str, body: object = None) -> dict[str, Any]:
        """Return the answer; raises as a connection that ends, or nobody who answers in time."""
        if self._caller is None:
            self._numbers += 1
            inbox = f"_INBOX.c{self.number}.{self._numbers}"
            server = self.cluster[self.rng.randrange(len(self.cluster))]
            self._caller = Caller(server, inbox=inbox)
            self._caller.connection.sock.settimeout(ANSWER)
        message = self._caller.request(subject, body)
        if not message.payload:
            raise TimeoutError(message.status)
        found: dict[str, Any] = message.json
        return found

    def step(self) -> None:
        name = f"C{self.number}x{self.rng.randrange(6)}"
        if name in self.unknown:
            return  # a request may still be on its way, where servers are stopped
        if name not in self.streams:
            self.make(name)
        else:
            what = self.rng.choice(("publish",) * 6 + ("update", "consumer", "consumer", "delete"))
            getattr(self, what)(name)

    def change(self, name: str, subject: str, body: object = None) -> bool:
        """Ask for a change of a stream, which is unknown until that is answered. False: it was refused."""
        self.unknown.add(name)
        answer = self.ask(f"$JS.API.{subject}", body)
        if "error" in answer:
            if answer["error"]["code"] == 503:
                raise TimeoutError(answer)
            self.unknown.discard(name)
            if answer["error"]["err_code"] in AWAY:
                return False
            self.faults.append(f"{subject}: {answer['error']}, known: {self.streams.get(name)}")
            return False
        self.unknown.discard(name)
        return True

    def learn(self, name: str) -> None:
        """Delete what is unknown, until that is answered: then it is known again."""
        answer = self.ask(f"$JS.API.STREAM.DELETE.{name}")
        if "error" not in answer or answer["error"]["err_code"] == 10059:
            self.unknown.discard(name)
            self.streams.pop(name, None)
            self.gone.add(name)

    def config(self, name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "subjects": [f"{name}.>"], **more}

    def make(self, name: str) -> None:
        if self.change(name, f"STREAM.CREATE.{name}", self.config(name)):
            self.streams[name] = {"messages": {}, "consumers": set(), "description": None}
            self.gone.discard(name)

    def update(self, name: str) -> None:
        text = f"{self.rng.random()}"
        if self.change(name, f"STREAM.UPDATE.{name}", self.config(name, description=text)):
            self.streams[name]["description"] = text

    def consumer(self, name: str) -> None:
        consumer = f"c{self.rng.randrange(3)}"
        consumers = self.streams[name]["consumers"]
        if consumer in consumers:
            if self.change(name, f"CONSUMER.DELETE.{name}.{consumer}"):
                consumers.discard(consumer)
            return
        config = {"durable_name": consumer, "ack_policy": "explicit"}
        body = {"stream_name": name, "config": config}
        if self.change(name, f"CONSUMER.CREATE.{name}.{consumer}", body):
            consumers.add(consumer)

    def delete(self, name: str) -> None:
        if self.change(name, f"STREAM.DELETE.{name}"):
            del self.streams[name]
            self.gone.add(name)

    def publish(self, name: str) -> None:
        payload = f"{self.number}.{self.rng.random()}"
        answer = self.ask(f"{name}.x", payload.encode())
        if "seq" in answer:
            assert answer["stream"] == name
            self.acknowledged += 1
            self.streams[name]["messages"][answer["seq"]] = payload


class Suffering:
    """A cluster, its clients, and the faults."""

    def __init__(self, members: Members, directory: Path, seed: int) -> None:
        self.members = members
        self.cluster = members.cluster
        self.directory = directory
        self.rng = random.Random(seed)
        self.steps: list[str] = []
        self.known: list[Client] = []

    def run(self, lasts: float) -> None:
        end = time.monotonic() + lasts
        try:
            while True:
                self.round()
                if time.monotonic() > end:
                    return
        except BaseException as error:
            error.add_note(f"GNATS_CLUSTER_SEED={SEED}; faults: {self.steps}")
            raise

    def round(self) -> None:
        clients = self.known or [Client(self.cluster, n, self.rng.getrandbits(30)) for n in range(CLIENTS)]
        if self.known:
            clients = [again(client, self.rng.getrandbits(30)) for client in self.known]
        for client in clients:
            client.start()
        time.sleep(0.5)
        for _ in range(self.rng.randint(1, 3)):
            self.harm()
        time.sleep(0.5)
        for client in clients:
            client.ends.set()
        for client in clients:
            client.join()
            assert not client.faults, client.faults
        self.known = clients
        self.check()

    # -- harm ------------------------------------------------------------------------------------------------

    def harm(self) -> None:
        what = self.rng.choice((self.kill, self.kill, self.stop, self.kill_all, self.kill_leader, self.end))
        what(self.rng.randrange(SIZE), self.rng.uniform(0, 2))

    def kill(self, number: int, lasts: float) -> None:
        self.steps.append(f"kill s{number} {lasts:.1f} s")
        self.cluster.kill(number)
        time.sleep(lasts)
        self.cluster.start_again(number)

    def end(self, number: int, lasts: float) -> None:
        self.steps.append(f"end s{number} {lasts:.1f} s")
        self.cluster.stop(number, rested=False)
        time.sleep(lasts)
        self.cluster.start_again(number)

    def kill_leader(self, number: int, lasts: float) -> None:
        leader = monitor(self.cluster[number], "/jsz").get("meta_cluster", {}).get("leader", "")
        self.kill(int(leader[1:] or number), lasts)

    def kill_all(self, number: int, lasts: float) -> None:
        self.steps.append("kill all")
        for each in range(SIZE):
            self.cluster.kill(each)
        starting = [threading.Thread(target=self.cluster.start_again, args=(each,)) for each in range(SIZE)]
        for thread in starting:
            thread.start()
        for thread in starting:
            thread.join()

    def stop(self, number: int, lasts: float) -> None:
        self.steps.append(f"SIGSTOP s{number} {lasts * 3:.1f} s")
        process = self.cluster[number].process
        process.send_signal(signal.SIGSTOP)
        time.sleep(lasts * 3)
        process.send_signal(signal.SIGCONT)

    # -- checks ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.seen: object = None
        try:
            until(self.is_whole, PATIENCE)
        except TimeoutError:
            raise AssertionError(f"the cluster does not get whole: {self.seen}") from None
        for client in self.known:
            for name, stream in client.streams.items():
                if name not in client.unknown:
                    self.check_messages(name, stream)
        self.check_disks()
        for server in self.cluster.servers:
            server.wait_for_rest()

    def is_whole(self) -> bool:
        """Whether each server answers alike, and as the clients know."""
        for client in self.known:
            for name in list(client.unknown):
                self.quietly(lambda client=client, name=name: client.learn(name))  # type: ignore[misc]
            client.drop()
            if client.unknown:
                self.seen = client.unknown
                return False
        wanted = {name for client in self.known for name in client.streams}
        for number in range(SIZE):
            answer = self.members.answer(number, "$JS.API.STREAM.LIST")
            found = answer.json if answer and answer.payload else {}
            listed = {each["config"]["name"]: each for each in found.get("streams") or ()}
            if listed.keys() != wanted or found.get("missing"):
                self.seen = number, found.get("missing"), listed.keys() ^ wanted, found.get("error")
                return False
            for client in self.known:
                for name, stream in client.streams.items():
                    if listed[name]["config"].get("description") != stream["description"]:
                        self.seen = name, listed[name]["config"], stream["description"]
                        return False
                    answer = self.members.answer(number, f"$JS.API.CONSUMER.LIST.{name}")
                    found = answer.json if answer and answer.payload else {}
                    names = {each["name"] for each in found.get("consumers") or ()}
                    if names != stream["consumers"]:
                        self.seen = name, names, stream["consumers"], found.get("missing"), found.get("error")
                        return False
        return True

    def quietly(self, do: Callable[[], None]) -> None:
        try:
            do()
        except LOST:
            return  # it is tried again

    def check_messages(self, name: str, stream: dict[str, Any]) -> None:
        with Caller(self.cluster[0], inbox="_INBOX.check") as caller:
            for seq, payload in stream["messages"].items():
                answer = caller.request(f"$JS.API.STREAM.MSG.GET.{name}", {"seq": seq}).json
                assert "error" not in answer, (name, seq, answer)
                assert base64.b64decode(answer["message"]["data"]).decode() == payload

    def check_disks(self) -> None:
        """No stream is left on a disk that is not there, and none is on two."""
        wanted = sorted(name for client in self.known for name in client.streams)

        def found() -> list[str]:
            return sorted(
                path.name
                for number in range(SIZE)
                for path in (self.directory / str(number)).glob("jetstream/$G/streams/*")
            )

        try:
            until(lambda: found() == wanted, 5)
        except TimeoutError:
            raise AssertionError(f"on disks: {found()}, assigned: {wanted}") from None


def again(client: Client, seed: int) -> Client:
    """Return a client that goes on."""
    new = Client(client.cluster, client.number, seed)
    new.streams, new.gone, new.unknown = client.streams, client.gone, client.unknown
    return new


GNATS = [kind for kind in selected() if not kind.is_reference]


@pytest.fixture(params=[(GNATS[-1],) * 3, (GNATS[0], GNATS[-1], REFERENCE)], ids=named)
def kinds(request: pytest.FixtureRequest) -> tuple[Kind, ...]:
    kinds: tuple[Kind, ...] = request.param
    require_all(kinds)
    return kinds


def test_a_cluster_keeps_what_it_has_acknowledged(kinds: tuple[Kind, ...], tmp_path: Path) -> None:
    with running(tmp_path, kinds) as members:
        Suffering(members, tmp_path, SEED).run(SECONDS)
