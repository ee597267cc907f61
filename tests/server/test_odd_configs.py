"""Configuration values at or beyond the limits of files, addresses and subjects."""

from pathlib import Path

import aiohttp
import pytest

from gnats import Options, Server
from gnats.errors import OptionError, ServerError
from gnats.options.values.jetstream import JetStreamOptions

from .conftest import Connect, Start
from .peer import Log
from .test_reload import changed

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"pid_file": "/tmp/a\0b"}, "Could not write pidfile: open /tmp/a\0b: invalid argument"),
        ({"log_file": "/tmp/a\0b"}, "error opening file: open /tmp/a\0b: invalid argument"),
        ({"log_file": "/tmp/\ud800"}, "error opening file: open /tmp/\ud800: invalid argument"),
        (
            {"jetstream": JetStreamOptions(enabled=True, store_dir="/tmp/a\0b")},
            "could not create storage directory - Invalid argument",
        ),
        ({"remote_syslog": "http://["}, 'error connecting to syslog: "http://[": Invalid IPv6 URL'),
        ({"remote_syslog": "unix:///a\0"}, r'error connecting to syslog: "unix:///a\x00": a NUL is in no'),
        ({"remote_syslog": "udp://a\0:1"}, r'error connecting to syslog: "udp://a\x00:1": a NUL is in no'),
    ],
)
async def test_a_server_says_what_it_cannot_use(
    start: Start, options: dict[str, object], reason: str
) -> None:
    with pytest.raises(ServerError) as caught:
        await start(**options)
    assert str(caught.value).startswith(reason)


async def test_a_ports_file_that_cannot_be_keeps_no_server_from_running(start: Start) -> None:
    log = Log()
    server = await start(log, ports_file_dir="/tmp/a\0b")
    assert log.with_text("[ERR] Error writing ports file (/tmp/a\0b")
    await server.shutdown()
    assert log.with_text("[ERR] Error cleaning up ports file /tmp/a\0b")


@pytest.mark.parametrize(
    "text",
    [
        r'tls { cert_file: "/tmp/a\x00", key_file: "/tmp/b" }',
        r'operator: "/a\x00b"',
        r'resolver: { type: full, dir: "/tmp/a\x00b" }',
        r"include 'a\x00b'",
        'include "a\0b"',
    ],
)
def test_a_configuration_says_what_it_cannot_use(text: str, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(text)
    with pytest.raises(OptionError, match=r"server\.conf:1:"):
        Options.from_file(path)


async def test_a_reload_with_a_pid_file_that_cannot_be_applies_all_else(
    start: Start, connect: Connect
) -> None:
    log = Log()
    server = await start(log)
    live = await connect(server)
    await live.connected()
    await server.reload(changed(server, pid_file="/tmp/a\0b", ports_file_dir="/tmp/a\0b", max_payload=8))
    assert log.with_text("[ERR] Failed to write pidfile: open /tmp/a\0b: invalid argument")
    assert log.with_text("[INF] Reloaded server configuration")
    await live.ask(b"")
    live.send(b"PUB a 9\r\n123456789\r\n")
    assert await live.rest() == b"-ERR 'Maximum Payload Violation'\r\n"


@pytest.mark.parametrize("remote", ["http://[", "unix:///a\0"])
async def test_a_reload_with_a_syslog_that_cannot_be_changes_nothing(
    start: Start, remote: str, tmp_path: Path
) -> None:
    server = await start(log_file=str(tmp_path / "log"))
    with pytest.raises(ServerError, match="error connecting to syslog"):
        await server.reload(changed(server, log_file="", remote_syslog=remote, max_payload=8))
    assert server.opts.max_payload != 8


@pytest.mark.parametrize(
    "path", ["/%zz{", "/{a", "/{a:(((}", "/{$}", "/{x...}", "/{}", "/a{b}", "/{1}", "/{a}/{a}", "{é}", "/a}"]
)
def test_a_base_path_has_braces_in_pairs_and_around_names(path: str) -> None:
    with pytest.raises(
        OptionError, match=r"^http_base_path .* cannot be in it; a part with a brace is \{name\}"
    ):
        Server(Options(http_port=-1, http_base_path=path))
    Server(Options(http_base_path=path))


@pytest.mark.parametrize(("path", "asked"), [("/{a}", "/b"), ("{x}", "/b")])
async def test_a_base_path_with_braces_is_served(start: Start, path: str, asked: str) -> None:
    server = await start(http_port=-1, http_base_path=path)
    url = f"http://127.0.0.1:{server.monitor_port}{asked}/varz"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert (await answer.json())["server_id"] == server.id


async def test_names_need_not_be_utf_8(start: Start, connect: Connect, tmp_path: Path) -> None:
    conf = tmp_path / "server.conf"
    conf.write_bytes(
        b"""server_name: "\xff"
            jetstream { store_dir: "js" }
            system_account: "\xfe"
            accounts {
              "\xfe": { users: [{ user: s, password: p }] }
              "\xff": { users: [{ user: a, password: p }], jetstream: enabled
                        exports: [{ stream: "a.\xff" }, { service: "b.\xff" }]
                        mappings: { "m\xff": "n\xff" } }
              C: { imports: [{ stream: { account: "\xff", subject: "a.\xff" } },
                             { service: { account: "\xff", subject: "b.\xff" } }] }
            }
            no_auth_user: a"""
    )
    opts = Options.from_file(conf)
    opts.jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path / "js"))
    server = await start(opts=opts)
    system = await connect(server)
    await system.connected(user="s", **{"pass": "p"})
    await system.ask(b"SUB $SYS.ACCOUNT.\xff.CONNECT 1\r\n")
    peer = await connect(server)
    assert peer.info["server_name"] == "\ufffd"
    await peer.connected()
    assert (await system.line()).startswith(b"MSG $SYS.ACCOUNT.\xff.CONNECT 1 ")
    peer.send(b'SUB i 1\r\nPUB $JS.API.STREAM.CREATE.S i 13\r\n{"name": "S"}\r\n')
    assert (await peer.line()).startswith(b"MSG i 1 ")
    assert b'"did_create":true' in await peer.line()
