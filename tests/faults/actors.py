"""Clients that keep what a server has acknowledged, and check that it is there after the server was killed.

Each client has streams of its own and sends one request after the other, so that at any moment only the
current request is in doubt. It calls `about(sort)` right before it sends a request: a campaign may kill the
server then.
"""

from __future__ import annotations

import json
import random
from base64 import b64decode
from collections.abc import Callable
from typing import Any

from support.caller import Caller
from support.faults import Home, create, info, stored

Message = tuple[str, bytes]
"""Subject and payload."""
About = Callable[[str], None]

SIZES = (0, 10, 200, 200, 3000)
ENOUGH = 500_000
"""Bytes after which a stream without limits is purged."""


def api(caller: Caller, verb: str, body: object = None) -> Any:
    """Return the answer to a request to the API. Raises AssertionError for an error."""
    answer = caller.request(f"$JS.API.{verb}", body).json
    assert "error" not in answer, (verb, body, answer)
    return answer


class Actor:
    """One client; `chance` makes its random choices."""

    what: tuple[str, ...] = ()
    """The sorts of requests at which the server may be killed."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self.about: About = lambda _: None

    def prepare(self, caller: Caller) -> None:
        """Make streams and consumers, before the first step."""

    def begin(self, caller: Caller) -> None:
        """Called when a server has started and check() has passed."""

    def step(self, caller: Caller) -> None:
        """Send one request. Raises Closed or OSError when the server is killed."""
        raise NotImplementedError

    def killed(self, home: Home) -> None:
        """Called when the server has been killed, before it starts again."""

    def check(self, caller: Caller, synced: bool) -> int:
        """Check that nothing acknowledged is lost; return the number of messages read.

        `synced`: power was lost, so that removals that were not synced may be undone. Raises AssertionError.
        """
        raise NotImplementedError

    def finish(self, caller: Caller) -> None:
        """Check what holds only at the end of a round."""


class Keeper(Actor):
    """Publishes to a stream, deletes and purges; the stream has no limits."""

    what = ("publish", "delete", "purge")

    def __init__(self, name: str, chance: random.Random, subjects: int = 7, **config: Any) -> None:
        super().__init__(name, chance)
        self.config = {"storage": "file"} | config
        self.subjects = [f"{name}.{number}" for number in range(subjects)]
        self.held: dict[int, Message] = {}
        self.gone: dict[int, Message] = {}
        self.doubtful: set[int] = set()
        self.sent: dict[bytes, str] = {}
        self.last = 0
        self._number = 0

    def prepare(self, caller: Caller) -> None:
        create(caller, self.name, **self.config)

    def step(self, caller: Caller) -> None:
        if sum(len(payload) for _, payload in self.held.values()) > ENOUGH:
            return self.purge(caller, "keep")
        act = self.chance.choice((self.publish, self.publish, self.publish, self.delete, self.purge))
        return act(caller)

    def publish(self, caller: Caller) -> None:
        asked = {}
        for _ in range(self.chance.choice((1, 5, 30))):
            self._number += 1
            payload = b"%s %d " % (self.name.encode(), self._number)
            payload += self.chance.randbytes(self.chance.choice(SIZES))
            subject = self.chance.choice(self.subjects)
            self.sent[payload] = subject
            self.about("publish")
            asked[caller.ask(subject, payload)] = payload
        while asked:
            message = caller.next()
            if message.subject not in asked:
                continue
            payload = asked.pop(message.subject)
            answer = message.json
            assert "error" not in answer, answer
            assert answer["seq"] > self.last, f"{self.name}: {answer['seq']} was given out twice"
            self.last = answer["seq"]
            self.held[self.last] = self.sent.pop(payload), payload

    def delete(self, caller: Caller) -> None:
        for _ in range(self.chance.choice((1, 20))):
            if not self.held:
                return
            seq = self.chance.choice(list(self.held))
            self.doubtful = {seq}
            self.about("delete")
            no_erase = self.chance.random() < 0.7
            api(caller, f"STREAM.MSG.DELETE.{self.name}", {"seq": seq, "no_erase": no_erase})
            self._forget()

    def purge(self, caller: Caller, how: str = "") -> None:
        how = how or self.chance.choice(("seq", "keep", "filter", "filter", "all"))
        seqs = sorted(self.held)
        request: dict[str, Any] = {}
        if how == "seq" and seqs:
            request["seq"] = self.chance.choice(seqs)
            seqs = [seq for seq in seqs if seq < request["seq"]]
        elif how == "keep":
            request["keep"] = self.chance.randrange(1, 50)
            seqs = seqs[: -request["keep"]]
        elif how == "filter":
            request["filter"] = self.chance.choice(self.subjects)
            seqs = [seq for seq in seqs if self.held[seq][0] == request["filter"]]
        self.doubtful = set(seqs)
        self.about("purge")
        answer = api(caller, f"STREAM.PURGE.{self.name}", request)
        assert answer["purged"] == len(seqs), (self.name, request, answer, len(seqs))
        self._forget()

    def _forget(self) -> None:
        for seq in self.doubtful:
            self.gone[seq] = self.held.pop(seq)
        self.doubtful = set()

    def check(self, caller: Caller, synced: bool) -> int:
        found = self.read(caller)
        self.check_found(found, synced)
        self.check_order(found)
        state = info(caller, self.name)["state"]
        assert state["messages"] == len(found), self.name
        assert state["last_seq"] >= self.last, self.name
        self.adopt(found, state["last_seq"])
        return len(found)

    def read(self, caller: Caller) -> dict[int, Message]:
        return stored(caller, self.name)

    def check_found(self, found: dict[int, Message], synced: bool) -> None:
        missing = [
            seq for seq, each in self.held.items() if found.get(seq) != each and seq not in self.doubtful
        ]
        assert not missing, f"{self.name}: {len(missing)} acknowledged messages are gone: {missing[:10]}"
        for seq, (subject, payload) in found.items():
            if seq in self.held:
                assert self.held[seq] == (subject, payload), (self.name, seq)
            elif seq in self.gone:
                assert synced, f"{self.name}: {seq} was removed, and is back"
                assert self.gone[seq] == (subject, payload), (self.name, seq)
            else:
                assert self.sent.get(payload) == subject, f"{self.name}: {seq} is not what was published"

    def check_order(self, found: dict[int, Message]) -> None:
        numbers = [int(found[seq][1].split(b" ", 2)[1]) for seq in sorted(found)]
        assert numbers == sorted(set(numbers)), f"{self.name}: not in the order they were published in"

    def adopt(self, found: dict[int, Message], last: int) -> None:
        """Take the messages found as those that must be there from now on."""
        self.held = found
        self.gone = {seq: each for seq, each in self.gone.items() if seq not in found}
        self.doubtful = set()
        self.sent = {}
        self.last = last


class Limited(Keeper):
    """Publishes to a stream that removes its oldest messages, by number or bytes, and no others."""

    what = ("publish",)

    def step(self, caller: Caller) -> None:
        self.publish(caller)

    def check_found(self, found: dict[int, Message], synced: bool) -> None:
        first = min(found, default=self.last + 1)
        assert sorted(found) == list(range(first, first + len(found))), f"{self.name}: there are gaps"
        self.held = {seq: each for seq, each in self.held.items() if seq >= first}
        super().check_found(found, synced)
        if "max_msgs" in self.config:
            last = max(found, default=0)
            assert len(found) == min(self.config["max_msgs"], last), self.name
        elif first > 1:
            size = sum(len(subject) + len(payload) + 30 for subject, payload in found.values())
            assert size <= self.config["max_bytes"], self.name
            assert size > self.config["max_bytes"] - 4096, f"{self.name}: more was dropped than needed"


class Latest(Keeper):
    """Publishes to a stream that keeps the last messages of each subject, as key-value stores do."""

    what = ("publish",)

    def step(self, caller: Caller) -> None:
        self.publish(caller)

    def check_found(self, found: dict[int, Message], synced: bool) -> None:
        most = self.config["max_msgs_per_subject"]
        for subject in self.subjects:
            there = [seq for seq in found if found[seq][0] == subject]
            known = [seq for seq in self.held if self.held[seq][0] == subject]
            newest = sorted({*there, *known})[-most:]
            assert sorted(there) == newest, (subject, sorted(there), newest)
        self.held = {seq: each for seq, each in self.held.items() if seq in found}
        super().check_found(found, synced)


class Worker(Keeper):
    """Publishes to a stream with a consumer, and acknowledges some of its messages."""

    what = ("publish", "next", "ack", "nak")
    consumer = "D"

    def __init__(self, name: str, chance: random.Random, **config: Any) -> None:
        super().__init__(name, chance, **config)
        self.confirmed: set[int] = set()
        self.tried: set[int] = set()
        self.delivered: set[int] = set()
        self.written = 0

    @property
    def is_queue(self) -> bool:
        return self.config.get("retention") == "workqueue"

    def prepare(self, caller: Caller) -> None:
        super().prepare(caller)
        wanted = {"durable_name": self.consumer, "ack_policy": "explicit", "ack_wait": 500_000_000}
        body = {"stream_name": self.name, "config": wanted | {"max_ack_pending": 10_000}}
        api(caller, f"CONSUMER.CREATE.{self.name}.{self.consumer}", body)

    def step(self, caller: Caller) -> None:
        self.chance.choice((self.publish, self.work, self.work))(caller)

    def fetch(self, caller: Caller, most: int, **how: Any) -> list[Any]:
        """Fetch up to `most` messages that are there now or, with `expires` (ns), come until then."""
        self.about("next")
        body = json.dumps({"batch": most} | (how or {"no_wait": True})).encode()
        inbox = caller.ask(f"$JS.API.CONSUMER.MSG.NEXT.{self.name}.{self.consumer}", body)
        found: list[Any] = []
        while len(found) < most:
            message = caller.next()
            if message.reply.startswith("$JS.ACK."):
                found.append(message)
                self.delivered.add(sequence(message))
            elif message.subject == inbox and message.header:
                break
        return found

    def work(self, caller: Caller) -> None:
        for message in self.fetch(caller, self.chance.choice((1, 10, 40))):
            seq = sequence(message)
            how = self.chance.random()
            if how < 0.8:
                self.tried.add(seq)
                self.about("ack")
                assert caller.request(message.reply, b"+ACK").payload == b""
                self.confirmed.add(seq)
            elif how < 0.9:
                self.about("nak")
                caller.publish(message.reply, b"-NAK")

    def read(self, caller: Caller) -> dict[int, Message]:
        if not self.is_queue:
            return super().read(caller)
        found: dict[int, Message] = {}
        while True:  # a work queue allows no other consumer to read with
            request = {"seq": max(found, default=0) + 1, "next_by_subj": f"{self.name}.>"}
            answer = caller.request(f"$JS.API.STREAM.MSG.GET.{self.name}", request).json
            if "error" in answer:
                assert answer["error"]["err_code"] == 10037, answer
                return found
            message = answer["message"]
            found[message["seq"]] = message["subject"], b64decode(message.get("data", ""))

    def killed(self, home: Home) -> None:
        """Read the consumer's ack floor from its file: the server must not forget that much."""
        from gnats.store.format.codec import decode_consumer

        path = home.stream(self.name) / "obs" / self.consumer / "o.dat"
        self.written = 0
        if not home.is_encrypted and path.exists():
            _, (_, self.written), _, _ = decode_consumer(path.read_bytes())

    def check_found(self, found: dict[int, Message], synced: bool) -> None:
        if not self.is_queue:
            return super().check_found(found, synced)
        back = self.confirmed & found.keys()
        assert synced or not back, f"{self.name}: {len(back)} were acknowledged, and are back: {min(back)}"
        self.confirmed -= back
        self.doubtful = self.tried & self.held.keys()
        super().check_found(found, synced)
        return None

    def check(self, caller: Caller, synced: bool) -> int:
        told = api(caller, f"CONSUMER.INFO.{self.name}.{self.consumer}")
        floor = told["ack_floor"]["stream_seq"]
        assert floor >= self.written, f"{self.name}: the ack floor is {floor}, its file said {self.written}"
        never = set(range(1, floor + 1)) & self.held.keys() - self.tried
        assert not never, f"{self.name}: the ack floor is {floor}, but {min(never)} was not acknowledged"
        assert told["delivered"]["stream_seq"] >= floor
        return super().check(caller, synced)

    def finish(self, caller: Caller) -> None:
        """Acknowledge until nothing is pending; every stored message must have been delivered."""
        while True:
            for message in self.fetch(caller, 500, expires=200_000_000):
                caller.publish(message.reply, b"+ACK")
            caller.fence()
            told = api(caller, f"CONSUMER.INFO.{self.name}.{self.consumer}")
            if not told["num_pending"] and not told["num_ack_pending"]:
                break
        missed = self.held.keys() - self.delivered
        assert not missed, f"{self.name}: {len(missed)} were never delivered: {sorted(missed)[:10]}"
        if self.is_queue:
            assert info(caller, self.name)["state"]["messages"] == 0


def sequence(message: Any) -> int:
    """Return the stream sequence of a delivered message."""
    return int(message.reply.split(".")[5])
