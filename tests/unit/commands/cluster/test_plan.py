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
    ],
)
def test_what_cannot_be_is_one_line(plan: Plan, error: str) -> None:
    with pytest.raises(OptionError) as raised:
        plan.validate()
    assert str(raised.value) == error


@pytest.mark.parametrize("plan", [Plan(1), Plan(32), Plan(3, port=65533), Plan(3, port=-1, threads=0)])
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


def test_without_aiohttp_there_is_no_monitoring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    [member] = members = plan_members(Plan(1), lambda: 1)
    assert member.monitor_url == ""
    assert "http" not in configuration(Plan(1), member, members, Path())


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
