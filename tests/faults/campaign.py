"""Kill servers again and again, and have their clients check the store afterwards.

A round begins with an empty directory, in which several servers run one after the other. A seed decides what
clients do and when a server is killed. Threads and processes run differently each time, so that a seed which
has failed may have to be tried more than once.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

from support.caller import Caller
from support.disks import Disk
from support.faults import Home
from support.servers import Kind, Server
from support.wire import Closed

from .actors import Actor, Keeper, Latest, Limited, Worker
from .managers import Manager, Restorer

PATIENCE = 2.0
"""Seconds after which a server is killed that did not get the request at which it was to be killed."""
SMALL_BLOCKS = 125_000
"""max_bytes of a stream that keep its blocks small."""


class Trigger:
    """Decides when to kill the server: at a request of one sort, or after a number of any."""

    def __init__(self, chance: random.Random, sorts: list[str]) -> None:
        self.sort = chance.choice([*sorts, ""])
        self.left = chance.choice((1, 1, 2, 5, 20))
        if not self.sort:
            self.left = chance.randrange(1, 300)
        self.delay = chance.choice((0, 0, 0.0003, 0.001, 0.003, 0.01, 0.03))
        self.done: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._now = threading.Event()

    def about(self, sort: str) -> None:
        """Called by clients right before they send a request."""
        with self._lock:
            self.done[sort] += 1
            if self.sort in ("", sort):
                self.left -= 1
            if self.left > 0:
                return
        self._now.set()

    def give_up(self) -> None:
        self._now.set()

    def wait(self) -> None:
        if self._now.wait(PATIENCE):
            time.sleep(self.delay)  # the server may have read the request, or stored it, or answered it


class Run(threading.Thread):
    """Runs a client; `error` is the exception that ended it, None where the server's end did."""

    def __init__(self, actor: Actor, server: Server, trigger: Trigger) -> None:
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self._actor = actor
        self._server = server
        self._trigger = trigger

    def run(self) -> None:
        self._actor.about = self._trigger.about
        try:
            with Caller(self._server, inbox=f"_INBOX.{self._actor.name}") as caller:
                while True:
                    self._actor.step(caller)
        except TimeoutError as exc:
            self.error = exc
        except (OSError, Closed):
            return
        except Exception as exc:  # noqa: BLE001 - the campaign raises it
            self.error = exc
            self._trigger.give_up()


class Campaign:
    """Rounds of kills, with servers of `kinds`, in `directory`."""

    def __init__(
        self, kinds: list[Kind], directory: Path, seed: int, *, kills: int = 8, power: bool = False
    ) -> None:
        """`power`: a kill also loses everything unsynced, and servers sync before every acknowledgement."""
        self.kinds = kinds
        self.directory = directory
        self.chance = random.Random(seed)
        self.kills = kills
        self.power = power
        self.done: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        """Run one round; return counts of requests and of messages checked. Raises AssertionError."""
        disk = Disk(self.directory / "disk") if self.power else None
        home = Home(self.kinds[0], self.directory, self.power, self._options())
        try:
            self._run(home, disk)
        finally:
            home.kill()
            if disk:
                disk.close()
        return self.done

    def _options(self) -> str:
        sync = "" if self.power else self.chance.choice(("", "sync_interval: 50ms"))
        key = self.chance.choice(("", "", "key: secret", "key: secret, cipher: aes"))
        return ", ".join(each for each in (sync, key) if each)

    def _actors(self) -> list[Actor]:
        def chance() -> random.Random:
            return random.Random(self.chance.getrandbits(64))

        found: list[Actor] = [
            Keeper("KEEP", chance(), max_bytes=1 << 20),
            Keeper("SQUEEZE", chance(), compression="s2", max_bytes=1 << 20),
            Limited("COUNT", chance(), max_msgs=100),
            Limited("BYTES", chance(), max_bytes=SMALL_BLOCKS),
            Limited("PACKED", chance(), max_msgs=400, compression="s2"),
            Latest("LAST", chance(), subjects=30, max_msgs_per_subject=1),
            Latest("THREE", chance(), max_msgs_per_subject=3, compression="s2"),
            Worker("WORK", chance()),
            Worker("QUEUE", chance(), retention="workqueue"),
            Manager("M", chance()),
            Restorer("R", chance()),
        ]
        return self.chance.sample(found, self.chance.randrange(2, 6))

    def _run(self, home: Home, disk: Disk | None) -> None:
        actors = self._actors()
        sorts = sorted({sort for actor in actors for sort in actor.what})
        for number in range(self.kills + 1):
            if disk:
                home.store = disk.root / "js"
            home.kind = self.chance.choice(self.kinds)
            with Caller(home.start()) as caller:
                for actor in actors:
                    if number == 0:
                        actor.prepare(caller)
                    else:
                        self.done["messages"] += actor.check(caller, self.power)
                if number == self.kills:
                    break
            self._kill(home, actors, Trigger(self.chance, sorts))
            if disk:
                disk.lose_power()
                home.store = disk.root / "js"
            for actor in actors:
                actor.killed(home)
            if self.chance.random() < 0.2:
                home.start_and_kill(self.chance.uniform(0, 0.8))
                self.done["kills"] += 1
                if disk:
                    disk.lose_power()
        home.stop()
        with Caller(home.start()) as caller:
            for actor in actors:
                self.done["messages"] += actor.check(caller, synced=False)
                actor.finish(caller)
        home.stop()

    def _kill(self, home: Home, actors: list[Actor], trigger: Trigger) -> None:
        assert home.server
        runs = [Run(actor, home.server, trigger) for actor in actors]
        for run in runs:
            run.start()
        trigger.wait()
        home.kill()
        self.done += trigger.done
        self.done["kills"] += 1
        for run in runs:
            run.join(60)
            assert not run.is_alive()
            if run.error:
                raise run.error
