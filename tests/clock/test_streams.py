"""Timers of streams: ages and TTLs, markers, message ids, schedules, batches."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.caller import Message
from support.clock import HeldClock

from gnats.go.text import SECOND, rfc3339
from gnats.jetstream.control import streams
from gnats.jetstream.settings.config import StreamConfig
from gnats.options.values.jetstream import JetStreamOptions
from gnats.store.store import MsgStore

from .client import TIMEOUT, Client, Subscription, header
from .conftest import Connect, Start

LATE = 1.05
"""Seconds at most by which messages may outlive their age or TTL: expiry has a granularity."""


async def messages(js: Client, stream: str) -> int:
    return int((await js.api(f"STREAM.INFO.{stream}"))["state"]["messages"])


async def until_due(clock: HeldClock, came: Subscription, seconds: float, late: float = 0.02) -> Message:
    """Require that nothing comes in `seconds`, and a message within `late` more; return that."""
    await clock.advance(seconds - 0.001)
    assert await came.nothing()
    await clock.advance(0.001 + late)
    assert not await came.nothing()
    return await came.next()


# -- ages and TTLs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["memory", "file"])
async def test_messages_go_at_the_age_of_the_stream(js: Client, clock: HeldClock, storage: str) -> None:
    await js.stream("A", max_age=3600 * SECOND, storage=storage)
    await js.store("A.a")
    await clock.advance(1800)
    await js.store("A.a")
    await clock.advance(1799.999)
    assert await messages(js, "A") == 2
    await clock.advance(0.02)
    assert await messages(js, "A") == 1
    await clock.advance(1799.97)
    assert await messages(js, "A") == 1
    await clock.advance(0.04)
    assert await messages(js, "A") == 0


async def test_messages_go_though_the_machine_was_suspended(js: Client, clock: HeldClock) -> None:
    await js.stream("A", max_age=3600 * SECOND)
    for _ in range(2000):  # more than the server removes in one round
        js.publish("A.a", b"x")
    await js.store("A.a")
    await clock.jump(86400)
    assert await messages(js, "A") == 0


async def test_a_shorter_age_holds_for_what_is_stored(js: Client, clock: HeldClock) -> None:
    config = {"name": "A", "subjects": ["A.>"], "storage": "memory"}
    await js.stream("A", max_age=3600 * SECOND)
    await js.store("A.a")
    await clock.advance(60)
    await js.api("STREAM.UPDATE.A", config | {"max_age": 100 * SECOND})
    await clock.advance(39.9)
    assert await messages(js, "A") == 1
    await clock.advance(0.12)
    assert await messages(js, "A") == 0


async def test_a_message_goes_at_its_ttl(js: Client, clock: HeldClock) -> None:
    await js.stream("T", allow_msg_ttl=True)
    await js.store("T.short", "Nats-TTL: 10s")
    await js.store("T.long", "Nats-TTL: 1h")
    await js.store("T.never", "Nats-TTL: never")
    await js.store("T.none")
    await clock.advance(9.999)
    assert await messages(js, "T") == 4
    await clock.advance(LATE)
    assert await messages(js, "T") == 3
    await clock.advance(3588)
    assert await messages(js, "T") == 3
    await clock.advance(3)
    assert await messages(js, "T") == 2
    await clock.jump(10 * 365 * 86400)
    assert await messages(js, "T") == 2


async def test_a_ttl_beats_a_longer_age_and_never_beats_any(js: Client, clock: HeldClock) -> None:
    await js.stream("T", allow_msg_ttl=True, max_age=60 * SECOND)
    await js.store("T.short", "Nats-TTL: 10s")
    await js.store("T.never", "Nats-TTL: never")
    await js.store("T.none")
    await clock.advance(9.9)
    assert await messages(js, "T") == 3
    await clock.advance(LATE)
    assert await messages(js, "T") == 2
    await clock.advance(48)
    assert await messages(js, "T") == 2
    await clock.advance(3)
    assert await messages(js, "T") == 1


async def test_a_marker_is_left_when_a_subject_expires(js: Client, clock: HeldClock) -> None:
    await js.stream(
        "M",
        allow_msg_ttl=True,
        allow_rollup_hdrs=True,
        subject_delete_marker_ttl=30 * SECOND,
        max_age=60 * SECOND,
    )
    await js.store("M.ttl", "Nats-TTL: 40s")  # the server raises a TTL below that of markers
    await js.store("M.age")
    came = await js.subscribe("to.M")
    await js.consumer("M", "C", deliver_subject="to.M", deliver_policy="new", ack_policy="none")
    for subject, wait, late in (("M.ttl", 40, LATE), ("M.age", 60 - 40 - LATE, 0.05)):
        marker = await until_due(clock, came, wait, late)
        assert marker.subject == subject
        assert marker.headers == {"Nats-Marker-Reason": "MaxAge", "Nats-TTL": "30s", "Nats-Rollup": "sub"}
    for wait, left in ((9.9, 2), (LATE, 1), (18.8, 1), (LATE, 0)):
        await clock.advance(wait)
        assert await messages(js, "M") == left
    assert await came.nothing()


async def test_a_marker_that_a_full_stream_refuses_is_tried_again(js: Client, clock: HeldClock) -> None:
    """The retries wait for the clock: while it stands still, the server rests."""
    config = {"name": "M", "subjects": ["M.>"], "storage": "memory", "discard": "new", "max_age": 60 * SECOND}
    config |= {"allow_msg_ttl": True, "allow_rollup_hdrs": True, "subject_delete_marker_ttl": SECOND}
    await js.api("STREAM.CREATE.M", config | {"max_msgs": 100})
    for n in range(100):  # more than the server handles in one round
        js.publish(f"M.{n}", b"x")
    await js.fence()
    await clock.advance(70)
    assert await messages(js, "M") == 100
    await js.api("STREAM.UPDATE.M", config | {"max_msgs": 200})
    await clock.advance(5)
    assert await messages(js, "M") == 0


@pytest.mark.parametrize(
    ("setting", "lines", "refused"),
    [
        ("allow_msg_ttl", ["Nats-TTL: 10s"], 10166),
        (
            "allow_msg_schedules",
            ["Nats-Schedule: @at 2100-01-01T00:00:00Z", "Nats-Schedule-Target: U.to"],
            10188,
        ),
    ],
)
async def test_a_setting_is_in_force_when_a_message_has_profited_by_it(
    js: Client, monkeypatch: pytest.MonkeyPatch, setting: str, lines: list[str], refused: int
) -> None:
    """The stream refuses such a message in the middle of an update, as the store could not handle it."""
    loop, update = asyncio.get_running_loop(), streams.update_store

    def wait_and_update(store: MsgStore, config: StreamConfig) -> None:
        asked = asyncio.run_coroutine_threadsafe(js.request("U.a", b"x", header(*lines)), loop)
        answers.append(asked.result(TIMEOUT).json)
        update(store, config)

    answers: list[dict[str, Any]] = []
    monkeypatch.setattr(streams, "update_store", wait_and_update)
    config = {"name": "U", "subjects": ["U.>"], "storage": "memory"}
    await js.stream("U")
    await js.api("STREAM.UPDATE.U", config | {setting: True, "allow_rollup_hdrs": True})
    [answer] = answers
    assert answer["error"]["err_code"] == refused
    assert await js.store("U.a", *lines)


async def test_a_marker_that_is_refused_is_tried_again_now_and_then(
    start: Start, connect: Connect, clock: HeldClock, tmp_path: Path
) -> None:
    options = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
    server = await start(jetstream=options, ping_interval=10**6)
    js = await connect(server)
    config: dict[str, Any] = {
        "max_age": 60 * SECOND,
        "subject_delete_marker_ttl": 3600 * SECOND,
        "allow_msg_ttl": True,
        "allow_rollup_hdrs": True,
    }
    await js.stream("M", max_msg_size=10, **config)  # no marker fits
    for name in range(100):
        await js.store(f"M.{name}")
    await clock.advance(60.1)
    assert await messages(js, "M") == 100
    assert server.js_engine
    before = server.js_engine.stats()["rounds"]
    await clock.advance(4)
    assert server.js_engine.stats()["rounds"] - before <= 8
    state = (await js.api("STREAM.INFO.M"))["state"]
    assert (state["messages"], state["last_seq"]) == (100, 100)
    body = {"name": "M", "subjects": ["M.>"], "storage": "memory", "max_msg_size": 1000}
    await js.api("STREAM.UPDATE.M", body | config)
    await clock.advance(2 + LATE)
    state = (await js.api("STREAM.INFO.M"))["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (100, 101, 200)


async def test_a_clock_that_is_set_back_keeps_messages_longer(js: Client, clock: HeldClock) -> None:
    await js.stream("A", max_age=60 * SECOND)
    await js.store("A.a")
    clock.set_back(3600)
    await clock.advance(61)
    assert await messages(js, "A") == 1
    await clock.advance(3600)
    assert await messages(js, "A") == 0


# -- message ids -----------------------------------------------------------------------------------------


async def test_a_message_id_is_known_for_the_window(js: Client, clock: HeldClock) -> None:
    await js.stream("D", duplicate_window=120 * SECOND)
    await js.store("D.a", "Nats-Msg-Id: one")
    for _ in range(3):
        await clock.advance(39.9)
        assert (await js.store("D.a", "Nats-Msg-Id: one"))["duplicate"] is True
    await clock.advance(0.5)
    assert "duplicate" not in await js.store("D.a", "Nats-Msg-Id: one")
    await clock.advance(119.9)
    assert (await js.store("D.a", "Nats-Msg-Id: one"))["duplicate"] is True


async def test_a_longer_window_holds_for_ids_that_are_known(js: Client, clock: HeldClock) -> None:
    await js.stream("D", duplicate_window=10 * SECOND)
    await js.store("D.a", "Nats-Msg-Id: one")
    await clock.advance(5)
    config = {"name": "D", "subjects": ["D.>"], "storage": "memory", "duplicate_window": 60 * SECOND}
    await js.api("STREAM.UPDATE.D", config)
    await clock.advance(54.9)
    assert (await js.store("D.a", "Nats-Msg-Id: one"))["duplicate"] is True
    await clock.advance(0.5)
    assert "duplicate" not in await js.store("D.a", "Nats-Msg-Id: one")


# -- schedules -------------------------------------------------------------------------------------------


async def test_a_schedule_is_carried_out_at_its_time(js: Client, clock: HeldClock) -> None:
    await js.stream("S", allow_msg_schedules=True, allow_msg_ttl=True)
    await js.consumer("S", "C", filter_subject="S.to", ack_policy="none")
    answers = await js.pull("S", "C", batch=10, expires=10**9 * SECOND)
    at = rfc3339(clock.now + 86400 * SECOND)
    await js.store("S.plan", f"Nats-Schedule: @at {at}", "Nats-Schedule-Target: S.to", payload=b"later")
    await clock.jump(86400 - 60)
    assert await answers.nothing()
    message = await until_due(clock, answers, 60)
    assert (message.subject, message.payload) == ("S.to", b"later")
    assert message.headers["Nats-Schedule-Next"] == "purge"
    assert await messages(js, "S") == 1  # the schedule is removed
    await clock.jump(10**5)
    assert await answers.nothing()


async def test_a_schedule_that_repeats(js: Client, clock: HeldClock) -> None:
    await js.stream("S", allow_msg_schedules=True, allow_msg_ttl=True)
    await js.consumer("S", "C", filter_subject="S.to", ack_policy="none")
    answers = await js.pull("S", "C", batch=10, expires=10**9 * SECOND)
    await js.store("S.plan", "Nats-Schedule: @every 1m", "Nats-Schedule-Target: S.to")
    for _ in range(3):
        await clock.advance(59)
        assert await answers.nothing()
        await clock.advance(1.02)
        assert (await answers.next()).subject == "S.to"
        assert await answers.nothing()


async def test_a_cron_schedule(js: Client, clock: HeldClock) -> None:
    await js.stream("S", allow_msg_schedules=True, allow_msg_ttl=True)
    await js.consumer("S", "C", filter_subject="S.to", ack_policy="none")
    answers = await js.pull("S", "C", batch=10, expires=10**9 * SECOND)
    into_the_hour = clock.now % (3600 * SECOND) / SECOND
    await clock.jump(3600 - into_the_hour + 1)  # a second after the hour
    await js.store("S.plan", "Nats-Schedule: 0 30 * * * *", "Nats-Schedule-Target: S.to")
    await clock.jump(1740)
    await until_due(clock, answers, 59)
    await clock.jump(3540)
    await until_due(clock, answers, 59.97, late=0.05)


# -- batches ---------------------------------------------------------------------------------------------


def batch(name: str, seq: int, *lines: str) -> bytes:
    return header(f"Nats-Batch-Id: {name}", f"Nats-Batch-Sequence: {seq}", *lines)


async def test_an_atomic_batch_that_is_silent_is_given_up(js: Client, clock: HeldClock) -> None:
    await js.stream("B", allow_atomic=True)
    told = await js.subscribe("$JS.EVENT.ADVISORY.>")
    await js.request("B.a", b"x", batch("one", 1))
    await clock.advance(9)
    await js.request("B.a", b"x", batch("one", 2))  # keeps the batch open
    advisory = (await until_due(clock, told, 10)).json
    assert (advisory["batch"], advisory["reason"]) == ("one", "timeout")
    assert "error" in (await js.request("B.a", b"x", batch("one", 3, "Nats-Batch-Commit: 1"))).json
    assert await messages(js, "B") == 0


async def test_batches_have_their_own_times(js: Client, clock: HeldClock) -> None:
    await js.stream("B", allow_atomic=True)
    told = await js.subscribe("$JS.EVENT.ADVISORY.>")
    for name in ("one", "two", "three"):
        await js.request("B.a", b"x", batch(name, 1))
        await clock.advance(1)
    committed = await js.request("B.a", b"x", batch("two", 2, "Nats-Batch-Commit: 1"))
    assert committed.json["count"] == 2
    assert (await until_due(clock, told, 7)).json["batch"] == "one"
    assert (await until_due(clock, told, 1.97, late=0.05)).json["batch"] == "three"
    await clock.advance(60)
    assert await told.nothing()


async def test_a_fast_batch_that_is_silent_is_forgotten(js: Client, clock: HeldClock) -> None:
    await js.stream("B", allow_batched=True)
    answers = await js.subscribe("to.>")

    async def publish(seq: int, op: int) -> list[Any]:
        """Publish a message of the batch; return the replies."""
        js.publish("B.a", b"x", f"to.one.1.fail.{seq}.{op}.$FI")
        await answers.nothing()
        return [answers.came.get_nowait().json for _ in range(answers.came.qsize())]

    assert (await publish(1, 0))[-1] == {"type": "ack", "seq": 1, "msgs": 1}
    for seq in (2, 3, 4):
        await clock.advance(9.999)
        assert await publish(seq, 1) == [{"type": "ack", "seq": seq, "msgs": 1}]
    await clock.advance(10.02)
    (unknown,) = await publish(5, 1)
    assert unknown["error"]["description"] == "batch publish ID unknown"
    assert await messages(js, "B") == 4
