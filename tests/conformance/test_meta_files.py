"""What a cluster of nats-servers has written in its meta group: read, applied, and compared with its API."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from support.backups import give, take
from support.caller import Caller
from support.clusters import Cluster
from support.launch import launcher, require
from support.monitor import monitor
from support.servers import REFERENCE, Server, until

from gnats.codec import s2
from gnats.jetstream.cluster.desired import Reconcile, read_reconcile, reconcile
from gnats.jetstream.cluster.entries import (
    ClientInfo,
    ConsumerAssignment,
    Op,
    RaftGroup,
    StreamAssignment,
    decode_entry,
    decode_snapshot,
    encode_entry,
    encode_snapshot,
)
from gnats.jetstream.cluster.meta import Kind, MetaState
from gnats.jetstream.cluster.placement import Load, NodeInfo, NodeStats, Placement, PlacementError
from gnats.jetstream.cluster.staging import Staging
from gnats.jetstream.settings.config import LEVEL_KEY, VERSION_KEY, StreamConfig
from gnats.nkeys.identity import server_hash
from gnats.raft import messages
from gnats.store.store import FileStore

pytestmark = pytest.mark.timeout(240)

META = b"_meta_"
NORMAL, SNAPSHOT = 0, 6
ACCOUNTS = "A", "B"
SIZE = 3
DAY = 24 * 3600 * 1_000_000_000
REFUSED: list[dict[str, Any]] = [
    {"num_replicas": 5},
    {"num_replicas": 3, "placement": {"tags": ["n1"]}},
    {"placement": {"tags": ["nowhere"]}},
    {"placement": {"tags": ["!all"]}},
    {"num_replicas": 3, "placement": {"tags": ["all", "!N2"]}},
    {"placement": {"cluster": "other"}},
    {"max_bytes": 1 << 60},
]


def configuration(number: int) -> str:
    return f"""
        jetstream {{ store_dir: js }}
        server_tags: ["n{number}", "all"]
        accounts {{
            $SYS: {{ users: [{{ user: sys, password: pw }}] }}
            A: {{ jetstream: enabled, users: [{{ user: a, password: pw }}] }}
            B: {{ jetstream: enabled, users: [{{ user: b, password: pw }}] }}
        }}
    """


def is_healthy(server: Server) -> bool:
    """Return whether the server has what the groups have committed that it is in."""
    try:
        return bool(monitor(server, "/healthz")["status"] == "ok")
    except HTTPError:
        return False


class Client:
    """Asks the API of a cluster, and again while a leader is missing."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    def __call__(self, api: str, body: object = None) -> Any:
        def answer() -> Any:
            found = self.caller.request(f"$JS.API.{api}", body).json
            return None if found.get("error", {}).get("code") == 503 else found

        found = until(answer)
        assert "error" not in found, (api, body, found)
        return found

    def stream(self, name: str, **config: Any) -> Any:
        config = {"name": name, "subjects": [f"{name}.>"], "retention": "limits", "storage": "file"} | config
        if "mirror" in config:
            del config["subjects"]
        return self(f"STREAM.CREATE.{name}", config)

    def update(self, name: str, **config: Any) -> Any:
        """Update a stream, and wait until it has the replicas and has moved."""
        before = self(f"STREAM.INFO.{name}")["config"]
        self(f"STREAM.UPDATE.{name}", before | config)
        until(lambda: self.is_settled(name))

    def read(self, api: str) -> Any:
        """Ask each second until there is an answer, with a leader if it is about a group.

        While a group moves, or has no leader, nobody answers.
        """
        asked: list[str] = []
        again = 0.0

        def answer() -> Any:
            nonlocal again
            if time.monotonic() >= again:
                asked.append(self.caller.ask(f"$JS.API.{api}"))
                again = time.monotonic() + 1
            self.caller.fence()
            found = [each.json for each in self.caller.kept() if each.subject in asked]
            return next((each for each in found if "error" not in each and has_leader(each)), None)

        return until(answer)

    def is_settled(self, name: str) -> bool:
        info = self.read(f"STREAM.INFO.{name}")
        cluster = info["cluster"]
        peers = [peer for peer in cluster.get("replicas", ()) if peer["current"]]
        return (
            "desired" not in cluster
            and len(peers) == len(cluster.get("replicas", ())) == info["config"]["num_replicas"] - 1
        )

    def consumer(self, stream: str, name: str, **config: Any) -> Any:
        config = {"ack_policy": "explicit", "inactive_threshold": DAY} | config
        if name:
            config["name"] = name
        else:
            return self(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
        return self(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})


def has_leader(answer: dict[str, Any]) -> bool:
    return "leader" in answer.get("cluster", {"leader": ""})


def tell(ask: Client, other: Client) -> None:
    """Make, change and delete streams and consumers of all kinds, in two accounts."""
    ask.stream("R3", num_replicas=3, description="<first & \u00e9>", metadata={"a": "b"})
    ask.stream("R1", storage="memory", max_msgs=10, max_age=DAY, discard="new")
    ask.stream("WORK", num_replicas=3, retention="workqueue", allow_msg_ttl=True)
    ask.stream("ALL", num_replicas=3, retention="interest", placement={"tags": ["all"]})
    ask.stream("MIRROR", mirror={"name": "R3", "opt_start_seq": 1})
    ask.stream("SOURCES", sources=[{"name": "R3", "filter_subject": "R3.a"}], compression="s2")
    ask.stream("GONE", num_replicas=3)
    ask.stream("MOVED", placement={"tags": ["n0"]})
    ask.stream("R2", num_replicas=2)
    other.stream("R3", num_replicas=3, max_bytes=1 << 20)

    ask.consumer("R3", "durable", durable_name="durable", filter_subject="R3.a")
    ask.consumer("R3", "single", durable_name="single", num_replicas=1, mem_storage=True)
    ask.consumer("R3", "", deliver_policy="by_start_time", opt_start_time="2026-01-01T00:00:00.5Z")
    ask.consumer("R3", "push", deliver_subject="push.to", flow_control=True, idle_heartbeat=5_000_000_000)
    ask.consumer("R3", "gone", durable_name="gone", backoff=[1_000_000_000, 2_000_000_000])
    ask.consumer("WORK", "worker", durable_name="worker", priority_groups=["g"], priority_policy="overflow")
    ask.consumer("ALL", "all", durable_name="all", filter_subjects=["ALL.a", "ALL.b"])
    ask.consumer("MOVED", "rider", durable_name="rider")
    ask.consumer("GONE", "too", durable_name="too")
    other.consumer("R3", "durable", durable_name="durable")

    ask.consumer("R3", "durable", durable_name="durable", filter_subject="R3.b", description="changed")
    ask("CONSUMER.PAUSE.R3.durable", {"pause_until": "2100-01-01T00:00:00Z"})
    ask("CONSUMER.DELETE.R3.gone")
    ask.consumer("R3", "gone", durable_name="gone", ack_policy="all")
    ask("STREAM.DELETE.GONE")
    ask.stream("GONE", storage="memory")
    ask.update("R1", num_replicas=3, storage="memory")
    ask.update("WORK", num_replicas=1)
    ask.update("MOVED", placement={"tags": ["n2"]})
    ask.update("R3", subjects=["R3.>", "more.>"], max_msgs=100)
    until(lambda: ask.is_settled("R2"))
    ask("STREAM.PEER.REMOVE.R2", {"peer": ask("STREAM.INFO.R2")["cluster"]["replicas"][0]["name"]})
    until(lambda: ask.is_settled("R2"))
    ask("STREAM.DELETE.R2")  # information does not say when it is done
    for number in range(5):
        until(lambda number=number: "seq" in other.caller.request(f"R3.{number}", b"x").json)  # type: ignore[misc]
    taken = take(other.caller, "R3")
    other("STREAM.DELETE.R3")
    answer = give(other.caller, "R3", taken.answer["config"], taken.data)
    assert "error" not in answer, answer
    until(lambda: other("CONSUMER.NAMES.R3")["consumers"] == ["durable"])
    other("STREAM.INFO.R3")


@dataclass
class Told:
    """What the API and the pages have said: by account, stream, and consumer."""

    streams: dict[tuple[str, str], Any] = field(default_factory=dict)
    consumers: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    pages: list[Any] = field(default_factory=list)

    def ask(self, account: str, ask: Client) -> None:
        for name in ask.read("STREAM.NAMES")["streams"]:
            self.streams[account, name] = ask.read(f"STREAM.INFO.{name}")
            for consumer in ask.read(f"CONSUMER.NAMES.{name}")["consumers"] or ():
                self.consumers[account, name, consumer] = ask.read(f"CONSUMER.INFO.{name}.{consumer}")


@dataclass
class Written:
    """The folders of the meta group of each member: after a crash, and after a stop."""

    told: Told
    crashed: list[Path]
    stopped: list[Path]
    told_again: Told
    """After all members have started with snapshots that gnats has written."""
    requests: list[bytes]
    """The steps of groups that leaders have reported."""
    refusals: list[Any]
    """Why there is no place for each of REFUSED."""


def wait_healthy(cluster: Cluster) -> None:
    for server in cluster.servers:
        until(lambda server=server: is_healthy(server))  # type: ignore[misc]


def folder_of(server: Server) -> Path:
    return server.directory / "js" / "jetstream" / "$SYS" / "_js_" / META.decode()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    require(REFERENCE)
    directory = tmp_path_factory.mktemp("meta")
    told, told_again = Told(), Told()
    crashed: list[Path] = []
    stopped: list[Path] = []
    with launcher(REFERENCE, directory) as launch:
        cluster = Cluster(launch, [REFERENCE] * SIZE, config=configuration)
        cluster.wait_mesh()
        wait_healthy(cluster)
        with (
            Caller(cluster[0], "a") as a,
            Caller(cluster[1], "b", inbox="_INBOX.other") as b,
            Caller(cluster[2], "sys", inbox="_INBOX.sys") as system,
        ):
            system.subscribe("$SYS.JSC.*.ASSIGNMENT.RECONCILE")
            tell(Client(a), Client(b))
            wait_healthy(cluster)
            refusals = [
                a.request(
                    "$JS.API.STREAM.CREATE.REFUSED", {"name": "REFUSED", "storage": "file"} | config
                ).json
                for config in REFUSED
            ]
            system.fence()
            requests = [each.payload for each in system.kept()]
            told.ask("A", Client(a))
            told.ask("B", Client(b))
        query = "/jsz?accounts=1&streams=1&consumers=1&config=1&raft=1"
        told.pages = [monitor(server, query) for server in cluster.servers]
        for server in cluster.servers:
            server.kill()  # a server that stops makes a snapshot, and empties its log
            crashed.append(directory / f"crashed{server.port}" / META.decode())
            shutil.copytree(folder_of(server), crashed[-1])
        start_again(cluster)
        for server in cluster.servers:
            server.stop()
            stopped.append(directory / f"stopped{server.port}" / META.decode())
            shutil.copytree(folder_of(server), stopped[-1])
            write_snapshots_again(folder_of(server))
        start_again(cluster)
        with Caller(cluster[0], "a") as a, Caller(cluster[1], "b", inbox="_INBOX.other") as b:
            told_again.ask("A", Client(a))
            told_again.ask("B", Client(b))
    yield Written(told, crashed, stopped, told_again, requests, refusals)


def start_again(cluster: Cluster) -> None:
    for server in cluster.servers:
        server.start_again()
    cluster.wait_mesh()
    wait_healthy(cluster)


def write_snapshots_again(folder: Path) -> None:
    for path in (folder / "snapshots").glob("snap.*[0-9]"):
        term, index, peers, data = messages.read_snapshot(path.read_bytes(), META)
        state = MetaState("")
        state.restore(data)
        path.write_bytes(messages.write_snapshot(term, index, peers, state.snapshot(), META))


@dataclass
class Log:
    """A member's snapshot, and its entries behind it, of the kinds that matter here."""

    snapshot: bytes
    entries: list[tuple[int, bytes]]


def read_log(folder: Path) -> Log:
    """Read a folder; the newest snapshot counts."""
    index, snapshot = 0, b""
    for path in (folder / "snapshots").glob("snap.*[0-9]"):
        _, at, _, data = messages.read_snapshot(path.read_bytes(), META)
        if at >= index:
            index, snapshot = at, data
    store = FileStore(str(folder), folder.name)
    try:
        state = store.state()
        found = [
            messages.read_append_entry(store.get(seq)[4])
            for seq in range(state.first_seq, state.last_seq + 1)
        ]
    finally:
        store.close()
    behind = [each for each in found if each[4] + 1 > index]
    return Log(snapshot, [entry for each in behind for entry in each[6] if entry[0] in (NORMAL, SNAPSHOT)])


def read_state(folder: Path, peer: str = "") -> MetaState:
    """Apply a folder's snapshot and entries."""
    log, state = read_log(folder), MetaState(peer)
    state.restore(log.snapshot)
    for kind, data in log.entries:
        if kind == SNAPSHOT:
            state.restore(data)
        else:
            state.apply(decode_entry(data))
    return state


def folders(written: Written) -> list[Path]:
    return [*written.crashed, *written.stopped]


def test_entries_are_written_again_as_they_were(written: Written) -> None:
    ops = set()
    for folder in written.crashed:
        for kind, data in read_log(folder).entries:
            if kind != NORMAL:
                continue
            entry = decode_entry(data)
            ops.add(entry.op)
            assert not entry.assignment.unsupported
            again = encode_entry(*entry)
            if entry.op is Op.ASSIGN_COMPRESSED_CONSUMER:
                limit = 1 << 20
                assert s2.decode(again[1:], limit) == s2.decode(data[1:], limit)
            else:
                assert again == data
    assert ops == set(Op), "the story has all operations"


def test_snapshots_are_written_again_as_they_were(written: Written) -> None:
    snapshots = [log.snapshot for log in map(read_log, folders(written)) if log.snapshot]
    assert len(snapshots) >= SIZE
    for snapshot in snapshots:
        again = encode_snapshot(decode_snapshot(snapshot))
        assert s2.decode_block(again, 1 << 20) == s2.decode_block(snapshot, 1 << 20)


def test_configurations_are_written_as_nats_server_writes_them(written: Written) -> None:
    """A configuration that is read and written has the same members and values, in the same order."""
    for folder in written.crashed:
        for kind, data in read_log(folder).entries:
            if kind == NORMAL:
                assignment = decode_entry(data).assignment
                assert assignment.with_config(assignment.config).config_json == assignment.config_json  # type: ignore[arg-type]


def essence(assignment: StreamAssignment | ConsumerAssignment) -> Any:
    """Return what all members agree on, also after one has been restored."""
    group = assignment.recovered().group
    return assignment.account, assignment.created, assignment.config, replace(group, scale_up=False)


def all_of(state: MetaState) -> dict[tuple[str, ...], StreamAssignment | ConsumerAssignment]:
    found: dict[tuple[str, ...], StreamAssignment | ConsumerAssignment] = {}
    for stream in state.streams():
        found[stream.account, stream.name] = stream
        for consumer in state.consumers_of(stream.account, stream.name):
            found[consumer.account, consumer.stream, consumer.name] = consumer
    return found


def test_members_have_the_same_assignments(written: Written) -> None:
    first, *others = [
        {key: essence(each) for key, each in all_of(read_state(folder)).items()}
        for folder in folders(written)
    ]
    for other in others:
        assert other == first


def test_staged_entries_lead_to_the_same_assignments(written: Written) -> None:
    for folder in written.crashed:
        log, state, staging = read_log(folder), MetaState(""), Staging()
        staging.add(state.restore(log.snapshot))
        for kind, data in log.entries:
            if kind == NORMAL:
                staging.add(state.apply(decode_entry(data), recovering=True))
            else:
                staging.add(state.restore(data))
        made = {
            (each.assignment.account, each.assignment.name): each.assignment
            for each in staging.take()
            if each.kind is not Kind.REMOVED and isinstance(each.assignment, StreamAssignment)
        }
        assert made == {(each.account, each.name): each for each in state.streams()}


def dynamic(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration without what the API adds to its metadata."""
    metadata = {
        name: value for name, value in config["metadata"].items() if name not in (VERSION_KEY, LEVEL_KEY)
    }
    return config | {"metadata": metadata}


def peers_of(cluster: dict[str, Any]) -> set[str]:
    """Return the peers that a cluster's information names: the leader by its name, others by their ids."""
    return {server_hash(cluster["leader"]), *(peer["peer"] for peer in cluster.get("replicas", ()))}


def test_assignments_are_those_that_the_api_knows(written: Written) -> None:
    told = written.told
    assert len(told.streams) == 9
    assert len(told.consumers) >= 9
    for folder in written.crashed:
        state = read_state(folder)
        found = all_of(state)
        assert set(found) == {*told.streams, *told.consumers}
        for key, info in {**told.streams, **told.consumers}.items():
            assignment = found[key]
            if key[0] == "A":  # a restored stream has the time at which the restore ended
                assert assignment.created == info["created"]
            assert json.loads(assignment.config_json) == dynamic(info["config"])
            assert assignment.config.json() == dynamic(info["config"])
            cluster = info["cluster"]
            assert set(assignment.group.peers) == peers_of(cluster)
            if "raft_group" in cluster:
                assert assignment.group.name == cluster["raft_group"]
            assert assignment.group.desired is None
            if isinstance(assignment, StreamAssignment):
                assert assignment.sync.startswith("$JSC.SYNC.")
                assert assignment.group.cluster == "C"


def test_nats_server_starts_with_snapshots_that_gnats_has_written(written: Written) -> None:
    told, again = written.told, written.told_again
    assigned = all_of(read_state(written.stopped[0]))
    for before, after in ((told.streams, again.streams), (told.consumers, again.consumers)):
        assert set(after) == set(before)
        for key, info in before.items():
            assert after[key]["config"] == info["config"]
            if key in told.streams:  # a consumer in memory is as old as its server
                assert after[key]["created"] == assigned[key].created
            assert peers_of(after[key]["cluster"]) == peers_of(info["cluster"])
            assert after[key]["cluster"].get("raft_group") == info["cluster"].get("raft_group")


def test_each_server_runs_what_is_assigned_to_it(written: Written) -> None:
    """The changes for a server's peer, carried out, lead to what its page shows."""
    for number, (folder, page) in enumerate(zip(written.crashed, written.told.pages, strict=True)):
        peer = server_hash(f"s{number}")
        state = read_state(folder, peer)
        runs = set()
        for account in page["account_details"]:
            for stream in account.get("stream_detail", ()):
                runs.add((account["name"], stream["name"]))
                for consumer in stream.get("consumer_detail", ()):
                    runs.add((account["name"], stream["name"], consumer["name"]))
        assigned = {key for key, each in all_of(state).items() if each.group.is_member(peer)}
        assert runs == assigned


def test_each_step_of_a_group_follows_from_a_request(written: Written) -> None:
    """The leader's entries about groups that moved, and scaled, are those that gnats would have made."""
    requests: dict[str, list[Reconcile]] = {}
    for data in written.requests:
        request = read_reconcile(data)
        requests.setdefault(request.id, []).append(request)
    state, steps = MetaState(""), 0
    log = read_log(written.crashed[0])
    state.restore(log.snapshot)
    for kind, data in log.entries:
        if kind != NORMAL:
            continue
        for change in state.apply(decode_entry(data)):
            before = change.previous
            if change.kind is Kind.REMOVED or before is None or before.group.desired is None:
                continue
            about = requests.get(before.group.desired.id, [])
            if isinstance(before, StreamAssignment):
                replicas = before.config.num_replicas
            else:
                stream = state.stream(before.account, before.stream)
                assert stream
                replicas = before.config.replicas(stream.config)
            made = [
                reconcile(before.group, each, replicas, converged=converged, id="", created="")
                for each in about
                for converged in (False, True)
            ]
            assert without_chance(change.assignment.group) in [without_chance(each) for each in made if each]
            steps += 1
    assert steps >= 20


def without_chance(group: RaftGroup) -> RaftGroup:
    """Return a group without new ids, the name of one that has arrived, and a leader that has led by then."""
    desired = group.desired and replace(group.desired, id="", created="")
    return replace(group, desired=desired, preferred="", name=group.name if group.desired else "")


def test_refusals_of_placement_are_those_of_nats_server(written: Written) -> None:
    nodes = {
        server_hash(f"s{number}"): NodeInfo(
            f"s{number}",
            "C",
            (f"n{number}", "all"),
            max_memory=page["config"]["max_memory"],
            max_store=page["config"]["max_storage"],
            stats=NodeStats(),
        )
        for number, page in enumerate(written.told.pages)
    }
    placement = Placement(list(nodes), nodes, Load(), random.Random(1))
    for config, refusal in zip(REFUSED, written.refusals, strict=True):
        wanted = StreamConfig.from_json(json.dumps({"name": "X", "storage": "file"} | config).encode())
        with pytest.raises(PlacementError) as raised:
            placement.create_group_for_stream(ClientInfo(cluster="C"), wanted)
        assert raised.value.api_error().json() == refusal["error"]
