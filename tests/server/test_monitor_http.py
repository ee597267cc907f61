"""The monitoring port: callbacks, https, the base path, metrics, and HTML pages."""

import asyncio
import datetime
import itertools
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from prometheus_client.parser import text_string_to_metric_families
from support.clock import HeldClock

from gnats import Options, Server, ServerError
from gnats.errors import RequestError
from gnats.monitor import http as http_server
from gnats.monitor.pages.accountz import account_info, account_statz
from gnats.monitor.pages.connz import connz
from gnats.monitor.pages.debugz import redact_args
from gnats.monitor.pages.options import ALL, OPEN, AccountStatzOptions, ConnzOptions
from gnats.monitor.pages.render import Page
from gnats.options.values.accounts import (
    AccountConfig,
    MapDest,
    Mapping,
    ServiceExport,
    ServiceImport,
    ServiceLatency,
    StreamExport,
    StreamImport,
)
from gnats.options.values.tls import TLSOptions
from gnats.runtime.steps import Steps

from .conftest import Connect, Start
from .peer import Log

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def url(server: Server, path: str) -> str:
    return f"http://127.0.0.1:{server.monitor_port}{path}"


async def test_a_callback_makes_a_script(start: Start, http: aiohttp.ClientSession) -> None:
    server = await start(http_port=-1)
    async with http.get(url(server, "/connz?callback=app.show")) as response:
        assert response.headers["Content-Type"] == "application/javascript"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        text = await response.text()
    assert text.startswith("app.show({") and text.endswith("})")
    assert json.loads(text[len("app.show(") : -1])["connections"] == []


@pytest.mark.parametrize("name", ["a(b", "alert(1)//", "1a", "a.", "a" * 129, "<script>", "é"])
async def test_what_is_no_function_is_not_called(
    start: Start, http: aiohttp.ClientSession, name: str
) -> None:
    server = await start(http_port=-1)
    async with http.get(url(server, "/varz"), params={"callback": name}) as response:
        assert (response.status, response.content_type) == (400, "text/plain")
        assert name not in await response.text()


async def test_the_base_path_is_in_front_of_everything(start: Start, http: aiohttp.ClientSession) -> None:
    server = await start(http_port=-1, http_base_path="/nats/")
    for path in ("/nats", "/nats/varz", "/nats/debug/vars", "/nats/dashboard", "/nats/dashboard/app.js"):
        async with http.get(url(server, path)) as response:
            assert response.status == 200, path
    for path in ("/", "/varz", "/nats/"):
        async with http.get(url(server, path)) as response:
            assert response.status == 404, path
    async with http.get(url(server, "/nats")) as response:
        assert 'href="/nats/varz"' in await response.text()
    async with http.get(url(server, "/nats/varz")) as response:
        page = await response.json()
    assert page["http_base_path"] == "/nats/"
    assert page["http_req_stats"]["/varz"] == 2


class Certificate:
    """A self-signed certificate for 127.0.0.1 and its key, in two files."""

    def __init__(self, directory: Path, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        cert = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(datetime.datetime(2199, 1, 2, 3, 4, 5, tzinfo=datetime.UTC))
            .sign(key, hashes.SHA256())
        )
        self.cert, self.key = directory / f"{name}.pem", directory / f"{name}.key"
        self.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        self.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        self.options = TLSOptions(cert_file=str(self.cert), key_file=str(self.key), verify=True)


async def served_name(port: int) -> str:
    """Return the common name of the certificate that a port serves."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    (name,) = x509.load_der_x509_certificate(der).subject
    return str(name.value)


def https_options(directory: Path, **more: Any) -> Options:
    """Return options with https; the client port stays without TLS, which other tests cover."""
    certificate = Certificate(directory, "one")
    return Options(host="127.0.0.1", port=-1, https_port=-1, tls=certificate.options, **more)


async def test_https_asks_for_no_certificate(http: aiohttp.ClientSession, tmp_path: Path) -> None:
    log = Log()
    async with Server(https_options(tmp_path), log) as server:
        await log.seen(f"Starting https monitor on 127.0.0.1:{server.monitor_port}")
        async with http.get(f"https://127.0.0.1:{server.monitor_port}/varz", ssl=False) as response:
            page = await response.json()
    assert page["tls_cert_not_after"] == "2199-01-02T03:04:05Z"
    assert (page["tls_required"], page["tls_verify"], page["tls_timeout"]) == (True, True, 2)


async def test_certificates_are_replaced_for_new_connections(tmp_path: Path) -> None:
    async with Server(https_options(tmp_path)) as server:
        assert await served_name(server.monitor_port) == "one"
        monitor = server._monitor
        assert monitor is not None
        with pytest.raises(ServerError, match="nosuch"):
            monitor.check_tls(TLSOptions(cert_file=str(tmp_path / "nosuch"), key_file="nosuch"))
        assert await served_name(server.monitor_port) == "one"
        server.opts.tls = Certificate(tmp_path, "two").options
        monitor.reload_tls()
        assert await served_name(server.monitor_port) == "two"


async def test_https_has_the_cipher_suites_of_the_clients_port(tmp_path: Path) -> None:
    def context(suite: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(suite)
        return context

    async with Server(https_options(tmp_path)) as server:
        for suite in ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-SHA"):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", server.monitor_port, ssl=context(f"{suite}:@SECLEVEL=0")
            )
            writer.close()
        for suite in ("ECDHE-ECDSA-AES256-CCM", "ECDHE-ECDSA-AES128-SHA256"):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection("127.0.0.1", server.monitor_port, ssl=context(suite))


@pytest.mark.parametrize(
    "said", [b"", b"GET /varz HTTP/1.1\r\nHost: a\r\n"], ids=["nothing", "half a header"]
)
async def test_who_does_not_ask_is_closed(start: Start, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(http_server, "HEADER_TIMEOUT", 0.2)
    server = await start(http_port=-1)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.monitor_port)
    writer.write(said)
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    writer.close()


async def test_who_has_asked_may_take_its_time(clock: HeldClock, start: Start) -> None:
    server = await start(http_port=-1)
    clock.watch(server)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.monitor_port)
    silent, other = await asyncio.open_connection("127.0.0.1", server.monitor_port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
    async with asyncio.timeout(30):
        assert await reader.readuntil(b"}") != b""
        await clock.advance(http_server.HEADER_TIMEOUT)
        assert await silent.read() == b""  # closed by the time limit
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(30):
        assert b'"ok"' in await reader.read()
    writer.close()
    other.close()


async def test_metrics(start: Start, connect: Connect, http: aiohttp.ClientSession) -> None:
    log = Log()
    server = await start(log, http_port=-1, server_name="here")
    peer, gone = await connect(server), await connect(server)
    for one in (peer, gone):
        await one.connected()
        await one.ask(b"SUB a 1\r\nPUB a 5\r\nhello\r\n")
    await gone.close()
    await log.seen("connection closed")
    async with http.get(url(server, "/metrics")) as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        text = await response.text()
    values = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    expected = {
        ("gnats_connections",): 1,
        ("gnats_accepted_connections_total",): 2,
        ("gnats_messages_total", "in"): 2,
        ("gnats_messages_total", "out"): 3,
        ("gnats_bytes_total", "out"): 15,
        ("gnats_account_messages_total", "$G", "in"): 2,
        ("gnats_account_messages_total", "$G", "out"): 3,
        ("gnats_account_bytes_total", "$SYS", "in"): 0,
        ("gnats_account_connections", "$G"): 1,
        ("gnats_subscriptions",): server.num_subscriptions,
        ("gnats_slow_consumers_total",): 0,
        ("gnats_http_requests_total", "/metrics"): 1,
    }
    assert {name: values[name] for name in expected} == expected
    assert values["gnats_process_resident_memory_bytes",] > 1e6
    assert all(name[0].startswith(("gnats_", "python_gc_")) for name in values)


async def test_problems_of_links(start: Start, http: aiohttp.ClientSession) -> None:
    server = await start(http_port=-1, server_name="here")
    async with http.get(url(server, "/linkz")) as response:
        page = await response.json()
    assert (page["server_name"], page["links"], page["problems"]) == ("here", [], [])
    async with http.get(url(server, "/healthz?links=1")) as response:
        assert (response.status, await response.json()) == (200, {"status": "ok", "links": []})
    async with http.get(url(server, "/healthz")) as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/app.css", "/dashboard/app.js", "/"])
async def test_pages_for_people_may_load_only_from_the_server(
    start: Start, http: aiohttp.ClientSession, path: str
) -> None:
    server = await start(http_port=-1)
    async with http.get(url(server, path)) as response:
        assert response.status == 200
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "Access-Control-Allow-Origin" not in response.headers
        assert "Server" not in response.headers
        text = await response.text()
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text
    assert " style=" not in text and "onclick" not in text


async def test_account_statistics_outlive_connections(start: Start, connect: Connect) -> None:
    log = Log()
    server = await start(log)
    peer = await connect(server)
    await peer.connected()
    await peer.ask(b"SUB a 1\r\nPUB a 5\r\nhello\r\nPUB b 2\r\nhi\r\n")

    def stat(options: AccountStatzOptions) -> Any:
        (found,) = account_statz(server, options)["account_statz"]  # type: ignore[misc]
        return found

    during = stat(AccountStatzOptions())
    assert (during["acc"], during["conns"]) == ("$G", 1)
    assert (during["received"]["msgs"], during["received"]["bytes"]) == (2, 7)
    assert (during["sent"]["msgs"], during["sent"]["bytes"]) == (1, 5)
    await peer.close()
    await log.seen("connection closed")
    assert account_statz(server, AccountStatzOptions())["account_statz"] == []
    after = stat(AccountStatzOptions(accounts=("$G", "nosuch"), include_unused=True))
    assert (after["conns"], after["received"], after["sent"]) == (0, during["received"], during["sent"])


async def test_an_account_shows_what_its_configuration_says(start: Start) -> None:
    latency = ServiceLatency("lat", 0)
    exporter = AccountConfig(
        "A",
        mappings=[
            Mapping("foo", (MapDest("bar"),)),
            Mapping("x.*", (MapDest("y.$1", 30), MapDest("z.$1", 10), MapDest("w.$1", 100, "east"))),
        ],
        exports=[
            StreamExport("s.>"),
            ServiceExport("q.*", ("B",), latency=latency),
            ServiceExport("many", response_type="stream"),
        ],
    )
    importer = AccountConfig(
        "B",
        imports=[
            StreamImport("A", "s.>", prefix="p"),
            ServiceImport("A", "q.x", to="local", share=True),
        ],
    )
    server = await start(accounts=[exporter, importer])
    info: Any = account_info(server, "A")
    assert info["mappings"] == {
        "foo": [{"subject": "bar", "weight": 100}],
        "x.*": [
            {"subject": "z.$1", "weight": 10},
            {"subject": "y.$1", "weight": 40},
            {"subject": "x.$1", "weight": 100},
            {"subject": "w.$1", "weight": 100, "cluster": "east"},
        ],
    }
    about = {"sampling": "headers", "results": "lat"}
    assert info["exports"] == [
        {"subject": "s.>", "type": "stream"},
        {
            "subject": "q.*",
            "type": "service",
            "response_type": "Singleton",
            "service_latency": about,
            "approved_accounts": ["B"],
        },
        {"subject": "many", "type": "service", "response_type": "Streamed"},
    ]
    info = account_info(server, "B")
    flags = {"invalid": False, "share": False, "tracking": False}
    own = ("CONNZ", "CONNZ", "STATZ", "INFO")
    assert tuple(item["subject"].rsplit(".", 1)[1] for item in info["imports"][2:]) == own
    assert info["imports"][:2] == [
        {"subject": "s.>", "account": "A", "local_subject": "p.s.>", "type": "stream"} | flags,
        {"subject": "q.x", "account": "A", "to": "local", "local_subject": "local", "type": "service"}
        | flags
        | {"share": True, "latency": about},
    ]


async def test_connections_can_be_found_by_what_they_subscribe_to(start: Start, connect: Connect) -> None:
    server = await start()
    cids = []
    for subject in (b"a.b", b"c", b"a.>"):
        peer = await connect(server)
        await peer.connected()
        await peer.ask(b"SUB %s 1\r\n" % subject)
        cids.append(peer.info["client_id"])

    def found(subject: str) -> list[int]:
        page: Any = connz(server, ConnzOptions(acc="$G", filter_subject=subject))
        return [info["cid"] for info in page["connections"]]

    assert found("a.*") == [cids[0], cids[2]]
    assert found("c") == [cids[1]]
    assert found(">") == cids
    assert found("none") == []
    with pytest.raises(RequestError, match="only valid with account filtering"):
        connz(server, ConnzOptions(filter_subject="a"))


@pytest.mark.parametrize("sort", ["cid", "idle", "last", "rtt", "pending", "bytes_to", "msgs_from"])
@pytest.mark.parametrize("state", [OPEN, ALL])
async def test_pages_of_any_order_make_up_the_whole(
    start: Start, connect: Connect, sort: str, state: int
) -> None:
    log = Log()
    server = await start(log)
    peers = [await connect(server) for _ in range(20)]
    for index, peer in enumerate(peers):
        await peer.connected()
        await peer.ask(b"SUB a 1\r\n" + b"PUB b 1\r\nx\r\n" * index)
    for peer in peers[:5]:
        await peer.close()
    await log.seen("connection closed", 5)
    cids: list[int] = []
    while True:
        page: Any = connz(server, ConnzOptions(sort=sort, state=state, offset=len(cids), limit=1))
        if not page["connections"]:
            break
        cids += [info["cid"] for info in page["connections"]]
    expected = sorted(peer.info["client_id"] for peer in (peers if state == ALL else peers[5:]))
    assert sorted(cids) == expected
    if sort == "msgs_from":
        assert cids == expected[::-1]


async def test_a_long_page_lets_clients_have_their_turn(
    start: Start, connect: Connect, http: aiohttp.ClientSession
) -> None:
    server = await start(http_port=-1)
    peer = await connect(server)
    await peer.connected()
    await peer.ask(b"".join(b"SUB a.%d %d\r\n" % (sid, sid) for sid in range(20_000)))
    turns = 0
    done = False

    async def other_work() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(other_work())
    async with http.get(url(server, "/connz?subs=detail")) as response:
        page = await response.json()
    done = True
    await other
    assert len(page["connections"][0]["subscriptions_list_detail"]) == 20_000
    assert turns > 20


async def test_pages_that_are_asked_for_at_once_take_turns(
    start: Start, monkeypatch: pytest.MonkeyPatch, http: aiohttp.ClientSession
) -> None:
    server = await start(http_port=-1)
    turns: list[int] = []
    rounds = 0

    def steps(server: Server, options: ConnzOptions) -> Steps[Page]:
        for _ in range(50):
            turns.append(rounds)
            yield
        return {}

    def varz(server: Server) -> Page:
        turns.append(rounds)
        return {}

    monkeypatch.setattr(http_server, "SLICE", -1.0)  # every slice is over at once
    monkeypatch.setattr(http_server, "connz_steps", steps)
    monkeypatch.setattr(http_server, "varz", varz)

    async def count_rounds() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    async def ask(path: str) -> None:
        async with http.get(url(server, path)) as response:
            assert await response.json() == {}

    counting = asyncio.create_task(count_rounds())
    await asyncio.gather(*(ask(path) for path in ("/connz", "/varz") for _ in range(4)))
    counting.cancel()
    assert len(turns) == 204
    assert all(after > before for before, after in itertools.pairwise(turns))


async def test_a_page_that_nobody_waits_for_is_given_up(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, given_up = asyncio.Event(), asyncio.Event()

    def steps(server: Server, options: ConnzOptions) -> Steps[Page]:
        begun.set()
        try:
            while True:
                yield
        finally:
            given_up.set()

    monkeypatch.setattr(http_server, "connz_steps", steps)
    server = await start(http_port=-1)
    _, writer = await asyncio.open_connection("127.0.0.1", server.monitor_port)
    writer.write(b"GET /connz HTTP/1.1\r\nHost: a\r\n\r\n")
    async with asyncio.timeout(30):
        await begun.wait()
        writer.close()
        await given_up.wait()


async def test_the_body_of_a_request_is_not_unpacked(start: Start) -> None:
    server = await start(http_port=-1)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.monitor_port)
    request = b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Encoding: deflate\r\nContent-Length: %d\r\n"
    body = b"this was not deflated"
    async with asyncio.timeout(30):
        for closing in (b"", b"Connection: close\r\n"):
            writer.write(request % len(body) + closing + b"\r\n" + body)
            assert (await reader.readuntil(b"\r\n")).split()[1] == b"200"
            assert b'"ok"' in await reader.readuntil(b"}")
    writer.close()


@pytest.mark.parametrize("accept", ["application/openmetrics-text; version=x", "text/plain; version=\u00ff"])
async def test_metrics_for_those_who_accept_what_there_is_not(
    start: Start, http: aiohttp.ClientSession, accept: str
) -> None:
    server = await start(http_port=-1)
    async with http.get(url(server, "/metrics"), headers={"Accept": accept}) as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")


async def test_the_health_of_a_server_that_lets_nobody_in(start: Start, http: aiohttp.ClientSession) -> None:
    server = await start(http_port=-1)
    server.stop_accepting()
    async with http.get(url(server, "/healthz")) as response:
        assert response.status == 500
        page = await response.json()
    assert page["status"] == "error"
    assert page["error"].startswith("failed to be ready for connections")


async def test_stacks_name_the_threads(start: Start, http: aiohttp.ClientSession) -> None:
    server = await start(http_port=-1)
    async with http.get(url(server, "/stacksz")) as response:
        text = await response.text()
    assert "thread MainThread:" in text
    assert ("thread gnats-io-0:" in text) == (server.opts.io_threads == 2)


def test_secrets_of_the_command_line_are_hidden() -> None:
    args = [
        "gnats-server",
        "-p",
        "1",
        "--user",
        "bob",
        "-pass=secret",
        "--auth",
        "--pass",
        "-D",
        "--password",
        "x",
    ]
    shown = redact_args(args)
    hidden = "[REDACTED]"
    assert shown[:4] == args[:4]
    assert shown[4:] == [hidden, f"-pass={hidden}", "--auth", hidden, "-D", "--password", "x"]
