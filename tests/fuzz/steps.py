"""Sequences of steps: plain lists, so that they can be saved, shortened and played again.

["connect", C, USER]                      connection C is opened anew
["close", C] ["reset", C] ["mute", C]     close C; close C by a reset; stop reading C
["send", C, TEXT]                         operations without payload
["publish", C, SUBJECT, REPLY, HEADER, PAYLOAD]
                                          HEADER: pairs or None; PAYLOAD: text, or a number of bytes
["request", C, SUBJECT, HEADER, BODY]     the answer goes to an inbox of C; BODY: text, a number, or an object
["wait", C]                               wait for the answer to the last request of C, a second at most
["ack", C, N, PAYLOAD]                    acknowledge one of the messages that C has received
["pause", SECONDS] ["reload", N] ["restart"] ["kill"]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gnats.go.text import SECOND

from . import documents
from .documents import CONSUMERS, STREAMS, prefix, subject
from .draw import Draw

Step = list[Any]
API = "$JS.API."
SUBJECTS = ("core.a", "core.b", "core.a.b", "exp.x", "svc.a", "svc.b", "map.x", "push.a", "again.a")
INTERESTS = (
    *("core.*", "core.>", "core.a", "from.exp.>", "exp.>", "svc.a", "svc.>", "mapped.>", "push.>", "again.>"),
    *("$JS.EVENT.>", "_INBOX.x.*", "s0.>", ">", "push.C0", "*.*"),
)
USERS = (*["a"] * 12, "b", "b", "b", "c", "sys")
ACKS = (
    *("+ACK", "+ACK", "", "-NAK", "+WPI", "+TERM", "+NXT", "+TERM because", "+NXT 5", "-NAK {}", "+bad"),
    *('-NAK {"delay": 1000000000}', '-NAK {"delay": 9223372036854775807}', '-NAK {"delay": -1}'),
    *(
        '+NXT {"batch": 4294967296}',
        '+NXT {"batch": 3, "no_wait": true}',
        '+NXT {"expires": 9223372036854775807}',
    ),
)


class Maker:
    """Makes steps of connections 0 to `connections` - 1; `alone`: only comparable ones (see Draw)."""

    def __init__(self, draw: Draw, connections: int, *, alone: bool = False) -> None:
        self.draw = draw
        self.connections = connections
        self.alone = draw.alone = alone
        self._sids = 10
        self._made: dict[str, list[str]] = {}  # names of pull consumers by stream
        self._kinds: list[tuple[float, Callable[[int], list[Step]]]] = [
            (10, self.publish),
            (12, self.store),
            (6, self.interest),
            (2, self.no_interest),
            (6, self.stream),
            (8, self.consumer),
            (10, self.pull),
            (10, self.ack),
            (5, self.direct),
            (5, self.change),
            (5, self.look),
            (3, self.atomic_batch),
            (3, self.fast_batch),
            (3, self.schedule),
            (4, self.core_request),
            (2, self.pin),
        ]
        if not alone:
            self._kinds += [
                (2, self.connection),
                (2, self.burst),
                (2, self.system),
                (1, self.forged_ack),
                (1, self.pause),
                (0.5, self.server),
            ]

    def sequence(self, length: int) -> list[Step]:
        """Make about `length` steps, after those that connect and make the first streams."""
        draw = self.draw
        steps: list[Step] = []
        for c in range(self.connections):
            steps.append(["connect", c, "a" if c == 0 or self.alone else draw.choice(USERS)])
        for name in draw.sample(STREAMS, draw.randint(1, 3)):
            steps.append(
                self.request(0, f"STREAM.CREATE.{name}", documents.stream(draw, name, draw.one(0, 0, 1)))
            )
            self._made[name] = []
            while draw.maybe(0.6):
                steps += self.consumer(0, name)
        while len(steps) < length:
            steps += draw.of(self._kinds)(draw.randrange(self.connections))
        if self.alone:
            return steps
        waiting: list[Step] = []
        for step in steps:
            waiting.append(step)
            if step[0] == "request" and ".CREATE." in step[2] and draw.maybe(0.85):
                waiting.append(["wait", step[1]])
        if draw.maybe(0.3):
            waiting.append(["pause", 0.7])  # so that many waits come due
        return waiting

    def of(self) -> str:
        """Return a stream's name, of an existing stream where there is one."""
        made = sorted(self._made)
        return self.draw.choice(made) if made and self.draw.maybe(0.93) else self.draw.choice(STREAMS)

    def pulling(self) -> str:
        """Return "STREAM.CONSUMER" of a pull consumer."""
        of = self.of()
        made = self._made.get(of)
        return f"{of}.{self.draw.choice(made if made and self.draw.maybe(0.93) else CONSUMERS)}"

    def request(self, c: int, verb: str, body: object = "") -> Step:
        return ["request", c, API + verb, None, body]

    def size(self) -> int:
        """Return a payload's size that never exceeds max_payload where servers are compared.

        Too large a message ends the connection, and its -ERR is sometimes lost.
        """
        return min(self.draw.size(), 1000_000) if self.alone else self.draw.size()

    # -- core ------------------------------------------------------------------------------------------------

    def publish(self, c: int) -> list[Step]:
        draw = self.draw
        reply = draw.one("", "", "core.b", "_INBOX.x.1")
        header = documents.headers(draw) if draw.maybe(0.3) else None
        return [["publish", c, draw.choice(SUBJECTS), reply, header, self.size()]]

    def burst(self, c: int) -> list[Step]:
        """Publish many messages of one size back to back."""
        draw = self.draw
        size, to = draw.size(), draw.choice(SUBJECTS)
        header = [["X", "y" * draw.near_power(8)]] if draw.maybe(0.4) else None
        return [["publish", c, to, "", header, size] for _ in range(draw.randint(2, 12))]

    def interest(self, c: int) -> list[Step]:
        self._sids += 1
        draw = self.draw
        sid = draw.one(str(self._sids), str(self._sids), "1", "s" * 60)
        queue = draw.one("", "", "", "q", "q2") if not self.alone else ""
        of = [each for each in INTERESTS if not self.alone or each not in ("$JS.EVENT.>", ">", "*.*")]
        text = f"SUB {draw.choice(of)} {queue} {sid}\r\n"
        if draw.maybe(0.2):
            text += f"UNSUB {sid} {draw.one(1, 2, 5, 4294967295, 4294967296)}\r\n"
        return [["send", c, text]]

    def no_interest(self, c: int) -> list[Step]:
        return [["send", c, f"UNSUB {self.draw.one('1', str(self.draw.randint(10, self._sids)))}\r\n"]]

    def core_request(self, c: int) -> list[Step]:
        draw = self.draw
        to = draw.one(
            "svc.a", "svc.b", "core.a", "nobody.there", "$SYS.REQ.USER.INFO" if not self.alone else "core.b"
        )
        header = documents.headers(draw) if draw.maybe(0.3) else None
        return [["request", c, to, header, self.size()]]

    def connection(self, c: int) -> list[Step]:
        draw = self.draw
        what = draw.one("close", "reset", "mute", "connect", "connect")
        steps: list[Step] = [[what, c]] if what != "connect" else []
        return [*steps, ["connect", c, draw.choice(USERS)]] if what != "mute" else steps

    def system(self, c: int) -> list[Step]:
        draw = self.draw
        verb = draw.one(
            "VARZ", "CONNZ", "SUBSZ", "JSZ", "ACCOUNTZ", "HEALTHZ", "STATSZ", "IDZ", "ROUTEZ", "PROFILEZ"
        )
        body = {
            "VARZ": {},
            "CONNZ": {"limit": draw.number(), "offset": draw.number(), "subscriptions": True},
            "SUBSZ": {
                "limit": draw.number(),
                "offset": draw.number(),
                "subscriptions": True,
                "test": "core.a",
            },
            "JSZ": {
                "accounts": True,
                "streams": True,
                "consumer": True,
                "config": True,
                "limit": draw.number(),
            },
            "ACCOUNTZ": {"account": draw.one("A", "B", "none")},
            "HEALTHZ": {"js-enabled-only": True, "stream": "S0", "account": "A", "consumer": "C0"},
        }.get(verb, {})
        return [["request", c, f"$SYS.REQ.SERVER.PING.{verb}", None, body]]

    def pause(self, c: int) -> list[Step]:
        return [["pause", self.draw.one(0.01, 0.1, 1.1)]]

    def server(self, c: int) -> list[Step]:
        return [self.draw.one(["reload", 0], ["reload", 1], ["reload", 2], ["restart"], ["kill"])]

    # -- JetStream -------------------------------------------------------------------------------------------

    def store(self, c: int) -> list[Step]:
        draw = self.draw
        header = documents.headers(draw) if draw.maybe(0.4) else None
        payload = draw.of([(6, draw.small()), (1, self.size()), (1, str(draw.number()))])
        to = subject(draw, self.of())
        if draw.maybe(0.5):
            return [["request", c, to, header, payload]]
        return [["publish", c, to, "", header, payload] for _ in range(draw.randint(1, 5))]

    def stream(self, c: int) -> list[Step]:
        draw = self.draw
        verb = draw.one("CREATE", "CREATE", "UPDATE", "UPDATE", "DELETE")
        if verb == "DELETE":
            name = self.of()
            self._made.pop(name, None)
            return [self.request(c, f"STREAM.DELETE.{name}")]
        name = draw.choice(STREAMS) if verb == "CREATE" else self.of()
        self._made.setdefault(name, [])
        return [self.request(c, f"STREAM.{verb}.{name}", documents.stream(draw, name, draw.one(0, 1, 2)))]

    def consumer(self, c: int, of: str = "") -> list[Step]:
        draw = self.draw
        of, name = of or self.of(), draw.choice(CONSUMERS)
        config = documents.consumer(draw, of, name, draw.one(0, 0, 1, 1, 2))
        body = {"stream_name": of, "config": config, "action": draw.one("", "", "", "create", "update")}
        if "deliver_subject" not in config:
            self._made.setdefault(of, []).append(name)
        how = draw.random()
        if how < 0.1:
            return [self.request(c, f"CONSUMER.DELETE.{of}.{name}")]
        if how < 0.2 and "durable_name" in config:
            return [self.request(c, f"CONSUMER.DURABLE.CREATE.{of}.{name}", body)]
        if how < 0.3 and "filter_subject" in config:
            return [self.request(c, f"CONSUMER.CREATE.{of}.{name}.{config['filter_subject']}", body)]
        return [self.request(c, f"CONSUMER.CREATE.{of}.{name}", body)]

    def pull(self, c: int) -> list[Step]:
        draw = self.draw
        body: object = documents.pull(draw)
        if draw.maybe(0.15):
            body = draw.one("", "1", "5", "{}", "4294967296", "x")
        return [self.request(c, f"CONSUMER.MSG.NEXT.{self.pulling()}", body)]

    def ack(self, c: int) -> list[Step]:
        return [["ack", c, self.draw.small(), self.draw.choice(ACKS)]]

    def forged_ack(self, c: int) -> list[Step]:
        draw = self.draw
        numbers = ".".join(str(draw.number(0.7)) for _ in range(5))
        to = f"$JS.ACK.{self.pulling()}.{numbers}"
        return [["request", c, to, None, draw.choice(ACKS)]]

    def direct(self, c: int) -> list[Step]:
        draw = self.draw
        of = self.of()
        if draw.maybe(0.4):
            return [self.request(c, f"DIRECT.GET.{of}.{subject(draw, of)}")]
        return [
            self.request(c, f"{draw.one('DIRECT.GET', 'STREAM.MSG.GET')}.{of}", documents.direct_get(draw))
        ]

    def change(self, c: int) -> list[Step]:
        draw = self.draw
        of = self.of()
        if draw.maybe(0.5):
            return [self.request(c, f"STREAM.PURGE.{of}", documents.purge(draw))]
        return [
            self.request(c, f"STREAM.MSG.DELETE.{of}", {"seq": draw.number(0.2), "no_erase": draw.maybe(0.5)})
        ]

    def look(self, c: int) -> list[Step]:
        draw = self.draw
        of = self.of()
        listed = {"offset": draw.number(), "subjects_filter": ">", "deleted_details": draw.maybe(0.5)}
        return [
            draw.one(
                self.request(c, f"STREAM.INFO.{of}", listed),
                self.request(c, f"CONSUMER.INFO.{self.pulling()}"),
                self.request(c, "STREAM.NAMES", {"offset": draw.number(), "subject": "s0.a"}),
                self.request(c, "STREAM.LIST", {"offset": draw.small()}),
                self.request(c, f"CONSUMER.NAMES.{of}", {"offset": draw.number()}),
                self.request(c, f"CONSUMER.LIST.{of}", {"offset": draw.small()}),
            )
        ]

    def pin(self, c: int) -> list[Step]:
        draw = self.draw
        at = self.pulling()
        pause = {"pause_until": documents.time(draw)}
        if self.alone:
            pause = {"pause_until": draw.one("2020-01-01T00:00:00Z", "2262-01-01T00:00:00Z")}
        return [
            draw.one(
                self.request(c, f"CONSUMER.UNPIN.{at}", {"group": "g"}),
                self.request(c, f"CONSUMER.PAUSE.{at}", pause),
                self.request(c, f"CONSUMER.RESET.{at}", {"seq": draw.number()}),
            )
        ]

    def atomic_batch(self, c: int) -> list[Step]:
        draw = self.draw
        of, batch = self.of(), draw.one("b1", "b2", "b" * 64, "b" * 65)
        steps: list[Step] = []
        count = draw.randint(1, 5)
        for n in range(1, count + 1):
            header = [
                ["Nats-Batch-Id", batch],
                ["Nats-Batch-Sequence", str(n if draw.maybe(0.95) else draw.number())],
            ]
            if n == count and draw.maybe(0.8):
                header.append(["Nats-Batch-Commit", draw.one("1", "1", "eob", "x")])
            if draw.maybe(0.2):
                header += documents.headers(draw)
            steps.append(["request", c, subject(draw, of), header, draw.small()])
        return steps

    def fast_batch(self, c: int) -> list[Step]:
        """Publish the messages of a fast batch (ADR-50)."""
        draw = self.draw
        of, name = self.of(), draw.one("f1", "f2")
        count = draw.randint(1, 6)
        steps: list[Step] = []
        for n in range(1, count + 1):
            operation = 0 if n == 1 else draw.one(2, 3) if n == count else 1
            if draw.maybe(0.05):
                operation = draw.number()
            seq = n if draw.maybe(0.95) else draw.number()
            reply = f"_INBOX.x.{name}.{draw.one(1, 10, 65535)}.{draw.one('ok', 'fail')}.{seq}.{operation}.$FI"
            steps.append(["publish", c, subject(draw, of), reply, None, draw.small()])
        return steps

    def schedule(self, c: int) -> list[Step]:
        draw = self.draw
        of = self.of()
        return [
            ["request", c, f"{prefix(of)}.a", documents.schedule(draw, of, later=self.alone), draw.small()]
        ]


__all__ = ["API", "SECOND", "Maker", "Step"]
