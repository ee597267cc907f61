"""Members with a replicated stream are killed and paused, and their routes harmed, while clients work.

Nothing that was acknowledged may be lost, be there twice, or come in another order; what a consumer's
acknowledgement was confirmed for must not come again; all replicas must have the same in the end.
GNATS_CLUSTER_SECONDS is how long each cluster suffers, GNATS_CLUSTER_SEED what is drawn from.
"""

from __future__ import annotations

import asyncio
import random
import signal
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError
from support.caller import Caller
from support.clusters import mesh
from support.launch import launcher
from support.servers import REFERENCE, Kind, until

from . import campaign
from .campaign import HARM, SEED, seconds
from .conftest import require_all
from .members import named
from .proxy import DEAF, MODES, MUTE, PASS, REFUSE
from .test_faults import FaultyCluster
from .test_jetstream import Members, mixtures
from .test_replicas import lead, settled

SECONDS = seconds(8)
PUBLISHERS = 3
LIMITS = "limits"
NO_MESSAGE = 10037
RETENTIONS = [LIMITS, "workqueue"] if campaign.SECONDS else [LIMITS]
"""Work queues wait for what docs/replicas.md says of them: only the longer campaign has them."""
BATCH = 20
PULL = b'{"batch": %d, "expires": 1000000000}' % BATCH
ANSWER = 2.0
"""Seconds after which a client asks again."""
FAILED = (nats.errors.Error, NoStreamResponseError, APIError, TimeoutError, OSError)
"""What a client sees while nobody leads, or the path is cut."""

pytestmark = [pytest.mark.timeout(300 + 4 * SECONDS), pytest.mark.waits]


class Workload:
    """Publishers that wait for each acknowledgement, and a consumer that has its own ones confirmed."""

    def __init__(self, urls: list[str], rng: random.Random) -> None:
        self.urls = urls
        self.rng = rng
        self.acknowledged: dict[str, int] = {}
        self.delivered: set[int] = set()
        self.confirmed: set[int] = set()
        self.published = 0
        self.ended = False
        self._clients: list[Client] = []

    async def connect(self) -> JetStreamContext:
        client = Client()
        servers = self.rng.sample(self.urls, len(self.urls))

        async def ignore(_: Exception) -> None:
            """Connections break all the time here."""

        await client.connect(
            servers,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,
            connect_timeout=ANSWER,
            error_cb=ignore,
        )
        self._clients.append(client)
        return client.jetstream(timeout=ANSWER)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    async def publish(self, number: int) -> None:
        js = await self.connect()
        sent = 0
        while not self.ended:
            sent += 1
            payload = f"{number} {sent}"
            headers = {"Nats-Msg-Id": payload}
            while True:
                try:
                    ack = await js.publish(f"S.{number}", payload.encode(), timeout=ANSWER, headers=headers)
                except FAILED:
                    await asyncio.sleep(0.05)
                    continue
                break
            self.acknowledged[payload] = ack.seq
            self.published += 1
            await asyncio.sleep(0.005)  # the faults are what matters, not the number of messages

    async def consume(self) -> None:
        await self.connect()
        client = self._clients[-1]
        while True:
            for message in await self._pull(client):
                seq = message.metadata.sequence.stream
                assert seq not in self.confirmed, f"{seq} comes again after its acknowledgement was confirmed"
                self.delivered.add(seq)
                with suppress(*FAILED):
                    await message.ack_sync(timeout=ANSWER)
                    self.confirmed.add(seq)

    async def _pull(self, client: Client) -> list[Msg]:
        """Return what is delivered to a new inbox: a copy for an older one may be from before an answer."""
        found: list[Msg] = []
        inbox = client.new_inbox()
        try:
            sub = await client.subscribe(inbox)
            await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", PULL, reply=inbox)
            with suppress(*FAILED):
                while len(found) < BATCH:
                    message = await sub.next_msg(timeout=ANSWER)
                    if "Status" in (message.headers or {}):
                        break
                    found.append(message)
            await sub.unsubscribe()
        except FAILED:
            await asyncio.sleep(0.05)
        return found


class ReplicaCampaign:
    def __init__(self, cluster: FaultyCluster, retention: str) -> None:
        self.cluster = cluster
        self.retention = retention
        self.members = Members(cluster)
        self.rng = random.Random(SEED)
        self.steps: list[str] = []

    async def run(self, lasts: float) -> None:
        """Harm for so many seconds, then check. A failure says what led to it."""
        await asyncio.to_thread(self._begin)
        work = Workload([f"nats://127.0.0.1:{server.port}" for server in self.cluster.servers], self.rng)
        try:
            async with asyncio.TaskGroup() as group:
                publishers = [group.create_task(work.publish(number)) for number in range(PUBLISHERS)]
                consumer = group.create_task(work.consume())
                end = asyncio.get_running_loop().time() + lasts
                while asyncio.get_running_loop().time() < end:
                    await self.harm()
                    await asyncio.sleep(self.rng.uniform(0, 1.5))
                work.ended = True
                await asyncio.wait(publishers)
                await asyncio.to_thread(self._healthy)
                await asyncio.to_thread(until, self._drained, 120)
                consumer.cancel()
            await asyncio.to_thread(self._check, work)
        except BaseException as error:
            error.add_note(f"GNATS_CLUSTER_SEED={SEED}; faults: {self.steps}; published: {work.published}")
            raise
        finally:
            await work.close()

    def _begin(self) -> None:
        self.members.leader()
        until(lambda: "error" not in self.members.ask(0, "$JS.API.STREAM.CREATE.S", self._stream()), 60)
        until(
            lambda: self.members.ask(0, "$JS.API.CONSUMER.DURABLE.CREATE.S.C", self._consumer()).get("name"),
            60,
        )
        if self.retention == LIMITS:
            mirror = {"name": "M", "num_replicas": 3, "mirror": {"name": "S"}}
            until(lambda: "error" not in self.members.ask(0, "$JS.API.STREAM.CREATE.M", mirror), 60)

    def _stream(self) -> dict[str, Any]:
        config = {"name": "S", "subjects": ["S.>"], "num_replicas": 3, "retention": self.retention}
        return config | {"duplicate_window": 3600 * 10**9}

    def _consumer(self) -> dict[str, Any]:
        config = {
            "durable_name": "C",
            "ack_policy": "explicit",
            "ack_wait": 5 * 10**9,
            "max_ack_pending": 100,
        }
        return {"stream_name": "S", "config": config}

    # -- harm ------------------------------------------------------------------------------------------------

    async def harm(self) -> None:
        """Do one fault, and end it; or two at once."""
        numbers = self.rng.sample(range(3), 2 if self.rng.random() < 0.2 else 1)
        await asyncio.gather(*(self._harm(number) for number in numbers))

    async def _harm(self, number: int) -> None:
        what = self.rng.choice(("kill", "kill", "pause", "flap", DEAF, MUTE, *MODES))
        lasts = self.rng.uniform(0.1, HARM) * (4 if self.rng.random() < 0.2 else 1)
        self.steps.append(f"{what} s{number} {lasts:.1f} s")
        server, proxy = self.cluster[number], self.cluster.proxies[number]
        if what == "kill":
            server.kill()
            await asyncio.sleep(lasts)
            await asyncio.to_thread(server.start_again)
        elif what == "pause":
            server.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(lasts)
            server.process.send_signal(signal.SIGCONT)
        elif what == "flap":
            for _ in range(4):
                proxy.set(REFUSE)
                await asyncio.sleep(self.rng.uniform(0, 0.1))
                proxy.set(PASS)
                await asyncio.sleep(self.rng.uniform(0, 0.6))
        else:
            proxy.set(what)
            await asyncio.sleep(lasts)
            proxy.set(PASS)

    # -- checks ----------------------------------------------------------------------------------------------

    def _healthy(self) -> None:
        """Wait until all replicas are current."""
        self.members.leader()
        settled(self.members, "S")
        settled(self.members, "S.C", "CONSUMER")

    def _drained(self) -> bool:
        info = self.members.ask(0, "$JS.API.CONSUMER.INFO.S.C")
        return info.get("num_pending") == 0 and info.get("num_ack_pending") == 0

    def _check(self, work: Workload) -> None:
        assert work.published > 0
        if self.retention == LIMITS:
            self._check_contents(work)
        else:
            assert set(work.acknowledged.values()) <= work.delivered, "messages were not delivered"
            until(lambda: self.members.api(0, "STREAM.INFO.S")["state"]["messages"] == 0, 60)
        states = []
        for member in range(3):
            lead(self.members, "S", member)
            states.append(settled(self.members, "S")["state"])
        assert states[0] == states[1] == states[2], "replicas differ"

    def _check_contents(self, work: Workload) -> None:
        stored = self._contents("S")
        assert len(stored.values()) == len(set(stored.values())), "a message is there twice"
        lost = {payload: seq for payload, seq in work.acknowledged.items() if stored.get(seq) != payload}
        assert not lost, "what was acknowledged is not there, or elsewhere"
        for number in range(PUBLISHERS):
            own = [int(text.split(" ")[1]) for text in stored.values() if text.split(" ")[0] == str(number)]
            assert own == sorted(own), f"the messages of publisher {number} are in another order"
        assert set(stored) <= work.delivered, "messages were not delivered"
        last = max(stored)
        until(lambda: self.members.api(0, "STREAM.INFO.M")["state"]["last_seq"] == last, 150)
        for name in ("S", "M"):
            for member in range(3):
                lead(self.members, name, member)
                settled(self.members, name)
                assert self._contents(name) == stored, f"{name} is another one where s{member} leads"

    def _contents(self, name: str) -> dict[int, str]:
        state = self.members.api(0, f"STREAM.INFO.{name}")["state"]
        found = {}
        with Caller(self.cluster[0]) as caller:
            for seq in range(state["first_seq"], state["last_seq"] + 1):
                answer = caller.request(f"$JS.API.STREAM.MSG.GET.{name}", {"seq": seq}).json
                if message := answer.get("message"):
                    found[seq] = b64decode(message.get("data", "")).decode()
                else:
                    assert answer["error"]["err_code"] == NO_MESSAGE, answer
        return found


@pytest.fixture(params=[kinds for kinds in mixtures() if set(kinds) != {REFERENCE}], ids=named)
def kinds(request: pytest.FixtureRequest) -> tuple[Kind, ...]:
    kinds: tuple[Kind, ...] = request.param
    require_all(kinds)
    return kinds


@pytest.mark.parametrize("retention", RETENTIONS)
async def test_replicas_survive_faults(kinds: tuple[Kind, ...], retention: str, tmp_path: Path) -> None:
    with launcher(REFERENCE, tmp_path) as launch:
        cluster: FaultyCluster | None = None
        try:
            cluster = FaultyCluster(
                tmp_path,
                kinds,
                launch,
                config=lambda number: f"jetstream {{ store_dir: '{tmp_path / str(number)}' }}",
                routes=mesh,
            )
            for proxy in cluster.proxies:
                await proxy.start()
            await ReplicaCampaign(cluster, retention).run(SECONDS)
        finally:
            for proxy in cluster.proxies if cluster else ():
                await proxy.close()
