"""Reloads of an embedded server: all or nothing, and at bad moments."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from support.certs import Certificates

from gnats import Options, Server
from gnats.errors import OptionError, ServerError
from gnats.options.values.accounts import AccountConfig, MapDest, Mapping
from gnats.options.values.auth import User
from gnats.options.values.tls import TLSOptions

from .conftest import Connect, Start
from .peer import Log

pytestmark = pytest.mark.timeout(60)


def changed(server: Server, **options: object) -> Options:
    return replace(server.opts, **options)  # type: ignore[arg-type]


async def test_options_are_put_into_force(start: Start, connect: Connect) -> None:
    server = await start()
    live = await connect(server)
    await live.connected()
    await server.reload(changed(server, max_payload=8))
    assert (await connect(server)).info["max_payload"] == 8
    await live.ask(b"")
    live.send(b"PUB a 9\r\n123456789\r\n")
    assert await live.rest() == b"-ERR 'Maximum Payload Violation'\r\n"


async def test_the_configuration_file_is_read_again(start: Start, connect: Connect, tmp_path: Path) -> None:
    conf = tmp_path / "server.conf"
    conf.write_text("port: 4222\nmax_payload: 5000\n")
    server = await start(opts=Options.from_file(conf))
    await server.reload()
    assert (await connect(server)).info["max_payload"] == 5000
    conf.write_text("max_payload: [")
    with pytest.raises(OptionError, match="Expected an array"):
        await server.reload()
    assert server.opts.max_payload == 5000


async def test_without_a_configuration_file_there_is_nothing_to_read(start: Start) -> None:
    log = Log()
    server = await start(log)
    with pytest.raises(OptionError, match="can only reload config when a file is provided"):
        await server.reload()
    assert log.with_text("[ERR] Failed to reload server configuration: can only reload config when a file")


async def test_two_at_once_happen_one_after_the_other(start: Start) -> None:
    log = Log()
    server = await start(log)
    first, second = changed(server, max_payload=5000), changed(server, max_payload=6000)
    await asyncio.gather(server.reload(first), server.reload(second))
    assert server.opts.max_payload == 6000
    assert [line.split("] ")[1] for line in log.with_text("Reloaded")] == [
        "Reloaded: max_payload = 5000",
        "Reloaded server configuration ",
        "Reloaded: max_payload = 6000",
        "Reloaded server configuration ",
    ]


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"max_subs": 5}, id="option that cannot change"),
        pytest.param({"tls": TLSOptions("nosuch.pem", "nosuch.pem")}, id="certificate"),
        pytest.param({"mappings": [Mapping("a.*", (MapDest("b.$2"),))]}, id="mapping"),
        pytest.param({"log_file": "/nosuch/x"}, id="log"),
        pytest.param({"client_advertise": "a:b:c"}, id="address"),
        pytest.param({"accounts": [AccountConfig("X")], "system_account": "Y"}, id="account"),
    ],
)
async def test_it_is_all_or_nothing(
    start: Start, connect: Connect, certs: Certificates, tmp_path: Path, bad: dict[str, object]
) -> None:
    tls = TLSOptions(str(certs.server.cert_file), str(certs.server.key_file))
    good: dict[str, object] = {
        "tls": tls,
        "log_file": str(tmp_path / "log"),
        "accounts": [AccountConfig("A")],
        "users": [User("a", "pw", account="A")],
        "mappings": [Mapping("a", (MapDest("b"),))],
        "client_advertise": "a:5",
        "max_payload": 8,
        "pid_file": str(tmp_path / "pid"),
        "debug": True,
    }
    server = await start()
    live = await connect(server)
    await live.connected()
    opts, accounts, info = server.opts, dict(server.accounts), live.info
    with pytest.raises((OptionError, ServerError)):
        await server.reload(changed(server, **good | bad))
    assert (server.opts, server.accounts, server.tls) == (opts, accounts, None)
    assert not server.state.debug
    assert not (tmp_path / "pid").exists()
    assert await live.ask(b"SUB a 1\r\nPUB a 9\r\n123456789\r\n") == [b"MSG a 1 9", b"123456789"]
    other = await connect(server)
    assert other.info == info | {"client_id": other.info["client_id"]}
    await other.connected()
    await server.reload(changed(server, **good))
    assert server.tls is not None
    assert (tmp_path / "pid").exists()


async def test_a_log_that_was_given_stays(start: Start, tmp_path: Path) -> None:
    log = Log()
    server = await start(log)
    await server.reload(changed(server, max_payload=5000))
    assert log.debug_on
    await server.reload(changed(server, log_file=str(tmp_path / "log")))
    assert not (tmp_path / "log").exists()
    assert log.with_text("Reloaded: log_file = ")


async def test_a_silent_server_gets_a_log(start: Start, tmp_path: Path) -> None:
    server = await start()
    await server.reload(changed(server, log_file=str(tmp_path / "log")))
    assert "Reloaded server configuration" in (tmp_path / "log").read_text()
    await server.reload(changed(server, log_file=""))
    end = (tmp_path / "log").read_text()
    await server.reload(changed(server, max_payload=5000))
    assert (tmp_path / "log").read_text() == end


async def test_a_server_that_does_not_run_is_not_reloaded(io_threads: int) -> None:
    server = Server(Options(host="127.0.0.1", port=-1, io_threads=io_threads))
    with pytest.raises(ServerError, match="not running"):
        await server.reload(changed(server, max_payload=5000))
    await server.start()
    states: list[str] = []
    server.on_state = states.append
    stopping = server.begin_shutdown()
    with pytest.raises(ServerError, match="not running"):
        await server.reload(changed(server, max_payload=5000))
    await stopping
    with pytest.raises(ServerError, match="not running"):
        await server.reload(changed(server, max_payload=5000))
    assert states == ["stopping"]


async def test_a_shutdown_does_not_wait_for_a_reload(io_threads: int, tmp_path: Path) -> None:
    conf = tmp_path / "server.conf"
    conf.write_text("max_payload: 5000")
    server = Server(replace(Options.from_file(conf), port=-1, io_threads=io_threads))
    await server.start()
    conf.write_text("max_payload: 6000")
    reading = asyncio.create_task(server.reload())
    await asyncio.sleep(0)
    await server.shutdown()
    with pytest.raises(ServerError, match="not running"):
        await reading
    assert server.opts.max_payload == 5000


async def test_states_around_a_reload(start: Start) -> None:
    server = await start()
    states: list[str] = []
    server.on_state = states.append
    await server.reload(changed(server, max_payload=5000))
    assert states == ["reloading", "ready"]
    server.lame_duck_mode()
    await server.reload(changed(server, max_payload=6000))
    assert states == ["reloading", "ready", "lame duck", "reloading", "lame duck"]


async def test_what_users_of_before_have_decided_is_decided_again(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload that comes while a password hash is checked makes the check run again with the new users."""
    hashes = {"old": f"$2a$04${'o' * 53}", "new": f"$2a$04${'n' * 53}"}
    asked, answer = asyncio.Event(), asyncio.Event()

    async def check(stored: str, given: str, address: str) -> bool:
        asked.set()
        await answer.wait()
        return stored == hashes[given]

    monkeypatch.setattr("gnats.auth.authenticator.check_password_async", check)
    server = await start(users=[User("a", hashes["old"])])
    client = await connect(server)
    client.send(b'CONNECT {"verbose":false,"user":"a","pass":"old"}\r\nPING\r\n')
    await asked.wait()
    await server.reload(changed(server, users=[User("a", hashes["new"])]))
    answer.set()
    assert await client.rest() == b"-ERR 'Authorization Violation'\r\n"


async def test_clients_that_need_not_connect_are_looked_at(start: Start, connect: Connect) -> None:
    server = await start()
    silent = await connect(server)
    assert await silent.ask(b"SUB a 1\r\n") == [b"+OK"]
    await server.reload(changed(server, users=[User("a", "pw")]))
    assert await silent.rest() == b"-ERR 'Authorization Violation'\r\n"


async def test_clients_that_are_about_to_connect_are_given_time(start: Start, connect: Connect) -> None:
    server = await start(users=[User("a", "pw")])
    client = await connect(server)
    await server.reload(changed(server, users=[User("b", "pw")]))
    assert await client.connected(user="b", **{"pass": "pw"}) == []
