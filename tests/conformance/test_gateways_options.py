"""The gateway block as monitoring and reloads see it.

The options of gnats are compared with those of a running reference.

Intended differences:

* gnats shows "..." where the reference shows the whole block, and addresses in memory.
* gnats shows the URLs of a remote in their order, the reference in any.
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

from gnats import Server as Embedded
from gnats.commands.flags import configure_options
from gnats.errors import OptionError
from gnats.options.options import Options
from gnats.options.reloadable import diff_options

from .cases import params

pytestmark = pytest.mark.timeout(120)

Read = Callable[[str], Options]


@pytest.fixture(scope="module")
def launch_reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    with launcher(REFERENCE, tmp_path_factory.mktemp("reference")) as launch:
        yield launch


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read a configuration as the command does."""

    def read(text: str) -> Options:
        path = tmp_path / "gnats.conf"
        path.write_text(text)
        return configure_options(["-a", "127.0.0.1", "-p", "-1", "-c", str(path)]).options

    return read


# -- monitoring ----------------------------------------------------------------------------------------------

SHOWN = {
    "nothing": "",
    "no name": "gateway { host: 127.0.0.1, write_deadline: 3s, reject_unknown: true }",
    "a port": "gateway { name: G, port: %p }",
    "authorization": "gateway { name: G, listen: '127.0.0.1:%p', authorization { user: a, timeout: 1.5 } }",
    "deadlines": "gateway { name: G, port: %p, write_deadline: 3s, write_timeout: close }\n"
    "cluster { name: G, write_deadline: 4s, write_timeout: retry }",
    "TLS": "gateway { name: G, port: %p, tls { %t, timeout: 3 } }",
    "TLS, default time": "gateway { name: G, port: %p, tls { %t } }",
    "TLS without a port": "gateway { tls { %t, timeout: 3 } }",
    "advertise": "gateway { name: G, port: %p, advertise: '127.0.0.1:%p', connect_retries: 5,"
    " connect_backoff: true, reject_unknown_cluster: true }",
    "remotes without a name": "gateway { gateways: [ {name: A, url: 'nats://127.0.0.1:1'} ] }",
    "remotes": """
        gateway {
          name: G, port: %p
          gateways: [
            { name: A, url: "nats://u:p@127.0.0.1:1" }
            { name: B, urls: ["nats://127.0.0.1:1", "tls://localhost:1"], tls {} }
            { name: C, url: "nats://127.0.0.1:1", tls { timeout: 1.5 } }
            { name: G, urls: ["nats://127.0.0.1:1", "tls://[::1]:1"] }
          ]
        }
    """,
    "remotes with one name": """
        gateway {
          name: G, host: 127.0.0.1, port: %p, tls { %t, timeout: 3 }
          gateways: [
            { name: A, url: "nats://127.0.0.1:1", tls { timeout: 1.5 } }
            { name: A, url: "nats://127.0.0.1:2" }
            { name: B, urls: ["nats://a:p@127.0.0.1:1", "nats://b:p@127.0.0.1:1"] }
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
    for each in expected, found:
        for remote in each["gateway"].get("gateways", ()):  # type: ignore[attr-defined]
            remote.get("urls", []).sort()
    for member in "gateway", "cluster":
        assert found[member] == expected[member]
    assert list(found["gateway"]) == list(expected["gateway"])  # type: ignore[call-overload]


# -- reloads -------------------------------------------------------------------------------------------------

ONE = "{ name: A, url: 'nats://127.0.0.1:1' }"
TWO = f"{ONE}, {ONE.replace('A', 'B')}"
BASE = "gateway { name: G, host: 127.0.0.1, port: %p, gateways: [ %r ]\n%s }"
REFUSED = {
    "host": ("host: localhost", TWO),
    "port": ("port: 1", TWO),
    "user": ("authorization { user: a }", TWO),
    "password": ("authorization { password: a }", TWO),
    "timeout": ("authorization { timeout: 1.5 }", TWO),
    "advertise": ("advertise: '127.0.0.1:1'", TWO),
    "connect_retries": ("connect_retries: 1", TWO),
    "connect_backoff": ("connect_backoff: true", TWO),
    "reject_unknown": ("reject_unknown: true", TWO),
    "write_deadline": ("write_deadline: 1s", TWO),
    "write_timeout": ("write_timeout: retry", TWO),
    "tls": ("tls { %t }", TWO),
    "tls with a time": ("tls { %t, timeout: 1 }, authorization { timeout: 2 }", TWO),
    "map": ("tls { %t, %c, verify_and_map: true }, authorization { timeout: 2 }", TWO),
    "known": (
        "tls { %t, %c, verify_cert_and_check_known_urls: true }, authorization { timeout: 2 }",
        TWO,
    ),
    "a third": ("", f"{TWO}, {ONE.replace('A', 'C')}"),
    "one": ("", ONE),
    "none": ("", ""),
    "another URL": ("", TWO.replace("127.0.0.1", "localhost")),
    "tls with a time of a remote": ("", TWO.replace("url", "tls { %t, timeout: 3 }, url")),
}
ALLOWED = {
    "nothing": ("", TWO),
    "another order": ("", ", ".join(reversed(TWO.split(", {"))).replace("name: B", "{ name: B", 1)),
    "tls": ("tls { %t, timeout: 2 }, authorization { timeout: 2 }", TWO),
    "pins": (
        "tls { %t, timeout: 2, pinned_certs: ['" + "a" * 64 + "'] }, authorization { timeout: 2 }",
        TWO,
    ),
    "tls of a remote": ("", TWO.replace("url", "tls { %t }, url")),
}


def configs(block: str, remotes: str, port: int, certs: Certificates) -> tuple[str, str]:
    """Return a configuration, and the one of a reload."""
    tls, authority = certs.server.tls_block, f'ca_file: "{certs.ca.cert_file}"'
    after = BASE.replace("%s", block).replace("%r", remotes).replace("%t", tls).replace("%c", authority)
    before = BASE.replace("%s", "").replace("%r", TWO)
    return before.replace("%p", str(port)), after.replace("%p", str(port))


@pytest.fixture(scope="module")
def steady(launch_reference: Launch, certs: Certificates) -> tuple[Server, int]:
    """A reference whose configuration no test changes with success, and its gateway's port."""
    port = reserve_port(launch_reference)
    return launch_reference(config=configs("", TWO, port, certs)[0]), port


@pytest.mark.parametrize(("block", "remotes"), params(REFUSED))
def test_what_a_reload_refuses(
    block: str, remotes: str, read: Read, steady: tuple[Server, int], certs: Certificates
) -> None:
    reference, port = steady
    before, after = configs(block, remotes, port, certs)
    said = refused(reference, after)
    with pytest.raises(OptionError) as raised:
        diff_options(read(before), read(after))
    assert str(raised.value) == "config reload not supported for Gateway: old=..., new=..."
    assert said.startswith("config reload not supported for Gateway: old={G 127.0.0.1 ")


@pytest.mark.parametrize(("block", "remotes"), params(ALLOWED))
def test_what_a_reload_accepts(
    block: str, remotes: str, read: Read, launch_reference: Launch, certs: Certificates
) -> None:
    before, after = configs(block, remotes, reserve_port(read), certs)
    reference = launch_reference(config=before)
    assert without_always(attempt(reference, after)) == []
    assert diff_options(read(before), read(after)) == {}
