"""The members of `gnats cluster up`: what is refused, ports, configuration files."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from gnats import Options
from gnats.commands.cluster import plan as module
from gnats.commands.cluster.plan import Plan, configuration, plan_members
from gnats.errors import OptionError

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        (Plan(0), "a cluster has 1 to 32 servers, not 0"),
        (Plan(33), "a cluster has 1 to 32 servers, not 33"),
        (Plan(3, port=0), "--port takes -1 (free ports) or 1 to 65533, not 0"),
        (Plan(3, port=65534), "--port takes -1 (free ports) or 1 to 65533, not 65534"),
        (Plan(3, name="a b"), "--name takes a name without blanks"),
        (Plan(3, name=""), "--name takes a name without blanks"),
        (Plan(3, threads=-1), "--threads takes 0 or more, not -1"),
        (Plan(3, leafs=-1), "--leaf takes 0 to 32 leaf nodes, not -1"),
        (Plan(3, leafs=33), "--leaf takes 0 to 32 leaf nodes, not 33"),
        (Plan(3, clusters=0), "--gateways takes 1 to 10 clusters of 3 servers, not 0"),
        (Plan(3, clusters=11), "--gateways takes 1 to 10 clusters of 3 servers, not 11"),
        (Plan(2, port=65532, clusters=3), "--port takes -1 (free ports) or 1 to 65530, not 65532"),
        (Plan(3, port=65532, leafs=2), "--port takes -1 (free ports) or 1 to 65531, not 65532"),
    ],
)
def test_what_cannot_be_is_one_line(plan: Plan, error: str) -> None:
    with pytest.raises(OptionError) as raised:
        plan.validate()
    assert str(raised.value) == error


@pytest.mark.parametrize(
    "plan", [Plan(1), Plan(32, leafs=32), Plan(3, port=65533), Plan(3, port=-1, threads=0)]
)
def test_the_rest_is_accepted(plan: Plan) -> None:
    plan.validate()


def test_members_have_ports_in_a_row_or_free_ones() -> None:
    in_a_row = plan_members(Plan(2, port=4222), itertools.count(1000).__next__)
    assert [(each.name, each.client_url) for each in in_a_row] == [
        ("s1", "nats://127.0.0.1:4222"),
        ("s2", "nats://127.0.0.1:4223"),
    ]
    free = plan_members(Plan(2, port=-1), itertools.count(1000).__next__)
    ports = [port for each in free for port in (each.client_port, each.monitor_port, each.route_port)]
    assert sorted(ports) == list(range(1000, 1006))


def test_free_ports_ascend() -> None:
    members = plan_members(Plan(3, port=-1, leafs=2), itertools.count(1000, -1).__next__)
    for ports in [each.client_port for each in members], [each.monitor_port for each in members]:
        assert ports == sorted(ports)


def test_without_aiohttp_there_is_no_monitoring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    [member] = members = plan_members(Plan(1), lambda: 1)
    assert member.monitor_url == ""
    assert "http" not in configuration(Plan(1), member, members, Path())


def read(plan: Plan, number: int, folder: Path) -> Options:
    """Return the options of one of the servers, whose ports begin at 1000."""
    members = plan_members(plan, itertools.count(1000).__next__)
    file = folder / "server.conf"
    file.write_text(configuration(plan, members[number], members, folder))
    return Options.from_file(file)


def test_leaf_nodes_come_after_the_members() -> None:
    members = plan_members(Plan(2, leafs=2), itertools.count(1000).__next__)
    assert [(each.name, each.client_port, each.is_leaf) for each in members] == [
        ("s1", 4222, False),
        ("s2", 4223, False),
        ("l1", 4224, True),
        ("l2", 4225, True),
    ]
    assert all(each.leaf_port and each.route_port for each in members[:2])
    assert not any(each.leaf_port or each.route_port for each in members[2:])


def test_a_leaf_node_dials_all_members_each_another_one_first(tmp_path: Path) -> None:
    plan = Plan(2, leafs=3)
    ports = [read(plan, number, tmp_path).leafnodes.port for number in range(2)]
    assert all(ports)
    urls = [f"127.0.0.1:{port}" for port in ports]
    for number, order in (2, urls), (3, urls[::-1]), (4, urls):
        opts = read(plan, number, tmp_path)
        [remote] = opts.leafnodes.remotes
        assert ([url.host for url in remote.urls], remote.no_randomize) == (order, True)
        assert (opts.server_name, opts.cluster.port, opts.leafnodes.port) == (f"l{number - 1}", 0, 0)


def test_clusters_have_gateways_to_each_other(tmp_path: Path) -> None:
    plan = Plan(2, name="C", leafs=3, clusters=2)
    members = plan_members(plan, itertools.count(1000).__next__)
    assert [(each.name, each.cluster) for each in members] == [
        ("s1", "C-1"), ("s2", "C-1"), ("s3", "C-2"), ("s4", "C-2"),
        ("l1", "C-1"), ("l2", "C-2"), ("l3", "C-1"),
    ]  # fmt: skip
    opts = read(plan, 2, tmp_path)
    assert (opts.cluster.name, opts.gateway.name, opts.gateway.port) == (
        "C-2",
        "C-2",
        members[2].gateway_port,
    )
    assert [route.host for route in opts.cluster.routes] == [f"127.0.0.1:{members[3].route_port}"]
    [remote] = opts.gateway.gateways
    assert (remote.name, [url.host for url in remote.urls]) == (
        "C-1",
        [f"127.0.0.1:{member.gateway_port}" for member in members[:2]],
    )
    for number, hubs in (4, (0, 1)), (5, (2, 3)), (6, (1, 0)):
        leaf = read(plan, number, tmp_path)
        assert not leaf.gateway.configured
        assert [url.host for url in leaf.leafnodes.remotes[0].urls] == [
            f"127.0.0.1:{members[hub].leaf_port}" for hub in hubs
        ]


def test_one_server_has_no_cluster(tmp_path: Path) -> None:
    opts = read(Plan(1), 0, tmp_path)
    assert (opts.cluster.port, opts.leafnodes.configured, opts.jetstream.enabled) == (0, False, False)


def test_a_hub_and_its_leaf_nodes_have_jetstream_domains_of_their_own(tmp_path: Path) -> None:
    plan = Plan(1, jetstream=True, leafs=1)
    assert [read(plan, number, tmp_path).jetstream.domain for number in range(2)] == ["hub", "l1"]
    assert read(Plan(1, jetstream=True), 0, tmp_path).jetstream.domain == ""


@pytest.mark.parametrize("name", ["C", 'a"b\\c'])
def test_a_configuration_is_what_was_asked_for(name: str, tmp_path: Path) -> None:
    plan = Plan(3, name=name, threads=2, jetstream=True)
    members = plan_members(plan, itertools.count(1000).__next__)
    file = tmp_path / "s2.conf"
    file.write_text(configuration(plan, members[1], members, tmp_path))
    opts = Options.from_file(file)
    assert (opts.server_name, opts.host, opts.port, opts.io_threads) == ("s2", "127.0.0.1", 4223, 2)
    assert (opts.http_host, opts.http_port) == ("127.0.0.1", members[1].monitor_port)
    assert (opts.jetstream.enabled, opts.jetstream.store_dir) == (True, str(tmp_path / "s2"))
    cluster = opts.cluster
    assert (cluster.name, cluster.host, cluster.port) == (name, "127.0.0.1", members[1].route_port)
    ports = [members[0].route_port, members[2].route_port]
    assert [route.host for route in cluster.routes] == [f"127.0.0.1:{port}" for port in ports]
