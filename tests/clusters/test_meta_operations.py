"""What operators see of a JetStream cluster, and do to it: of gnats, of nats-server, and of both."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from support.caller import Caller, Message
from support.clusters import Cluster
from support.launch import Launch, launcher
from support.monitor import monitor
from support.servers import REFERENCE, TIMEOUT, Kind, Server, until

from gnats.nkeys.identity import server_hash

from .conftest import require_all
from .members import member_kinds, named

pytestmark = pytest.mark.timeout(180)

ACCOUNTS = """
accounts {
  $SYS { users: [ { user: s, password: pw } ] }
  A { jetstream: enabled, users: [ { user: a, password: pw } ] }
}
"""
ELECTION = 3.5
"""Less than the seconds after which a follower that hears nothing becomes a candidate."""


def sorts() -> list[tuple[Kind, ...]]:
    """Return clusters of each kind alone, and of both with each in the majority."""
    own = [kind for kind in member_kinds() if not kind.is_reference]
    found: list[tuple[Kind, ...]] = [(kind,) * 3 for kind in own[-1:]]
    if REFERENCE in member_kinds():
        found.append((REFERENCE,) * 3)
        found += [(kind, REFERENCE, kind) for kind in own[:1]] + [
            (REFERENCE, kind, REFERENCE) for kind in own[-1:]
        ]
    return found


class Operated(Cluster):
    """Three members with JetStream; operators are clients of the system account."""

    def __init__(self, launch: Launch, kinds: tuple[Kind, ...], directory: Path) -> None:
        self.kinds = kinds
        super().__init__(
            launch,
            kinds,
            config=lambda number: (
                f"jetstream {{ store_dir: '{directory / str(number)}' }}\n"
                f"server_tags: ['n:{number}', both]\n{ACCOUNTS}"
            ),
        )

    def leader(self, but: int | None = None) -> int:
        """Wait until all running members know one leader, another than `but`; return its number."""

        def agreed() -> str:
            running = [number for number in self.running() if self.js(number)]
            seen = {self.meta(number).get("leader", "") for number in running}
            name = seen.pop() if len(seen) == 1 else ""
            return name if name and int(name[1:]) in running and int(name[1:]) != but else ""

        return int(until(agreed)[1:])

    def settle(self) -> int:
        """Wait until the leader knows that both others have all that it has; return its number."""

        def settled() -> bool:
            others = self.meta(self.leader()).get("replicas", [])
            return len(others) == 2 and all(each["current"] and each["name"][0] == "s" for each in others)

        until(settled)
        return self.leader()

    def follower(self) -> int:
        return (self.leader() + 1) % len(self)

    def js(self, number: int) -> bool:
        return "disabled" not in monitor(self[number], "/jsz")

    def meta(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = monitor(self[number], "/jsz").get("meta_cluster", {})
        return found

    def operator(self, number: int, inbox: str = "_INBOX.op") -> Caller:
        return Caller(self[number], "s", inbox=inbox)


def health(server: Server, query: str = "") -> tuple[int, dict[str, Any]]:
    """Return the status and the page of /healthz."""
    try:
        return 200, monitor(server, f"/healthz{query}")
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def failed(answer: Message) -> tuple[int, int, str]:
    error = answer.json["error"]
    return error["code"], error["err_code"], error["description"]


@pytest.fixture(params=sorts(), ids=named)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Operated]:
    require_all(request.param)
    with launcher(REFERENCE, tmp_path) as launch:
        cluster = Operated(launch, request.param, tmp_path)
        cluster.settle()
        yield cluster


@pytest.fixture(scope="module", params=sorts(), ids=named)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """A cluster whose members all stay."""
    require_all(request.param)
    directory = tmp_path_factory.mktemp("operated")
    with launcher(REFERENCE, directory) as launch:
        cluster = Operated(launch, request.param, directory)
        cluster.settle()
        yield cluster


META = [
    "name", "leader", "peer", "replicas", "cluster_size", "quorum_needed", "pending", "pending_requests",
    "pending_infos", "snapshot",
]  # fmt: skip
GROUP = [
    "id", "state", "size", "quorum_needed", "committed", "applied", "leader", "ever_had_leader", "term",
    "pterm", "pindex", "system_account", "traffic_account", "ipq_proposal_len", "ipq_entry_len",
    "ipq_resp_len", "ipq_apply_len", "wal", "peers",
]  # fmt: skip
WAL = ["messages", "bytes", "first_seq", "first_ts", "last_seq", "last_ts", "consumer_count"]


def test_pages_show_the_meta_group(shared: Operated) -> None:
    leader = shared.settle()
    for number in range(3):
        page = monitor(shared[number], "/jsz")
        meta = page["meta_cluster"]
        assert list(page)[-2:] == ["meta_cluster", "total"]
        assert list(meta) == META
        shown = {name: meta[name] for name in META if name not in ("replicas", "snapshot")}
        assert shown == {
            "name": "C", "leader": f"s{leader}", "peer": server_hash(f"s{leader}"), "cluster_size": 3,
            "quorum_needed": 2, "pending": 0, "pending_requests": 0, "pending_infos": 0,
        }  # fmt: skip
        assert list(meta["snapshot"])[:3] == ["pending_entries", "pending_size", "last_time"]
        others = {each["name"]: each for each in meta["replicas"]}
        assert set(others) == {"s0", "s1", "s2"} - {f"s{number}"}
        for name, each in others.items():
            knows = number == leader or name == f"s{leader}"
            assert list(each) == ["name", "current", "active", "peer"]
            assert (each["current"], each["active"] > 0) == (knows, knows)
            assert each["peer"] == server_hash(name)
        assert page["ha_assets"] == 1
        assert list(monitor(shared[number], "/varz")["jetstream"]) == ["config", "stats", "meta", "limits"]
        assert list(monitor(shared[number], "/varz")["jetstream"]["meta"]) == META


def test_only_the_leader_answers_with_leader_only(shared: Operated) -> None:
    leader = shared.leader()
    assert monitor(shared[leader], "/jsz?leader-only=1")["meta_cluster"]["leader"] == f"s{leader}"
    with pytest.raises(HTTPError) as refused:
        monitor(shared[(leader + 1) % 3], "/jsz?leader-only=1")
    with refused.value as error:
        assert (error.code, error.read()) == (400, b"filtered response: not leader")
    with shared.operator(leader) as caller:
        answer = caller.request("$SYS.REQ.SERVER.PING.JSZ", {"leader_only": True}).json
        assert answer["server"]["name"] == f"s{leader}"


def test_raftz(shared: Operated) -> None:
    leader = shared.leader()
    for number in range(3):
        page = monitor(shared[number], "/raftz")
        assert list(page) == ["$SYS"]
        assert list(page["$SYS"]) == ["_meta_"]
        group = page["$SYS"]["_meta_"]
        assert [name for name in group if name not in ("voted_for", "leader_since")] == GROUP
        assert ("leader_since" in group) == (number == leader)
        assert group["state"] == ("LEADER" if number == leader else "FOLLOWER")
        assert (group["id"], group["leader"]) == (server_hash(f"s{number}"), server_hash(f"s{leader}"))
        assert (group["size"], group["quorum_needed"], group["ever_had_leader"]) == (3, 2, True)
        assert (group["system_account"], group["traffic_account"]) == (True, "$SYS")
        assert list(group["wal"]) == WAL
        for other in {0, 1, 2} - {number}:
            peer = group["peers"][server_hash(f"s{other}")]
            assert (peer["name"], peer["known"]) == (f"s{other}", True)
            assert ("last_replicated_index" in peer) == (number == leader)
            assert ("last_seen" in peer) == (leader in (number, other))
        for query in "group=x", "acc=x":
            assert monitor(shared[number], f"/raftz?{query}") == {}
        with shared.operator(number) as caller:
            server_id = monitor(shared[number], "/varz")["server_id"]
            answer = caller.request(f"$SYS.REQ.SERVER.{server_id}.RAFTZ", {"group": "_meta_"}).json["data"]
            assert list(answer["$SYS"]) == ["_meta_"]
            assert caller.request(f"$SYS.REQ.SERVER.{server_id}.RAFTZ", {"group": "x"}).json["data"] == {}


def test_statistics_of_followers_are_short(shared: Operated) -> None:
    leader = shared.leader()
    for number in leader, (leader + 1) % 3:
        with shared.operator(number) as caller:
            server_id = monitor(shared[number], "/varz")["server_id"]
            answer = caller.request(f"$SYS.REQ.SERVER.{server_id}.STATSZ").json["statsz"]["jetstream"]
        assert list(answer) == ["config", "stats", "meta", "limits"]
        assert list(answer["meta"]) == [name for name in META if name != "replicas" or number == leader]
        assert answer["meta"]["name"] == ("C" if number == leader else "_meta_")


def test_a_cluster_with_a_leader_is_healthy(shared: Operated) -> None:
    shared.leader()
    for number in range(3):
        for query in "", "?js-meta-only=1", "?details=1", "?js-meta-only=1&details=true":
            assert until(lambda number=number, query=query: health(shared[number], query)[0] == 200)  # type: ignore[misc]
        code, page = health(shared[number], "?account=none&details=1")
        assert code == 404
        assert page["errors"] == [
            {"type": "ACCOUNT", "account": "none", "error": 'JetStream account "none" not found'}
        ]


def test_the_leader_steps_down(shared: Operated) -> None:
    leader = shared.leader()
    lines = [server.lines for server in shared.servers]
    with shared.operator((leader + 1) % 3) as caller, shared.operator(leader, "_INBOX.ears") as ears:
        ears.subscribe("$JS.EVENT.ADVISORY.DOMAIN.LEADER_ELECTED")
        answer = caller.request("$JS.API.META.LEADER.STEPDOWN").json
        assert answer == {"type": "io.nats.jetstream.api.v1.meta_leader_stepdown_response", "success": True}
        advisory = ears.next().json
    new = shared.leader(but=leader)
    shared[new].wait_log("Self is new JetStream cluster metadata leader", lines[new])
    for number in {0, 1, 2} - {new}:
        shared[number].wait_log(f"JetStream cluster new metadata leader: s{new}/C", lines[number])
    assert list(advisory) == ["type", "id", "timestamp", "leader", "replicas", "cluster"]
    assert advisory["type"] == "io.nats.jetstream.advisory.v1.domain_leader_elected"
    assert (advisory["leader"], advisory["cluster"]) == (server_hash(f"s{new}"), "C")
    assert {each["name"] for each in advisory["replicas"]} == {"s0", "s1", "s2"}
    members = [name for name in advisory["replicas"][0] if name != "lag"]
    assert members == ["name", "current", "active", "peer"]


def test_the_lead_goes_where_it_is_sent(shared: Operated) -> None:
    for _ in range(2):
        for placement in {"preferred": "s{}"}, {"tags": ["n:{}", "both"]}, {"cluster": "C", "tags": ["n:{}"]}:
            leader = shared.settle()
            wanted = (leader + 1) % 3
            body = json.loads(json.dumps({"placement": placement}).replace("{}", str(wanted)))
            with shared.operator(wanted) as caller:
                assert caller.request("$JS.API.META.LEADER.STEPDOWN", body).json["success"]
            assert shared.leader(but=leader) == wanted


def test_step_downs_that_are_refused(shared: Operated) -> None:
    leader = shared.leader()
    refusals = {
        f'{{"placement": {{"preferred": "s{leader}"}}}}': f'preferred server "s{leader}" is already leader',
        '{"placement": {"preferred": "nobody"}}': 'preferred server "nobody" not known',
        '{"placement": {"cluster": "D"}}': "no replacement peer connected",
        '{"placement": {"tags": ["none"]}}': "no replacement peer connected",
    }
    with shared.operator((leader + 1) % 3) as caller:
        for body, why in refusals.items():
            assert failed(caller.request("$JS.API.META.LEADER.STEPDOWN", body.encode())) == (400, 10005, why)
        code, number, _ = failed(caller.request("$JS.API.META.LEADER.STEPDOWN", b'{"placement": 1}'))
        assert (code, number) == (400, 10025)
        assert caller.request("$JS.API.META.LEADER.STEPDOWN", b"no JSON").json["success"]
    assert shared.leader(but=leader) != leader


def test_removals_that_are_refused(shared: Operated) -> None:
    leader = shared.leader()
    kind = "io.nats.jetstream.api.v1.meta_server_remove_response"
    with shared.operator((leader + 1) % 3) as caller:
        for body, error in (
            (b"", (400, 10003)),
            (b"{}", (400, 10003)),
            (b'{"peer": 1}', (400, 10025)),
            (b'{"peer": "nobody"}', (400, 10044)),
            (b'{"peer": "s0", "peer_id": "nobody"}', (400, 10044)),
        ):
            answer = caller.request("$JS.API.SERVER.REMOVE", body)
            assert (answer.json["type"], *failed(answer)[:2]) == (kind, *error)
    assert {shared.meta(number)["cluster_size"] for number in range(3)} == {3}


def test_requests_of_other_accounts_are_not_answered(shared: Operated) -> None:
    shared.leader()
    with Caller(shared[0], "a", no_responders=True) as caller:
        asked = [
            caller.ask(f"$JS.API.{verb}", b'{"peer": "s1"}')
            for verb in ("META.LEADER.STEPDOWN", "SERVER.REMOVE")
        ]
        caller.request("$JS.API.INFO")
        assert not [message for message in caller.kept() if message.subject in asked and message.payload]
    assert {shared.meta(number)["cluster_size"] for number in range(3)} == {3}


def test_what_gnats_refuses_to_do(shared: Operated) -> None:
    if any(kind.is_reference for kind in shared.kinds):
        pytest.skip("nats-server does it")
    leader = shared.leader()
    with shared.operator((leader + 1) % 3) as caller:
        answer = caller.request("$JS.API.SERVER.EVACUATE", {"peer": "s0"})
        assert failed(answer) == (503, 10036, "not currently supported in clustered mode")
        inbox = caller.ask("$JS.API.META.RESCUE", b'{"quorum_needed": 1}')
        answers = [caller.next_on(inbox) for _ in range(3)]
        assert {answer.json["server"] for answer in answers} == {"s0", "s1", "s2"}
        refusal = 400, 10224, "JetStream system rescue not applied: not supported"
        assert {failed(answer) for answer in answers} == {refusal}


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("leads", [False, True])
def test_a_server_is_removed(cluster: Operated, by_id: bool, leads: bool) -> None:
    gone = cluster.leader() if leads else cluster.follower()
    if leads and cluster.kinds[gone].is_reference:
        pytest.skip("a nats-server that removes itself does not answer, nor always says that it was removed")
    body = {"peer_id": server_hash(f"s{gone}")} if by_id else {"peer": f"s{gone}"}
    with cluster.operator((gone + 1) % 3) as caller, cluster.operator((gone + 1) % 3, "_INBOX.ears") as ears:
        ears.subscribe("$JS.EVENT.ADVISORY.SERVER.REMOVED")
        answer = caller.request("$JS.API.SERVER.REMOVE", body).json
        assert answer == {"type": "io.nats.jetstream.api.v1.meta_server_remove_response", "success": True}
        advisory = ears.next().json
    assert list(advisory) == ["type", "id", "timestamp", "server", "server_id", "cluster"]
    assert advisory["type"] == "io.nats.jetstream.advisory.v1.server_removed"
    assert (advisory["server"], advisory["cluster"]) == (f"s{gone}", "C")
    cluster[gone].wait_log("JetStream being DISABLED, our server was removed from the cluster")
    until(lambda: not cluster.js(gone))
    assert health(cluster[gone]) == (503, {"status": "unavailable", "error": "JetStream not enabled (10076)"})
    leader = cluster.leader()
    meta = cluster.meta(leader)
    assert (meta["cluster_size"], meta["quorum_needed"]) == (2, 2)
    assert [each["name"] for each in meta["replicas"]] == [f"s{({0, 1, 2} - {leader, gone}).pop()}"]
    assert monitor(cluster[leader], "/jsz")["ha_assets"] == 1


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR2], ids=["ends", "lame duck"])
def test_another_leads_at_once_when_the_leader_goes(cluster: Operated, signum: signal.Signals) -> None:
    leader = cluster.settle()
    others = sorted({0, 1, 2} - {leader})
    begun = time.monotonic()
    with Caller(cluster[leader], "a"):
        cluster[leader].process.send_signal(signum)

        def leaders() -> set[str]:
            return {cluster.meta(number).get("leader", "") for number in others}

        until(lambda: len(leaders()) == 1 and leaders() <= {f"s{number}" for number in others})
        assert time.monotonic() - begun < ELECTION


def test_without_a_quorum_a_server_is_not_healthy(cluster: Operated) -> None:
    last = cluster.follower()
    until(lambda: len(cluster.meta(last).get("replicas", [])) == 2)
    for number in {0, 1, 2} - {last}:
        cluster.stop(number)
    lost = "JetStream has not established contact with a meta leader"
    until(lambda: health(cluster[last]) == (503, {"status": "unavailable", "error": lost}))
    details = {"status": "error", "errors": [{"type": "JETSTREAM", "error": lost}]}
    assert health(cluster[last], "?js-meta-only=1&details=1") == (503, details)
    assert health(cluster[last], "?js-enabled-only=1")[0] == 200
    meta = cluster.meta(last)
    assert "leader" not in meta
    assert {each["name"] for each in meta["replicas"]} == {"s0", "s1", "s2"}
    cluster[last].wait_log("JetStream cluster no metadata leader")


def metrics(server: Server) -> dict[str, float]:
    """Return the values of the series of /metrics about JetStream."""
    with urlopen(f"http://{server.monitor_host}:{server.monitor_port}/metrics", timeout=TIMEOUT) as page:
        lines = page.read().decode().splitlines()
    rows = (line.rpartition(" ") for line in lines if line.startswith("gnats_jetstream_"))
    return {name.removeprefix("gnats_jetstream_"): float(value) for name, _, value in rows}


def test_metrics(shared: Operated) -> None:
    leader = shared.leader()
    for number, kind in enumerate(shared.kinds):
        if kind.is_reference:
            continue
        found = metrics(shared[number])
        lags = [name for name in found if name.startswith("meta_peer_lag")]
        assert len(lags) == (3 if number == leader else 0)
        state = monitor(shared[number], "/raftz")["$SYS"]["_meta_"]
        names = ["leader", "has_leader", "current", "quorum_lost", "failed", "cluster_size"]
        assert [found[f"meta_{name}"] for name in names] == [number == leader, 1, 1, 0, 0, 3]
        assert (found["meta_term"], found["meta_committed_index"]) == (state["term"], state["committed"])
        assert found["ha_assets"] == 1


def test_a_group_that_has_stopped_says_why(cluster: Operated, tmp_path: Path) -> None:
    leader = cluster.leader()
    failing = (leader + 1) % 3
    if cluster.kinds[failing].is_reference:
        pytest.skip("nats-server goes on")
    meta = tmp_path / str(failing) / "jetstream" / "$SYS" / "_js_" / "_meta_"
    (meta / "tav.idx.tmp").mkdir()
    with cluster.operator(leader) as caller:
        assert caller.request("$JS.API.META.LEADER.STEPDOWN").json["success"]
    stopped = "JetStream meta layer is not running: the log or a file could not be written"
    until(lambda: health(cluster[failing])[1].get("error", "").startswith(stopped))
    page = health(cluster[failing])[1]
    assert "tav.idx: Is a directory" in page["error"]
    found = metrics(cluster[failing])
    assert (found["meta_failed"], found["meta_current"]) == (1, 0)
    wal_error = monitor(cluster[failing], "/raftz")["$SYS"]["_meta_"]["wal_error"]
    assert page["error"].endswith(wal_error)
    others = {0, 1, 2} - {failing}
    until(lambda: len({cluster.meta(number).get("leader") for number in others} - {None, f"s{failing}"}) == 1)
