"""Uses of a server that reach the allocations of its data plane; test_allocations plays them."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Callable

from support.wire import header

from .stage import Stage

SYSTEM = """
accounts {
  A {
    jetstream: enabled
    users: [
      {user: a, password: p}
      {user: limited, password: p, permissions: {
        publish: {allow: ["out.>", "m.>"], deny: ["out.no"]}
        subscribe: {allow: ["in.>", "_INBOX.>"], deny: ["in.no.>"]}
        allow_responses: true}}
    ]
    mappings {
      "map.*": [{destination: "mapped.{{wildcard(1)}}.MORE", weight: 100%}]
      "svc.mapped": [{destination: "svc.MORE", weight: 100%}]
    }
    exports: [{stream: "st.>"}, {service: "svc.>", latency: "lat.svc"}, {service: "many.>", response: stream}]
    imports: [{stream: {account: E, subject: "ev.*"}, to: "got.$1.LONG"}]
  }
  E {
    users: [{user: e, password: p}]
    exports: [{stream: "ev.>"}]
    imports: [
      {service: {account: A, subject: "svc.*"}, to: "do.*", share: true}
      {service: {account: A, subject: "many.>"}}
      {stream: {account: A, subject: "st.>"}, prefix: "LONG"}
    ]
  }
  SYS { users: [{user: sys, password: p}] }
}
system_account: SYS
""".replace("MORE", "x." * 300 + "end").replace("LONG", "long" * 70)
TRACED = header("Nats-Trace-Dest: traces", "A: b")


def storing(stage: Stage) -> None:
    """Streams in files and in memory: limits, duplicates, TTLs, removals, their state."""
    a = stage.peer()
    for storage, suffix in (("file", "K"), ("memory", "M")):
        name = stage.stream(
            a,
            f"{stage.name}{suffix}",
            storage=storage,
            allow_msg_ttl=True,
            allow_rollup_hdrs=True,
            allow_direct=True,
            subject_delete_marker_ttl=1_000_000_000_000,
            duplicate_window=100_000_000_000,
        )
        a.store(name, [(f"{name}.{n % 7}", b"x" * n, b"") for n in range(200)])
        a.store(
            name,
            [
                (f"{name}.id", b"one", header(f"Nats-Msg-Id: {'i' * 300}{n}", "Nats-TTL: 5m"))
                for n in [*range(150), *range(3)]
            ],
        )
        for line in (
            "Nats-Expected-Last-Sequence: 7",
            "Nats-Expected-Last-Msg-Id: x",
            "Nats-Rollup: nonsense",
        ):
            a.store(name, [(f"{name}.x", b"", header(line))])
        a.store(name, [(f"{name}.{'long.' * 60}end", b"", header("Nats-TTL: x"))])


def removing(stage: Stage) -> None:
    a = stage.peer()
    for storage in ("file", "memory"):
        name = stage.stream(a, f"{stage.name}{storage}", storage=storage, max_msgs_per_subject=50)
        a.api(f"CONSUMER.CREATE.{name}.C", stream_name=name, config={"name": "C", "ack_policy": "explicit"})
        a.ask_all([(f"{name}.{n % 7}", b"x" * 30, b"") for n in range(400)])
        for seq in (50, 60, 70, 80):
            a.api(f"STREAM.MSG.DELETE.{name}", seq=seq, no_erase=seq != 60)
        a.api(f"STREAM.PURGE.{name}", filter=f"{name}.3", keep=2)
        a.api(f"STREAM.PURGE.{name}", seq=120)
        a.api(
            f"STREAM.UPDATE.{name}",
            name=name,
            subjects=[f"{name}.>"],
            storage=storage,
            max_msgs_per_subject=2,
        )
        a.api(f"STREAM.INFO.{name}", deleted_details=True, subjects_filter=">")
        a.api(f"STREAM.DELETE.{name}")


def consuming(stage: Stage) -> None:
    """Push and pull consumers, with acknowledgements of all kinds."""
    a = stage.peer()
    name = stage.stream(a, storage="file")
    deliver = f"to.{name}"
    a.subscribe(deliver)
    create = f"CONSUMER.CREATE.{name}"
    a.api(
        f"{create}.PUSH",
        stream_name=name,
        config={
            "name": "PUSH",
            "durable_name": "PUSH",
            "deliver_subject": deliver,
            "ack_policy": "explicit",
            "ack_wait": 300_000_000,
            "flow_control": True,
            "idle_heartbeat": 200_000_000,
        },
    )
    a.api(
        f"{create}.PULL",
        stream_name=name,
        config={
            "name": "PULL",
            "durable_name": "PULL",
            "ack_policy": "explicit",
            "ack_wait": 300_000_000,
            "max_deliver": 4,
        },
    )
    a.store(name, [(f"{name}.{n}", b"x" * 500, b"") for n in range(100)])
    seen: set[str] = set()

    def acknowledged() -> bool:
        for message in a.messages:
            if message.subject == deliver and message.status.startswith("100") and message.reply:
                a.publish(message.reply)
            if message.reply.startswith("$JS.ACK") and f".{name}.PUSH." in message.reply:
                a.publish(message.reply, b"+ACK")
                seen.add(message.reply.split(".")[5])
        a.messages.clear()
        return len(seen) >= 100

    a.wait(acknowledged)
    inbox = f"pulled.{name}"
    a.subscribe(f"{inbox}.*")
    for consumer, settings in (
        ("ALL", {"ack_policy": "all"}),
        ("PIN", {"ack_policy": "explicit", "priority_policy": "pinned_client", "priority_groups": ["g"]}),
    ):
        config = {"name": consumer, "durable_name": consumer} | settings
        a.api(f"{create}.{consumer}", stream_name=name, config=config)
        body = (
            b'{"batch":60,"no_wait":true,"group":"g"}'
            if consumer == "PIN"
            else b'{"batch":60,"no_wait":true}'
        )
        a.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.{consumer}", body, f"{inbox}.{consumer}")
        a.wait(lambda: len(a.messages) >= 60 or any(m.status.startswith("4") for m in a.messages))
        if found := a.take(0, f"{name}."):
            a.ask(found[-1].reply, b"+ACK")
    for verb in (b"+ACK", b"-NAK", b"+WPI", b"+TERM why", b'-NAK {"delay":1000000}', b"+NXT 1"):
        a.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{name}.PULL", b'{"batch":5,"expires":5000000000}', f"{inbox}.one"
        )
        for message in a.take(5, f"{name}."):
            if message.reply and verb == b"+NXT 1":
                a.publish(message.reply, verb)
            elif message.reply:
                a.ask(message.reply, verb)


def gathering(stage: Stage) -> None:
    """Create few and then many consumers; delete some one by one, and the others with their stream."""
    a = stage.peer()
    name = stage.stream(a, storage="memory")

    def consumer(number: int) -> None:
        config = {"name": f"C{number}", "backoff": [10**9, 2 * 10**9], "max_deliver": 3}
        config |= {"ack_policy": "explicit", "filter_subject": f"{name}.{number}"}
        a.api(f"CONSUMER.CREATE.{name}.C{number}.{name}.{number}", stream_name=name, config=config)

    for number in range(4):
        consumer(number)
    a.api(f"CONSUMER.DELETE.{name}.C0")
    for number in range(4, 14):
        consumer(number)
    a.store(name, [(f"{name}.{number}", b"x", b"") for number in range(14)])
    a.api(f"CONSUMER.DELETE.{name}.C9")
    if name in stage.acked and "success" in a.api(f"STREAM.DELETE.{name}"):
        del stage.acked[name]


def ending(stage: Stage) -> None:
    """Delete a stream with a few consumers: as a whole, or not at all."""
    a = stage.peer()
    name = stage.stream(a, storage="memory")
    for number in range(5):
        a.api(
            f"CONSUMER.CREATE.{name}.C{number}",
            stream_name=name,
            config={"name": f"C{number}", "ack_policy": "explicit"},
        )
    answer = a.api(f"STREAM.DELETE.{name}")
    stage.acked.pop(name, None)
    if "success" not in answer:
        a.api(f"STREAM.DELETE.{name}")
    assert a.api(f"STREAM.INFO.{name}")["error"]["err_code"] == 10059


def working(stage: Stage) -> None:
    """Remove all messages of an interest stream with one ack."""
    a = stage.peer()
    name = stage.stream(a, f"{stage.name}W", retention="interest", storage="memory")
    config = {"name": "ALL", "durable_name": "ALL", "ack_policy": "all"}
    a.api(f"CONSUMER.CREATE.{name}.ALL", stream_name=name, config=config)
    a.ask_all([(f"{name}.{n}", b"x", b"") for n in range(40)])
    a.subscribe(f"got.{name}")
    a.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.ALL", b'{"batch":40,"expires":5000000000}', f"got.{name}")
    found = a.take(40, f"{name}.")
    if len(found) == 40 and a.ask(found[-1].reply, b"+ACK") is not None:
        assert a.api(f"STREAM.INFO.{name}")["state"]["messages"] == 0


def counting(stage: Stage) -> None:
    a = stage.peer()
    name = stage.stream(a, allow_msg_counter=True, allow_direct=True)
    other = f"{stage.name}SUM"
    stage.stream(
        a,
        other,
        subjects=[f"sum{name}.x.>"],
        allow_msg_counter=True,
        allow_direct=True,
        sources=[{"name": name, "subject_transforms": [{"src": f"{name}.>", "dest": f"sum{name}.x.>"}]}],
    )
    a.ask_all([(f"{name}.{n % 9}", b"", header(f"Nats-Incr: {10 ** (30 * n)}", "A: b")) for n in range(40)])
    a.wait(lambda: a.api(f"STREAM.INFO.{other}").get("state", {}).get("messages") == 40)


def batching(stage: Stage) -> None:
    a = stage.peer()
    name = stage.stream(
        a, f"{stage.name}K", storage="file", allow_atomic=True, allow_batched=True, allow_direct=True
    )
    for n in range(1, 12):
        lines = [f"Nats-Batch-Id: one{stage.name}", f"Nats-Batch-Sequence: {n}", "A: b"]
        message = (f"{name}.{n}", b"x" * 100, header(*lines, *(["Nats-Batch-Commit: 1"] if n == 11 else [])))
        if n in (1, 11):
            a.ask_all([message])
        else:
            a.publish(message[0], message[1], "", message[2])
    for n in range(1, 4):
        lines = [f"Nats-Batch-Id: two{stage.name}", f"Nats-Batch-Sequence: {n}"]
        end = ["Nats-Batch-Commit: eob"] if n == 3 else []
        a.ask_all([(f"{name}.{n}", b"", header(*lines, *end))][n == 2 :])
        if n == 2:
            a.publish(f"{name}.{n}", b"", "", header(*lines))
    inbox = f"fast.{name}"
    a.subscribe(f"{inbox}.>")
    for n in range(1, 12):
        a.publish(f"{name}.fast", b"y", f"{inbox}.one.3.fail.{n}.{0 if n == 1 else 2 if n == 11 else 1}.$FI")
    a.wait(lambda: any(b'"count"' in m.payload or b"error" in m.payload for m in a.messages))


def scheduling(stage: Stage) -> None:
    a = stage.peer()
    name = stage.stream(
        a,
        f"{stage.name}K",
        storage="file",
        allow_msg_schedules=True,
        allow_msg_ttl=True,
        allow_rollup_hdrs=True,
    )
    target = f"Nats-Schedule-Target: {name}.target"
    a.store(
        name,
        [
            (
                f"{name}.at.{n}",
                b"later",
                header("Nats-Schedule: @at 2124-02-20T00:00:00Z", target, "Nats-Schedule-TTL: 5m"),
            )
            for n in range(40)
        ],
    )
    a.ask(
        f"{name}.now",
        b"now",
        header("Nats-Schedule: @at 2024-02-20T00:00:00Z", target, "Nats-Schedule-TTL: 5m", "A: b"),
    )
    last = f"STREAM.MSG.GET.{name}"
    a.wait(lambda: "message" in a.api(last, last_by_subj=f"{name}.target"))
    a.ask(
        f"{name}.cron",
        b"cron",
        header("Nats-Schedule: 0 0 5 * * *", target, "Nats-Schedule-Time-Zone: Europe/Amsterdam"),
    )


def expiring(stage: Stage) -> None:
    a = stage.peer()
    name = stage.stream(
        a,
        storage="file",
        allow_msg_ttl=True,
        subject_delete_marker_ttl=1_000_000_000_000,
        max_age=200_000_000,
    )
    a.ask_all([(f"{name}.{'s' * 300}{n}", b"", b"") for n in range(5)])
    a.wait(lambda: a.api(f"STREAM.INFO.{name}").get("state", {}).get("first_seq", 0) > 5)
    stage.acked.pop(name, None)
    a.api(f"STREAM.DELETE.{name}")


def sourcing(stage: Stage) -> None:
    a = stage.peer()
    name = stage.stream(a)
    long = "y" * 300
    stage.stream(a, f"{name}MIR", subjects=None, mirror={"name": name})
    stage.stream(
        a,
        f"{name}SRC",
        subjects=None,
        sources=[
            {"name": name, "subject_transforms": [{"src": f"{name}.a.*", "dest": f"{long}.{name}.$1"}]},
        ],
    )
    stage.stream(
        a,
        f"{name}TR",
        subjects=[f"in{name}.>"],
        subject_transform={"src": f"in{name}.>", "dest": f"{long}.tr.>"},
        republish={"src": ">", "dest": f"{long}.again.>"},
    )
    a.store(name, [(f"{name}.a.{n}", b"x" * n, header(f"A: {'b' * 5000}")) for n in range(20)])
    a.ask_all([(f"in{name}.{n}", b"x", b"") for n in range(5)])
    for copy, count in (("MIR", 20), ("SRC", 20), ("TR", 5)):

        def done(copy: str = copy, count: int = count) -> bool:
            return a.api(f"STREAM.INFO.{name}{copy}").get("state", {}).get("messages") == count

        a.wait(done)


def getting(stage: Stage) -> None:
    a = stage.peer()
    name = stage.stream(a, storage="file", allow_direct=True)
    a.store(name, [(f"{name}.{n % 30}", b"x" * 1000, header("A: b")) for n in range(400)])
    a.ask(f"$JS.API.DIRECT.GET.{name}", b'{"seq":3}')
    a.ask(f"$JS.API.DIRECT.GET.{name}.{name}.3")
    many = ",".join(f'"{name}.{n}"' for n in range(30))
    for body in (b'{"seq":1,"batch":390}', b'{"multi_last":[%s]}' % many.encode()):
        inbox = f"got.{name}.{len(body)}"
        a.subscribe(inbox)
        a.publish(f"$JS.API.DIRECT.GET.{name}", body, inbox)
        a.wait(lambda: any(m.status.startswith(("204", "4", "5")) for m in a.messages))
        a.messages.clear()
    chunks = f"chunks.{name}"
    a.subscribe(chunks)
    if "error" not in a.api(f"STREAM.SNAPSHOT.{name}", deliver_subject=chunks):

        def over() -> bool:
            for message in a.messages:
                if message.reply:
                    a.publish(message.reply)
            ended = any(not m.payload for m in a.messages if m.subject == chunks)
            a.messages.clear()
            return ended

        a.wait(over)


def subscribing(stage: Stage) -> None:
    """Subscriptions, queue groups, mappings, imported streams, limits, and what is logged of them."""
    a, b, e = stage.peer(), stage.peer(), stage.peer("e")
    limited = stage.peer("limited")
    name = stage.name
    for n in range(40):
        a.subscribe(f"{name}.{n}")
        a.subscribe(f"{name}.*.{n}", f"q{n % 3}")
        b.subscribe(f"{name}.*.*", f"q{n % 3}")
    for _ in range(40):
        b.subscribe(f"{name}.same")
    a.fence()
    b.subscribe("mapped.>")
    b.subscribe("got.>")
    e.subscribe(f"{'long' * 70}.st.>")
    e.subscribe(">")
    b.fence()
    e.fence()
    a.publish(f"map.{name}", b"x" * 10, "reply")
    a.publish(f"{name}.7.8", b"x" * 5000)
    a.publish(f"{name}.same", b"x" * 70_000)
    a.publish(f"st.{name}", b"stream", "", header("A: b"))
    e.publish(f"ev.{name}", b"event")
    a.publish(f"{name}.traced", b"", "", TRACED)
    a.publish(f"map.{name}", b"", "", TRACED)
    limited.send(f"SUB in.no.{name} 90\r\nSUB in.{name}.> 91\r\nPUB out.no 0\r\n\r\n".encode())
    limited.fence()
    a.publish(f"in.{name}.x", b"", f"reply.{name}.{'r' * 40}")
    limited.fence()
    limited.publish(f"reply.{name}.{'r' * 40}", b"yes")
    a.send(f"SUB {name}..x 99\r\n".encode())
    a.ask(f"{name}.{'nobody' * 60}")
    for sid in range(60, 80):
        b.send(b"UNSUB %d 3\r\nUNSUB %d\r\n" % (sid, sid))
    for one in (a, b, e, limited):
        one.fence()
    sys = stage.peer("sys")
    sys.ask("$SYS.REQ.SERVER.PING.CONNZ", b'{"subscriptions":true}')
    sys.ask("$SYS.REQ.SERVER.PING.SUBSZ", b'{"subscriptions":true}')


def crowding(stage: Stage) -> None:
    """Many connections, queue groups and subscriptions, which end."""
    a = stage.peer()
    name = stage.name
    crowd = [stage.peer() for _ in range(75)]
    for n, peer in enumerate(crowd):
        peer.send(f"SUB all.{name} 5\r\nSUB q.{name} g{n} 6\r\nSUB once.{name} 7\r\nUNSUB 7 1\r\n".encode())
    crowd[0].send("".join(f"SUB many.{name}.{n} {100 + n}\r\n" for n in range(3000)).encode())
    crowd[1].send("".join(f"SUB same.{name} {100 + n}\r\n" for n in range(300)).encode())
    for peer in crowd:
        peer.fence()
    for subject in ("all", "q", "once", "same"):
        a.publish(f"{subject}.{name}", b"x", "", TRACED if subject == "all" else b"")
    a.fence()
    crowd[1].send("".join(f"UNSUB {100 + n}\r\n" for n in range(300)).encode())
    crowd[1].fence()
    sys = stage.peer("sys")
    sys.ask("$SYS.REQ.SERVER.PING.SUBSZ", b'{"subscriptions":true,"limit":5000}')
    for peer in crowd:
        peer.close()

    def left() -> bool:
        found = sys.ask("$SYS.REQ.SERVER.PING.CONNZ")
        return found is None or found.json["data"]["num_connections"] <= 2

    sys.wait(left)


def serving(stage: Stage) -> None:
    """Services of another account: single and streamed answers, latency, requests without a responder."""
    a, e, w = stage.peer(), stage.peer("e"), stage.peer()
    name = stage.name
    server = a.subscribe(f"svc.{name}")
    a.subscribe(f"many.{name}", "queue")
    w.subscribe("lat.>")
    a.fence()
    w.fence()
    for subject, replies in ((f"do.{name}", 1), ("do.mapped", 0), (f"many.{name}", 3)):
        inbox = f"answers.{subject}"
        e.subscribe(inbox)
        e.publish(
            subject,
            b"question",
            inbox,
            header("A: b", "Traceparent: 00-" + "4" * 32 + "-" + "f" * 16 + "-01"),
        )
        for message in a.take(1) if replies else []:
            for n in range(replies):
                a.publish(message.reply, b"%d" % n, "", header("C: d"))
        e.take(replies, inbox)
    a.send(b"UNSUB %d\r\n" % server)
    a.fence()
    e.ask(f"do.{name}", b"nobody")
    e.ask(f"nothing.{name}")
    stage.peer("e").fence()
    e.publish(f"many.{name}", b"", f"trace.{name}", TRACED)
    e.fence()


def matching(stage: Stage) -> None:
    """More branches of wildcards than a look-up has room for, and more mapped subjects in one read."""
    a = stage.peer()
    patterns = itertools.product(*(f"*{letter}" for letter in "abcdefg"))
    lines = (f"SUB {stage.name}.{'.'.join(each)} {n}\r\n" for n, each in enumerate(patterns, 1000))
    a.send("".join(lines).encode())
    a.fence()
    a.publish(f"{stage.name}.a.b.c.d.e.f.g", b"matched")
    a.take(128, stage.name)
    a.send(b"".join(b"PUB map.%d 1\r\nx\r\n" % n for n in range(100)))
    a.fence()


def mapping(stage: Stage) -> None:
    """Map a subject to one that is longer than all before it."""
    a = stage.peer()
    a.publish(f"map.{'x' * (300 * (stage.number % 12))}", b"mapped")
    a.fence()


GRANTED, DENIED = '"in.no.>"', '"in.no.>", "in.late.>"'


def reloading(stage: Stage) -> None:
    """End subscriptions by new permissions. Without memory for that, the server closes the connection."""
    limited, a = stage.peer("limited"), stage.peer()
    subject = f"in.late.{stage.name}"
    limited.send(
        "".join(f"SUB {subject} {n}\r\nSUB {subject} queue 1{n}\r\n" for n in range(10, 90)).encode()
    )
    limited.fence()
    done = stage.reload(stage.config.replace(GRANTED, DENIED))
    limited.fence()
    a.publish(subject, b"secret")
    a.fence()
    limited.fence()
    found = [message for message in limited.messages if message.subject == subject]
    assert not found or not done or limited.gone
    assert stage.reload(stage.config) or stage.is_reported


MORE_ACCOUNTS = """
  F {
    users: [{user: f, password: p}]
    msg_trace: {dest: traces, sampling: 50}
    exports: [{service: "answer.>"}, {stream: "news.>"}]
    mappings { "from.*": "to.$1" }
  }
  G {
    users: [{user: g, password: p}]
    imports: [
      {service: {account: F, subject: "answer.x"}}
      {stream: {account: F, subject: "news.*"}, to: "old.$1"}
    ]
  }
"""


def rearranging(stage: Stage) -> None:
    """Reload accounts with exports, imports and mappings; remove these accounts by another reload."""
    if not stage.reload(stage.config.replace("accounts {", "accounts {" + MORE_ACCOUNTS)):
        # the failed reload may have applied a part of the options: reload again
        assert stage.is_reported
        assert stage.reload(stage.config.replace("accounts {", "accounts {" + MORE_ACCOUNTS))
    f, g = stage.peer("f"), stage.peer("g")
    f.subscribe("answer.>")
    g.subscribe("old.>")
    f.fence()
    g.fence()
    f.publish("news.x", b"today")
    g.publish("answer.x", b"question")
    if not (f.gone or g.gone):
        assert f.take(1, "answer.x")
        assert g.take(1, "old.x")
    f.close()
    g.close()
    assert stage.reload(stage.config) or stage.is_reported
    assert stage.reload(stage.config)


def securing(stage: Stage) -> None:
    """Connect over TLS with a client's certificate, and load the server's certificate again."""
    a, b = stage.securely(), stage.securely()
    for n in range(20):
        a.subscribe(f"{stage.name}.{n}")
    a.fence()
    for size in (10, 70_000, 300_000):
        b.publish(f"{stage.name}.7", b"x" * size)
    b.fence()
    a.take(3, stage.name)
    stage.reload(stage.config)
    stage.securely().fence()
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname = False
    stranger.verify_mode = ssl.CERT_NONE
    assert not stage.securely(context=stranger).fence()


Scene = Callable[[Stage], None]
PLAIN: tuple[Scene, ...] = (
    subscribing,
    crowding,
    serving,
    matching,
    mapping,
    reloading,
    rearranging,
)
SECURE: tuple[Scene, ...] = (securing,)
JETSTREAM: tuple[Scene, ...] = (
    storing, removing, consuming, gathering, ending, working, counting, batching, scheduling, expiring,
    sourcing, getting,
)  # fmt: skip
