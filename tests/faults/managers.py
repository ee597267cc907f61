"""Actors that make and delete streams and consumers, take snapshots and restore them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from support import backups
from support.caller import Caller
from support.faults import Home, create, info, stored

from .actors import Actor, Message, api

MOST = 6
"""Streams of one client."""


@dataclass
class Known:
    """A stream as its client knows it."""

    config: dict[str, Any]
    sure: bool = False
    """The server has acknowledged that the stream exists."""
    going: bool = False
    """The stream may have been deleted."""
    messages: dict[int, Message] = field(default_factory=dict)
    sent: set[bytes] = field(default_factory=set)
    consumers: dict[str, str] = field(default_factory=dict)
    """The state of each consumer by name: "there", "gone" or "doubtful"."""
    descriptions: list[str] = field(default_factory=list)
    """The last description that the server confirmed, then one that was requested since."""


class Manager(Actor):
    """Makes, updates and deletes streams and consumers."""

    what = ("create", "delete", "update", "consumer", "unconsumer")

    def __init__(self, name: str, chance: random.Random) -> None:
        super().__init__(name, chance)
        self.streams: dict[str, Known] = {}
        self.gone: set[str] = set()
        self._number = 0

    def step(self, caller: Caller) -> None:
        if not self.streams:
            return self.make(caller)
        act = self.chance.choice((self.make, self.remove, self.update, self.consumer, self.publish))
        return act(caller)

    def make(self, caller: Caller) -> None:
        if len(self.streams) == MOST:
            return
        self._number += 1
        name = f"{self.name}{self._number}"
        config = {"storage": "file", "compression": self.chance.choice(("none", "s2"))}
        if self.chance.random() < 0.3:
            config["retention"] = "interest"
        config["description"] = "first"
        known = self.streams[name] = Known(config, descriptions=["first"])
        self.about("create")
        create(caller, name, **config)
        known.sure = True

    def remove(self, caller: Caller) -> None:
        name = self.chance.choice(list(self.streams))
        self.streams[name].going = True
        self.about("delete")
        assert api(caller, f"STREAM.DELETE.{name}")["success"]
        del self.streams[name]
        self.gone.add(name)

    def update(self, caller: Caller) -> None:
        name = self.chance.choice(list(self.streams))
        known = self.streams[name]
        text = f"{self.chance.getrandbits(32):x}"
        known.descriptions = [known.descriptions[0], text]
        body = {"name": name, "subjects": [f"{name}.>"]} | known.config | {"description": text}
        self.about("update")
        api(caller, f"STREAM.UPDATE.{name}", body)
        known.descriptions = [text]

    def consumer(self, caller: Caller) -> None:
        name = self.chance.choice(list(self.streams))
        known = self.streams[name]
        durable = self.chance.choice(("A", "B"))
        was = known.consumers.get(durable)
        known.consumers[durable] = "doubtful"
        if was == "there":
            self.about("unconsumer")
            api(caller, f"CONSUMER.DELETE.{name}.{durable}")
            known.consumers[durable] = "gone"
            return
        body = {"stream_name": name, "config": {"durable_name": durable, "ack_policy": "explicit"}}
        self.about("consumer")
        api(caller, f"CONSUMER.CREATE.{name}.{durable}", body)
        known.consumers[durable] = "there"

    def publish(self, caller: Caller) -> None:
        name = self.chance.choice(list(self.streams))
        known = self.streams[name]
        if known.config.get("retention") == "interest":
            return
        payload = self.chance.randbytes(20)
        known.sent = {payload}
        answer = caller.request(f"{name}.x", payload).json
        known.messages[answer["seq"]] = f"{name}.x", payload
        known.sent = set()

    def check(self, caller: Caller, synced: bool) -> int:
        names = api(caller, "STREAM.NAMES")["streams"] or []
        names = {name for name in names if name.startswith(self.name)}
        back = names & self.gone
        assert not back, f"streams that were deleted are back: {back}"
        assert names <= self.streams.keys()
        count = 0
        for name, known in list(self.streams.items()):
            if name not in names:
                assert known.going or not known.sure, f"stream {name} is gone"
                del self.streams[name]
                continue
            known.sure, known.going = True, False
            count += self.check_stream(caller, name, known, synced)
        return count

    def check_stream(self, caller: Caller, name: str, known: Known, synced: bool) -> int:
        told = info(caller, name)
        assert told["config"]["description"] in known.descriptions, (name, told["config"], known)
        known.descriptions = [told["config"]["description"]]
        for other in ("compression", "storage"):
            assert told["config"][other] == known.config[other]
        there = set(api(caller, f"CONSUMER.NAMES.{name}")["consumers"] or [])
        assert there <= known.consumers.keys(), (name, there)
        for durable, state in known.consumers.items():
            assert durable in there or state != "there", f"consumer {name} > {durable} is gone"
            back = durable in there and state == "gone"
            assert synced or not back, f"consumer {name} > {durable} is back"
            known.consumers[durable] = "there" if durable in there else "gone"
        if known.config.get("retention") == "interest":
            return 0
        found = stored(caller, name)
        for seq, each in found.items():
            assert known.messages.get(seq) == each or each[1] in known.sent, (name, seq)
        assert known.messages.keys() <= found.keys(), f"{name}: messages are gone"
        known.messages, known.sent = found, set()
        return len(found)


class Restorer(Actor):
    """Takes snapshots of a stream, and restores them as other streams."""

    what = ("snapshot", "restore", "chunk", "delete")
    count = 60

    def __init__(self, name: str, chance: random.Random) -> None:
        super().__init__(name, chance)
        self.messages: dict[int, Message] = {}
        self.config: dict[str, Any] = {}
        self.data = b""
        self.asked: set[str] = set()
        self.sure: set[str] = set()
        self._number = 0

    def prepare(self, caller: Caller) -> None:
        create(caller, self.name, storage="file", compression=self.chance.choice(("none", "s2")))
        for number in range(self.count):
            payload = b"%d " % number + self.chance.randbytes(400)
            assert caller.request(f"{self.name}.{number % 3}", payload).json["seq"] == number + 1
        body = {"stream_name": self.name, "config": {"durable_name": "D", "ack_policy": "explicit"}}
        api(caller, f"CONSUMER.CREATE.{self.name}.D", body)
        self.messages = stored(caller, self.name)

    def step(self, caller: Caller) -> None:
        if not self.data or self.chance.random() < 0.3:
            self.about("snapshot")
            taken = backups.take(caller, self.name, chunk_size=8192)
            assert taken.status in (b"", b"NATS/1.0 204\r\n\r\n"), taken.status
            self.data, self.config = taken.data, taken.answer["config"]
        elif self.sure and self.chance.random() < 0.4:
            name = self.chance.choice(sorted(self.sure))
            self.sure.discard(name)
            self.about("delete")
            api(caller, f"STREAM.DELETE.{name}")
            self.asked.discard(name)
        else:
            self.restore(caller)

    def restore(self, caller: Caller) -> None:
        self._number += 1
        name = f"{self.name}r{self._number}"
        self.asked.add(name)
        self.about("restore")
        answer = backups.begin(caller, name, self.config | {"name": name, "subjects": [f"{name}.>"]})
        assert "error" not in answer, answer
        for chunk in (*backups.pieces(self.data, 8192), b""):
            self.about("chunk")
            message = caller.request(answer["deliver_subject"], chunk)
            if message.payload:
                assert "error" not in message.json, message.json
        self.sure.add(name)

    def killed(self, home: Home) -> None:
        self.data = b"" if self.chance.random() < 0.5 else self.data

    def check(self, caller: Caller, synced: bool) -> int:
        assert stored(caller, self.name) == self.messages, self.name
        names = api(caller, "STREAM.NAMES")["streams"]
        there = {name for name in names if name.startswith(f"{self.name}r")}
        assert self.sure <= there, f"restored streams are gone: {self.sure - there}"
        assert there <= self.asked, there
        for name in there:
            assert stored(caller, name) == self.messages, name
            consumers = api(caller, f"CONSUMER.NAMES.{name}")["consumers"]
            assert consumers == ["D"], (name, consumers)
        self.sure = set(there)
        self.asked = set(there)
        return len(self.messages) * (1 + len(there))
