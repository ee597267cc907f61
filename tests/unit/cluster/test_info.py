"""The INFO and CONNECT of routes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gnats.cluster.info import OwnInfo, PeerConnect, PeerInfo
from gnats.cluster.name import ClusterName
from gnats.go.json import JSONError
from gnats.go.url import URL
from gnats.nkeys.identity import Identity
from gnats.options.options import Options
from gnats.options.values.auth import SubjectPermission
from gnats.options.values.cluster import ClusterOptions, Compression, RoutePermissions
from gnats.options.values.tls import TLSOptions

pytestmark = pytest.mark.timeout(60)


def own(*, generated: bool = False, urls: tuple[str, ...] = ("a:1",), **cluster: Any) -> OwnInfo:
    opts = Options(cluster=ClusterOptions(name="C", port=6222, **cluster)).baseline()
    name = ClusterName(lambda: ClusterOptions(name="C", generated=generated), lambda *_: None)
    made = OwnInfo(Identity("ID", "srv"), lambda: opts, name, lambda: urls)
    made.port = 6222
    return made


def fields(line: bytes) -> dict[str, Any]:
    assert line.endswith(b"\r\n")
    found: dict[str, Any] = json.loads(line[5:])
    return found


def test_the_first_info_has_nats_servers_fields_in_its_order() -> None:
    found = fields(own().initial(index=2))
    assert list(found) == [
        *("server_id", "server_name", "version", "proto", "go", "host", "port", "headers", "max_payload"),
        *("nonce", "cluster", "connect_urls", "compression", "lnoc", "lnocu", "ln"),
        *("route_pool_size", "route_pool_idx", "interest_digests", "group_passing"),
    ]
    assert (found["server_id"], found["proto"], found["port"]) == ("ID", 3, 6222)
    assert (found["compression"], found["route_pool_idx"], len(found["nonce"])) == ("accept", 2, 15)


def test_what_only_some_servers_send() -> None:
    permissions = RoutePermissions(SubjectPermission(("a",)), SubjectPermission(None, (">",)))
    found = fields(
        own(
            generated=True,
            advertise="h:7",
            no_advertise=True,
            username="u",
            password="p",
            permissions=permissions,
            pool_size=-1,
            compression=Compression("off"),
        ).initial(account="A", gossip_mode=2)
    )
    assert (found["host"], found["port"], found["ip"]) == ("h", 7, "nats-route://h:7/")
    assert (found["auth_required"], found["cluster_dynamic"]) == (True, True)
    assert (found["import"], found["export"]) == ({"allow": ["a"]}, {"deny": [">"]})
    assert (found["route_account"], found["gossip_mode"], found["compression"]) == ("A", 2, "off")
    assert not {"connect_urls", "route_pool_size", "route_pool_idx"} & found.keys()
    assert b"\\u003e" in own(permissions=permissions).line()


def test_tls_is_told_of() -> None:
    found = own(tls=TLSOptions())
    assert list(fields(found.initial()))[8:10] == ["tls_required", "tls_verify"]
    assert b'"tls_required":true' in found.connect(URL("nats", host="h:1"))


def test_later_infos_have_no_nonce() -> None:
    found = fields(own().line(ldm=True))
    assert found["ldm"]
    assert not {"nonce", "compression"} & found.keys()


def test_connect() -> None:
    line = own(generated=True).connect(URL("nats", "u", "p", "h:1"))
    assert line.startswith(b'CONNECT {"echo":true,"verbose":false,"pedantic":false,"user":"u","pass":"p",')
    expected = b'"tls_required":false,"headers":true,"name":"ID","cluster":"C","cluster_dynamic":true,'
    assert line.endswith(expected + b'"lnoc":true,"ln":true}\r\n')
    assert b"user" not in own().connect(URL("nats", host="h:1"))


def test_an_info_is_forwarded_with_all_that_is_known() -> None:
    sent = {
        "gossip_mode": 2,
        "ln": True,
        "what": 1,
        "server_id": "R",
        "nonce": "n",
        "connect_urls": ["a:1"],
        "port": 5,
        "lnoc": True,
    }
    info = PeerInfo.read(json.dumps(sent).encode())
    info.ip = "nats-route://1.2.3.4:5/"
    line = info.forwarded(1)
    assert line.endswith(b"}\r\n")
    assert fields(line) == {
        "server_id": "R",
        "server_name": "",
        "version": "",
        "proto": 0,
        "go": "",
        "host": "",
        "port": 5,
        "headers": False,
        "max_payload": 0,
        "ip": "nats-route://1.2.3.4:5/",
        "connect_urls": ["a:1"],
        "lnoc": True,
        "ln": True,
        "gossip_mode": 1,
    }
    assert list(fields(line))[-4:] == ["connect_urls", "lnoc", "ln", "gossip_mode"]


def test_a_peers_info_and_connect_are_checked_for_their_types() -> None:
    with pytest.raises(JSONError) as raised:
        PeerInfo.read(b'{"port":"x"}')
    assert "Go struct field Info.port of type int" in str(raised.value)
    with pytest.raises(JSONError):
        PeerConnect.read(b'{"echo":"x"}')
    connect = PeerConnect.read(b'{"name":"R","user":"u","pass":"p","cluster":"C","cluster_dynamic":true}')
    assert (connect.name, connect.user, connect.password, connect.cluster) == ("R", "u", "p", "")
    connect.read_cluster(b'{"cluster":"C","cluster_dynamic":true,"gateway":"G"}')
    assert (connect.cluster, connect.generated, connect.gateway) == ("C", True, "G")
    with pytest.raises(JSONError):
        connect.read_cluster(b'{"cluster":1}')
