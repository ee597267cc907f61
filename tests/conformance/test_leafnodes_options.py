"""The leafnodes block as monitoring, clients and reloads see it; default_js_domain.

gnats does not serve leaf nodes yet: its options are compared with those of a running reference.

Intended differences:

* gnats completes an IPv6 address without a port; the reference puts it into a second pair of brackets.
* gnats does not show a password in the refusal of a reload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.certs import Certificates
from support.launch import Launch, launcher
from support.monitor import monitor
from support.reload import attempt, refused, without_always
from support.servers import REFERENCE, Server, reserve_port
from support.wire import HELLO, Connection, connect_op, publish_op

from gnats import Server as Embedded
from gnats.commands.flags import configure_options
from gnats.errors import OptionError
from gnats.options.leafnode_changes import leafnode_changes
from gnats.options.options import Options

from .cases import params

pytestmark = pytest.mark.timeout(120)

Read = Callable[[str], Options]


@pytest.fixture(scope="module")
def launch_reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    with launcher(REFERENCE, tmp_path_factory.mktemp("reference")) as launch:
        yield launch


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Read a configuration as the command does, and let leaf nodes pass."""
    monkeypatch.setattr("gnats.options.options.check_supported", lambda opts: None, raising=False)

    def read(text: str) -> Options:
        path = tmp_path / "gnats.conf"
        path.write_text(text)
        return configure_options(["-a", "127.0.0.1", "-p", "-1", "-c", str(path)]).options

    return read


# -- monitoring ----------------------------------------------------------------------------------------------

SHOWN = {
    "nothing": "",
    "no port": "leafnodes { host: 127.0.0.1, write_deadline: 3s }",
    "a port": "leafnodes { port: %p }",
    "authorization": "leafnodes { listen: '127.0.0.1:%p', authorization { user: a, timeout: 1.5 } }",
    "deadlines": "leafnodes { port: %p, write_deadline: 3s, write_timeout: close }\n"
    "cluster { name: C, write_deadline: 4s, write_timeout: retry }",
    "TLS": "leafnodes { port: %p, tls { %t, timeout: 3 } }",
    "TLS, verified": "leafnodes { port: %p, tls { %t, verify: true } }",
    "TLS without a port": "leafnodes { tls { %t, timeout: 3 } }",
    "remotes": """
        accounts { A {} }
        leafnodes {
          remotes: [
            { url: "nats://u:p@127.0.0.1:1", disabled: true }
            { urls: ["nats://127.0.0.1", "tls://[::1]:1"], account: A, disabled: true, tls {}
              deny_imports: "a", deny_exports: ["b", "c.>"] }
            { url: "nats://localhost:1", deny_exports: ["b"], disabled: true, tls { timeout: 1.5 } }
          ]
        }
    """,
}


@pytest.mark.parametrize("text", params({name: (text,) for name, text in SHOWN.items()}))
async def test_varz(text: str, read: Read, launch_reference: Launch, certs: Certificates) -> None:
    config = text.replace("%p", str(reserve_port(read))).replace("%t", certs.server.tls_block)
    reference = launch_reference("-m", "-1", config=config)
    server = Embedded(read(config))
    expected, found = monitor(reference, "/varz"), server.varz()
    for member in "leaf", "leafnodes", "cluster":
        assert found[member] == expected[member]
    assert list(found["leaf"]) == list(expected["leaf"])  # type: ignore[call-overload]
    assert found["config_digest"] == expected["config_digest"]


@pytest.mark.parametrize("name", ["srv", ""])
async def test_a_server_with_remotes_has_its_name_as_that_of_a_cluster(
    name: str, read: Read, launch_reference: Launch
) -> None:
    config = "leafnodes { remotes: [ { url: 'nats://127.0.0.1:1', disabled: true } ] }"
    config += f"\nserver_name: {name}" if name else ""
    reference = launch_reference("-m", "-1", config=config)
    with Connection(reference.address) as client:
        assert client.info.get("cluster", "") == name
    assert monitor(reference, "/varz")["cluster"] == {}
    assert "Cluster:" not in reference.log
    server = Embedded(read(config))
    assert server.opts.cluster.name == name
    assert server.varz()["cluster"] == {}


async def test_a_reload_keeps_that_name(read: Read) -> None:
    config = "server_name: srv\nleafnodes { remotes: [ { url: 'nats://127.0.0.1:1', disabled: true } ] }"
    async with Embedded(read(config)) as server:
        await server.reload(read(f"{config}\nmax_payload: 99"))
        assert server.opts.max_payload == 99
        assert server.opts.cluster.name == "srv"
        assert server.varz()["cluster"] == {}
        await server.reload(read(f"{config}\ncluster {{ name: C }}"))
        assert server.varz()["cluster"] == {"name": "C"}


# -- reloads -------------------------------------------------------------------------------------------------

ONE = "{ url: 'nats://127.0.0.1:1', disabled: true }"
BASE = f"accounts {{ A {{}} }}\nleafnodes {{ host: 127.0.0.1, port: %p, remotes: [ {ONE} ]\n%s }}"
REFUSED = {
    "host": ("host: localhost", ONE),
    "port": ("port: 1", ONE),
    "account": ("authorization { account: A }", ONE),
    "user": ("authorization { user: a }", ONE),
    "timeout": ("authorization { timeout: 1.5 }", ONE),
    "advertise": ("advertise: 'a:1'", ONE),
    "no_advertise": ("no_advertise: true", ONE),
    "reconnect": ("reconnect: 1500ms", ONE),
    "write_deadline": ("write_deadline: 1s", ONE),
    "write_timeout": ("write_timeout: retry", ONE),
    "min_version": ("min_version: '2.9.0'", ONE),
    "isolate": ("isolate: true", ONE),
    "dial_timeout": ("dial_timeout: 2s", ONE),
    "tls": ("tls { %t }", ONE),
    "tls with a time": ("tls { %t, timeout: 1 }", ONE),
    "pins": ("tls { %t, timeout: 2, pinned_certs: ['" + "a" * 64 + "'] }, authorization { timeout: 2 }", ONE),
    "map": ("tls { %t, %c, verify_and_map: true }, authorization { timeout: 2 }", ONE),
    **{
        text.partition(":")[0]: ("", ONE.replace("disabled", f"{text}, disabled"))
        for text in (
            "hub: true",
            "tls {}, hub: false",
            "deny_imports: [a, b]",
            "deny_exports: a",
            "no_randomize: true",
            "first_info_timeout: 2s",
            "dial_timeout: 1500ms",
            "ws_compression: true",
            "isolate: true",
            "request_isolation: true",
            "ignore_discovered_servers: true",
            "proxy { url: 'http://a', timeout: 5s }, hub: false",
        )
    },
}
ALLOWED = {
    "nothing": ("", ONE),
    "compression": ("compression: off", ONE),
    "levels": ("compression { mode: auto, rtt: [5ms, 1s] }", ONE),
    "compression of a remote": ("", ONE.replace("disabled", "compression: s2_best, disabled")),
    "levels of a remote": ("", ONE.replace("disabled", "compression: { mode: auto, rtt: [5ms]}, disabled")),
    "tls": ("tls { %t }, authorization { timeout: 2 }", ONE),
    "tls first": ("tls { %t, handshake_first: auto }, authorization { timeout: 2 }", ONE),
    "another account": ("", ONE.replace("disabled", "account: A, disabled")),
    "a password": ("", ONE.replace("//", "//u:p@")),
    "no remote": ("", ""),
    "a second": ("", f"{ONE}, {ONE.replace('disabled', 'creds: none, disabled')}"),
    "on": ("", ONE.replace("true", "false")),
}


def configs(one: str, remotes: str, port: int, certs: Certificates) -> tuple[str, str]:
    """Return a configuration, and the one of a reload."""
    after = BASE.replace("%s", one).replace(f"[ {ONE} ]", f"[ {remotes} ]")
    tls, authority = certs.server.tls_block, f'ca_file: "{certs.ca.cert_file}"'
    after = after.replace("%t", tls).replace("%c", authority)
    before = BASE.replace("%s", "")
    return before.replace("%p", str(port)), after.replace("%p", str(port))


@pytest.fixture(scope="module")
def steady(launch_reference: Launch, certs: Certificates) -> tuple[Server, int]:
    """A reference whose configuration no test changes with success, and its port for leaf nodes."""
    port = reserve_port(launch_reference)
    return launch_reference(config=configs("", ONE, port, certs)[0]), port


@pytest.mark.parametrize(("one", "remotes"), params(REFUSED))
def test_what_a_reload_refuses(
    one: str, remotes: str, read: Read, steady: tuple[Server, int], certs: Certificates
) -> None:
    reference, port = steady
    before, after = configs(one, remotes, port, certs)
    said = refused(reference, after)
    with pytest.raises(OptionError) as raised:
        leafnode_changes(read(before).leafnodes, read(after).leafnodes)
    assert str(raised.value) == said


@pytest.mark.parametrize(("one", "remotes"), params(ALLOWED))
def test_what_a_reload_changes(
    one: str, remotes: str, read: Read, launch_reference: Launch, certs: Certificates
) -> None:
    before, after = configs(one, remotes, reserve_port(read), certs)
    reference = launch_reference(config=before)
    said = without_always(attempt(reference, after))
    changes = leafnode_changes(read(before).leafnodes, read(after).leafnodes)
    assert list(changes.notices()) == said


# -- default_js_domain ---------------------------------------------------------------------------------------

DOMAINS = """
accounts {
  A { users: [ {user: a, password: p} ], mappings { "$JS.API.INFO": x, "mine": y } }
  B { users: [ {user: b, password: p} ] }
  SYS {}
}
system_account: SYS
default_js_domain { A: hub, B: "" }
"""


def test_the_api_of_an_account_without_jetstream_is_that_of_its_domain(launch: Launch) -> None:
    server = launch(config=DOMAINS)
    expected = {
        "$JS.API.INFO": "$JS.hub.API.INFO",
        "$JS.API.STREAM.INFO.S": "$JS.hub.API.STREAM.INFO.S",
        "$JS.API.CONSUMER.MSG.NEXT.S.C": "$JS.hub.API.CONSUMER.MSG.NEXT.S.C",
        "$JS.API.DIRECT.GET.S": "$JS.hub.API.DIRECT.GET.S",
        "$JS.API.META.LEADER.STEPDOWN": "$JS.hub.API.META.LEADER.STEPDOWN",
        "$JS.API.SERVER.REMOVE": "$JS.hub.API.SERVER.REMOVE",
        "$JS.API.ACCOUNT.PURGE.A": "$JS.hub.API.ACCOUNT.PURGE.A",
        "$KV.b.k": "$JS.hub.API.$KV.b.k",
        "$OBJ.b.M.k": "$JS.hub.API.$OBJ.b.M.k",
        "$JS.API.OTHER": "$JS.API.OTHER",
        "$JS.ACK.x": "$JS.ACK.x",
        "mine": "y",
    }
    for user, mapped in ("a", True), ("b", False):
        with Connection(server.address) as client:
            client.send(connect_op(user, "p") + b"SUB > 1\r\n")
            client.fence()  # the reference maps what it reads after CONNECT, not with it
            for subject, to in expected.items():
                client.send(publish_op(subject))
                heard = b"".join(client.fence())
                assert heard == b"MSG %s 1 0\r\n\r\n" % (to if mapped else subject).encode()


def test_default_domains_cannot_change(launch: Launch) -> None:
    server = launch(config=DOMAINS)
    assert "The option `default_js_domain` is a temporary backwards compatibility measure" in server.log
    why = refused(server, DOMAINS.replace("A: hub", "A: other"))
    assert why == (
        "config reload not supported for JsAccDefaultDomain: old=map[A:hub B:], new=map[A:other B:]"
    )


def test_the_global_account_has_a_domain_even_with_jetstream(launch: Launch) -> None:
    server = launch(config='jetstream { store_dir: js }\ndefault_js_domain { "$G": hub }')
    with Connection(server.address) as client:
        client.send(HELLO + b"SUB > 1\r\n" + publish_op("$JS.API.INFO"))
        assert client.fence() == [b"MSG $JS.hub.API.INFO 1 0\r\n\r\n"]
