"""A server that has the name of a cluster and no routes: what clients, services and monitoring see of it."""

from __future__ import annotations

import pytest
from support.accounts import Member, members
from support.caller import Caller
from support.launch import Launch
from support.monitor import monitor
from support.servers import Server

pytestmark = pytest.mark.timeout(120)

CONFIG = """
server_name: srv
jetstream { store_dir: js, max_mem: 10M, max_file: 10M }
accounts {
  SYS { users: [{user: s, password: p}] }
  A { users: [{user: a, password: p}], jetstream: enabled
      exports [ { service: "svc" } ]
      mappings {
        "near": [ { destination: here, weight: 100, cluster: "C<1>" }, { destination: there, weight: 100 } ]
        "far": [ { destination: here, weight: 100, cluster: D }, { destination: there, weight: 100 } ]
      }
  }
  B { users: [{user: b, password: p}], imports [ { service: { account: A, subject: svc }, share: true } ] }
}
system_account: SYS
cluster { name: "C<1>" }
"""


@pytest.fixture(scope="module")
def named(launch_shared: Launch) -> Server:
    return launch_shared("-m", "-1", config=CONFIG)


def test_info_names_it(named: Server) -> None:
    with Caller(named, user="a", password="p") as caller:
        info = caller.connection.info
    names = list(info)
    assert info["cluster"] == "C<1>"
    assert names[names.index("cluster") + 1] == "api_lvl"
    assert "cluster_dynamic" not in info


def test_mappings_for_it_count(named: Server) -> None:
    member = Member(named, "a")
    member.subscribe(b">")
    for subject, to in (b"near", b"here"), (b"far", b"there"):
        assert member.publish(subject, b"x").startswith(b"MSG %s " % to)
    member.connection.close()


def test_monitoring_names_it(named: Server) -> None:
    assert monitor(named, "/varz")["cluster"] == {"name": "C<1>"}
    assert monitor(named, "/routez")["num_routes"] == 0
    with Caller(named, user="a", password="p") as caller:
        answer = caller.request("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["stored"]})
        assert "error" not in answer.json
        info = caller.request("$JS.API.STREAM.INFO.S").json
        assert info["cluster"] == {"name": "C<1>", "leader": "srv"}
        page = monitor(named, "/jsz?streams=true&accounts=true")
        (detail,) = page["account_details"][0]["stream_detail"]
        assert detail["cluster"] == info["cluster"]
        caller.request("$JS.API.STREAM.DELETE.S")


def test_the_server_describes_itself_with_it(named: Server) -> None:
    with Caller(named, user="s", password="p") as caller:
        server = caller.request("$SYS.REQ.SERVER.PING").json["server"]
        assert server["cluster"] == "C<1>"
        assert list(server)[:5] == ["name", "host", "id", "cluster", "ver"]
        for body in {"cluster": "C<"}, {"cluster": "C<1>", "exact_match": True}:
            assert caller.request("$SYS.REQ.SERVER.PING", body).json["server"]["cluster"] == "C<1>"
        assert caller.unanswered("$SYS.REQ.SERVER.PING", {"cluster": "D"}, "$SYS.REQ.SERVER.PING")


def test_a_service_is_told_of_it(named: Server) -> None:
    with members(named, "ab") as (server, client):
        server.subscribe(b"svc")
        client.subscribe(b"inbox")
        client.say(b"PUB svc inbox 0", b"")
        request = server.hear()
        assert rb',"server":"srv","cluster":"C\u003c1\u003e",' in request, request


def test_advisories_name_it(named: Server) -> None:
    with Caller(named, user="a", password="p") as caller:
        caller.subscribe("$JS.EVENT.ADVISORY.API")
        caller.request("$JS.API.INFO")
        client = caller.next_on("$JS.EVENT.ADVISORY.API").json["client"]
    assert (client["server"], client["cluster"]) == ("srv", "C<1>")


def test_the_log_names_it(named: Server) -> None:
    assert "[INF]   Cluster:  C<1>\n" in named.log
