"""A hub and a spoke of every two kinds: nkeys, credentials of JWTs, what permissions do on both sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.launch import Launch, launcher
from support.monitor import monitor
from support.servers import REFERENCE, Kind, Server, reserve_port, until
from support.trust import Trust
from support.wire import Connection

from gnats.jwt.claims import Permission
from gnats.jwt.decorated import format_user_config
from gnats.nkeys.nkeys import KeyPair, Prefix

from .conftest import require_all
from .members import few_pairs, named
from .test_leafnodes import leafs

pytestmark = pytest.mark.timeout(120)
KINDS = pytest.mark.parametrize("kinds", few_pairs(), ids=named)


def pair(launch: Launch, kinds: tuple[Kind, Kind], hub: str, remote: str, spoke: str = "") -> list[Server]:
    """Start a hub with lines `hub`, where PORT is the port for leaf nodes, and a spoke of it."""
    port = reserve_port(launch)
    servers = [launch("-m", "-1", "-D", config=hub.replace("PORT", f"127.0.0.1:{port}"), kind=kinds[0])]
    url = json.dumps(f"nats-leaf://127.0.0.1:{port}")
    config = f"leafnodes {{ reconnect: '0.2s'\nremotes [ {{ url: {url}\n{remote}\n}} ] }}\n{spoke}"
    servers.append(launch("-m", "-1", "-D", config=config, kind=kinds[1]))
    return servers


def account(server: Server) -> Any:
    until(lambda: bool(leafs(server)))
    return leafs(server)[0]["account"]


@KINDS
@pytest.mark.parametrize("where", ["leafnodes", "users"])
def test_an_nkey(tmp_path: Path, kinds: tuple[Kind, Kind], where: str) -> None:
    require_all(kinds)
    key = KeyPair.create(Prefix.USER)
    if where == "leafnodes":
        block = f"authorization {{ nkey: {key.public_key}, account: A }}"
        hub = f"leafnodes {{ listen: PORT, {block} }}\naccounts {{ A {{}} }}"
    else:
        users = f"users [ {{ nkey: {key.public_key}, permissions {{ publish: foo }} }} ]"
        hub = f"leafnodes {{ listen: PORT }}\naccounts {{ A {{ {users} }} }}"
    with launcher(REFERENCE, tmp_path) as launch:
        servers = pair(launch, kinds, hub, f"nkey: {key.seed}")
        assert account(servers[0]) == "A"
        assert account(servers[1]) == "$G"


@KINDS
def test_the_wrong_nkey(tmp_path: Path, kinds: tuple[Kind, Kind]) -> None:
    require_all(kinds)
    keys = KeyPair.create(Prefix.USER), KeyPair.create(Prefix.USER)
    hub = f"leafnodes {{ listen: PORT, authorization {{ nkey: {keys[0].public_key} }} }}"
    with launcher(REFERENCE, tmp_path) as launch:
        servers = pair(launch, kinds, hub, f"nkey: {keys[1].seed}")
        servers[0].wait_log(rf'authentication error - Nkey "{keys[1].public_key}"\n')
        servers[1].wait_log(r"\[ERR\] .* Leafnode Error 'Authorization Violation'\n")


@KINDS
def test_credentials(tmp_path: Path, kinds: tuple[Kind, Kind]) -> None:
    """The user's permissions are those of the spoke: what it announces, and what it sends."""
    require_all(kinds)
    trust = Trust()
    own = trust.account()
    user = own.user(pub=Permission(allow=("out.>",)), sub=Permission(allow=("in.>",)))
    creds = tmp_path / "user.creds"
    creds.write_text(format_user_config(user.jwt, user.key))
    with launcher(REFERENCE, tmp_path) as launch:
        hub, spoke = pair(
            launch, kinds, f"leafnodes {{ listen: PORT }}\n{trust.config(own)}", f'credentials: "{creds}"'
        )
        assert account(hub) == own.name
        spoke.wait_log(r"\[INF\] LeafNode Remote for Account \$G uses credentials file .* restricted")
        with own.user().connect(hub) as there, Connection(spoke.address) as here:
            here.send(b'CONNECT {"verbose":false}\r\nSUB in.a 1\r\nSUB other 2\r\n')
            there.send(b"SUB out.a 1\r\nSUB other 2\r\n")
            here.fence(), there.fence()
            until(lambda: "in.a" in leafs(hub)[0].get("subscriptions_list", ()))
            until(lambda: "out.a" in leafs(spoke)[0].get("subscriptions_list", ()))
            here.send(b"PUB other 1\r\nx\r\nPUB out.a 1\r\ny\r\n")
            assert there.read_until(b"MSG out.a 1 1\r\ny\r\n")[-1:] == [b"MSG out.a 1 1\r\ny\r\n"]
            there.send(b"PUB other 1\r\nx\r\nPUB in.a 1\r\nz\r\n")
            while (op := here.read_op()).startswith(b"MSG other"):
                pass  # its own
            assert op == b"MSG in.a 1 1\r\nz\r\n"


@KINDS
def test_a_spoke_in_operator_mode(tmp_path: Path, kinds: tuple[Kind, Kind]) -> None:
    require_all(kinds)
    trust = Trust()
    own = trust.account()
    with launcher(REFERENCE, tmp_path) as launch:
        hub, spoke = pair(
            launch, kinds, "leafnodes { listen: PORT }", f"account: {own.name}", trust.config(own)
        )
        assert (account(hub), account(spoke)) == ("$G", own.name)


@KINDS
def test_a_user_is_revoked(tmp_path: Path, kinds: tuple[Kind, Kind]) -> None:
    require_all(kinds)
    trust = Trust()
    own = trust.account()
    user = own.user()
    creds = tmp_path / "user.creds"
    creds.write_text(format_user_config(user.jwt, user.key))
    resolver = f'{{ type: full, dir: "{tmp_path}/jwt" }}'
    with launcher(REFERENCE, tmp_path) as launch:
        hub, _ = pair(
            launch,
            kinds,
            f"leafnodes {{ listen: PORT }}\n{trust.config(own, resolver=resolver)}",
            f'credentials: "{creds}"',
        )
        assert account(hub) == own.name
        own.nats.revocations = {user.key.public_key: 1 << 40}
        trust.push(hub, own)
        hub.wait_log(r"Leafnode connection closed: Credentials Revoked")


@pytest.mark.parametrize("kinds", [each for each in few_pairs() if not each[1].is_reference], ids=named)
def test_the_leaf_node_says_why_it_is_refused(tmp_path: Path, kinds: tuple[Kind, Kind]) -> None:
    require_all(kinds)
    with launcher(REFERENCE, tmp_path) as launch:
        hub = "leafnodes { listen: PORT, authorization { user: u, password: p } }"
        _, spoke = pair(launch, kinds, hub, "")

        def problems() -> list[Any]:
            found: list[Any] = monitor(spoke, "/linkz")["problems"]
            return found

        (problem,) = until(problems)
        assert (problem["problem"], problem["error"]) == (
            "missing",
            "the other server says 'Authorization Violation'",
        )


@pytest.mark.parametrize("kinds", [each for each in few_pairs() if not each[1].is_reference], ids=named)
def test_the_leaf_node_says_when_it_dials_the_port_for_clients(
    tmp_path: Path, kinds: tuple[Kind, Kind]
) -> None:
    require_all(kinds)
    with launcher(REFERENCE, tmp_path) as launch:
        hub = launch(kind=kinds[0])
        remote = f"remotes [ {{ url: 'nats-leaf://127.0.0.1:{hub.port}' }} ]"
        config = f"leafnodes {{ reconnect: '0.2s'\n{remote} }}"
        spoke = launch("-m", "-1", config=config, kind=kinds[1])
        (problem,) = until(lambda: monitor(spoke, "/linkz")["problems"])
        where = f"127.0.0.1:{hub.port} is a port for clients, not for leaf nodes"
        assert problem["error"] == f"Incorrect Port: {where}"
