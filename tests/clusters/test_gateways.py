"""Clusters of gnats and nats-server that find each other by gateways, lose each other, and meet again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.certs import Certificates
from support.clusters import line, star
from support.launch import Launch, launcher
from support.monitor import monitor
from support.servers import REFERENCE, Kind, selected, until
from support.superclusters import SuperCluster, inbound, outbound

from .conftest import require_all
from .members import ACCOUNTS, OLD, Client, member_kinds, named, rows

pytestmark = pytest.mark.timeout(120)

PAIRS = rows(2, 3)[-2:]
OLD_PAIRS = [pair for kind in member_kinds()[:1] for pair in ((kind, OLD), (OLD, kind))]
ALL_PAIRS = [*PAIRS, *OLD_PAIRS]
TRIPLES = rows(3, 2)

Run = Callable[..., SuperCluster]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Start a super-cluster of single servers of these kinds, and wait until it is a full mesh."""

    def run(*clusters: tuple[Kind, ...], **how: object) -> SuperCluster:
        for kinds in clusters:
            require_all(kinds)
        made = SuperCluster(launch, clusters, **how)  # type: ignore[arg-type]
        made.wait_mesh()
        return made

    launch: Launch
    with launcher(REFERENCE, tmp_path) as launch:
        yield run


def dials(made: SuperCluster, number: int) -> int:
    """Return how many connections a server has made to others."""
    return made[number].log.count("Creating outbound gateway connection to")


@pytest.mark.parametrize("kinds", ALL_PAIRS, ids=named)
def test_two_clusters_of_which_one_names_the_other(run: Run, kinds: tuple[Kind, Kind]) -> None:
    made = run(*((kind,) for kind in kinds), remotes=line)
    configured = [outbound(made[number])[f"c{1 - number}"]["configured"] for number in (0, 1)]
    assert configured == [False, True]
    assert [dials(made, number) for number in (0, 1)] == [1, 1]


@pytest.mark.parametrize("kinds", TRIPLES, ids=named)
def test_three_clusters_become_a_mesh_from_one_seed(run: Run, kinds: tuple[Kind, ...]) -> None:
    made = run(*((kind,) for kind in kinds), remotes=star)
    assert [dials(made, number) for number in range(3)] == [2, 2, 2]
    assert [inbound(made[number]) for number in range(3)] == [2, 2, 2]


@pytest.mark.parametrize("kinds", ALL_PAIRS, ids=named)
def test_a_cluster_that_starts_again_is_found(run: Run, kinds: tuple[Kind, Kind]) -> None:
    made = run(*((kind,) for kind in kinds), remotes=line)
    made[0].kill()
    until(lambda: outbound(made[1]) == {})
    made[0].start_again()
    made.wait_mesh()


@pytest.mark.parametrize("kinds", ALL_PAIRS, ids=named)
def test_all_servers_of_a_cluster_connect_to_each_cluster(run: Run, kinds: tuple[Kind, Kind]) -> None:
    """The second server of the first cluster has no remotes, and hears of the other one from the first."""
    made = run((kinds[0], kinds[1]), (kinds[1],), remotes=line)
    until(lambda: urls_of(made, 1, "c0") == sorted(f"127.0.0.1:{port}" for port in made.ports[0]))


def urls_of(made: SuperCluster, number: int, name: str) -> list[str]:
    """Return the URLs of another cluster that the first server of a cluster knows."""
    remotes = monitor(made[number], "/varz")["gateway"]["gateways"]
    return next(sorted(remote["urls"]) for remote in remotes if remote["name"] == name)


@pytest.mark.parametrize("kinds", ALL_PAIRS, ids=named)
def test_the_system_account_reaches_all_clusters(run: Run, kinds: tuple[Kind, Kind]) -> None:
    made = run(*((kind,) for kind in kinds), remotes=line, config=ACCOUNTS)
    with Client(made[0], "s") as observer:
        with Client(made[1], "s") as other:
            observer.subscribe("$SYS.SERVER.*.SHUTDOWN")
            observer.reachable_from(other)

            def statistics() -> dict[str, int]:
                """Return how many servers each server knows, by name; those that answer soon."""
                inbox = observer.ask("$SYS.REQ.SERVER.PING")
                answers = [message for message in observer.heard(other) if message.subject == inbox]
                return {
                    each.json["server"]["name"]: each.json["statsz"]["active_servers"] for each in answers
                }

            until(lambda: statistics() == {"c0s0": 2, "c1s0": 2})
        made[1].stop()
        if kinds[1].is_reference:
            # It may close a connection with input that it has not read, and what it sent last is lost then.
            until(lambda: not monitor(made[0], "/gatewayz")["inbound_gateways"])
            observer.fence()
            if not any(each.subject.endswith(".SHUTDOWN") for each in observer.kept()):
                return
        until(lambda: statistics_alone(observer) == {"c0s0": 1})
        assert [each.json["name"] for each in observer.kept() if each.subject.endswith(".SHUTDOWN")] == [
            "c1s0"
        ]


def statistics_alone(observer: Client) -> dict[str, int]:
    """Return how many servers the observer's server knows, by name."""
    answer = observer.request("$SYS.REQ.SERVER.PING").json
    return {answer["server"]["name"]: answer["statsz"]["active_servers"]}


@pytest.mark.parametrize("kinds", PAIRS[:1], ids=named)
def test_tls(run: Run, kinds: tuple[Kind, Kind], certs: Certificates) -> None:
    """A certificate with a name alone: addresses of gossip stand for the name of the first URL."""
    node = certs.named_node
    block = f'tls {{ {node.tls_block}, ca_file: "{certs.ca.cert_file}" }}'
    made = run(*((kind,) for kind in kinds), block=block, host="localhost")
    for number in 0, 1:
        assert outbound(made[number])[f"c{1 - number}"]["connection"]["tls_version"] == "1.3"


def test_an_account_whose_name_has_a_blank_harms_nobody(run: Run) -> None:
    """With nats-server, interest in it closes the connection again and again."""
    kinds = [kind for kind in selected() if not kind.is_reference][:1] * 2
    odd = ACCOUNTS.replace("accounts {", 'accounts {\n"A B" { users: [ { user: x, password: p } ] }')
    made = run(*((kind,) for kind in kinds), remotes=line, config=odd)
    with Client(made[0], "x") as here, Client(made[1], "x") as there, Client(made[0]) as far:
        for client in here, there:
            client.subscribe("odd")
            client.subscribe("odd", "group")
        with Client(made[1]) as near:
            far.subscribe("far")
            far.reachable_from(near)
            near.publish("far", b"x")
            assert far.payloads(near) == [b"x"]
    for number in range(2):
        assert 'Account "A B" is of this server alone: its name has a blank' in made[number].log
        assert "closed" not in "".join(text for text in made[number].log.splitlines() if " - gid:" in text)
