"""The dashboard, in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.wire import Connection

from gnats.go.url import parse_url
from gnats.options.values.cluster import ClusterOptions, Compression
from gnats.system.ports import port_of, reserve_port
from gnats.testing import ClusterThread, ServerThread, SuperClusterThread

from .driver import Browser, installed

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not installed(), reason="needs chromium and chromedriver (Debian: chromium-driver)"),
]

HOSTILE = "<img src=x onerror=document.title=1>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture(params=["", "/base"])
def server(request: pytest.FixtureRequest) -> Iterator[ServerThread]:
    options = {"http_port": -1, "server_name": "the-server", "http_base_path": request.param}
    with ServerThread(**options) as server:
        yield server


@pytest.fixture
def page(browser: Browser, server: ServerThread) -> Browser:
    """The server's dashboard, after its first poll."""
    browser.complaints()
    base = server.call(lambda running: running.opts.http_base_path)
    browser.open(f"http://127.0.0.1:{server.monitor_port}{base}/dashboard")
    browser.wait(lambda: browser.text("#state") == "healthy")
    return browser


def busy(server: ServerThread) -> Connection:
    """Open a connection and send 1500 messages to itself."""
    connection = Connection(("127.0.0.1", server.port))
    name = HOSTILE.replace('"', '\\"')
    connection.send(b'CONNECT {"verbose":false,"name":"%s","lang":"c","version":"9"}\r\n' % name.encode())
    connection.send(b"SUB orders.* workers 1\r\n" + b"PUB orders.new 5\r\nhello\r\n" * 1500)
    connection.fence()
    return connection


def test_it_shows_what_the_server_does(page: Browser, server: ServerThread) -> None:
    assert page.text("#name") == "the-server"
    assert "nats-server" in page.text("#about")
    with busy(server):
        page.wait(lambda: page.text("#in_msgs_total") == "1.5 k so far")
        assert page.text("#connections") == "1"
        assert (
            page.run("return document.querySelector('#connections').previousElementSibling.textContent")
            == "Clients"
        )
        assert page.text("#out_bytes_total") == "7.32 KiB so far"
        (row,) = page.wait(
            lambda: rows(page, "#connection_rows") if len(rows(page, "#connection_rows")[0]) > 1 else None
        )
        assert row[1:3] == ["$G", f"{HOSTILE} c 9"]
        assert "$G" in [row[0] for row in rows(page, "#account_rows")]
        (sub,) = page.wait(lambda: rows(page, "#sub_rows") if len(rows(page, "#sub_rows")[0]) > 1 else None)
        assert (sub[0], sub[1], sub[4]) == ("orders.*", "workers", "1.5 k")
        page.wait(lambda: page.run("return document.querySelector('#msgs_chart .in').points.length >= 2"))
        assert "in and" in page.run("return document.querySelector('#msgs_chart').getAttribute('aria-label')")
    closed = page.wait(lambda: rows(page, "#closed_rows") if len(rows(page, "#closed_rows")[0]) > 1 else None)
    assert closed[0][1] == f"{HOSTILE} c 9"
    assert closed[0][2] in ("Client Closed", "Read Error")  # depends on whether it had unread input
    assert page.complaints() == []


def rows(page: Browser, selector: str) -> list[list[str]]:
    """Return the cells of a table's rows; before the first data, one row without cells."""
    cells = "[...row.cells].map((cell) => cell.textContent)"
    script = f"return [...document.querySelectorAll(arguments[0] + ' tr')].map((row) => {cells})"
    return page.run(script, selector) or [[]]


def open_dashboard(browser: Browser, server: ServerThread) -> None:
    browser.complaints()
    browser.open(f"http://127.0.0.1:{server.monitor_port}/dashboard")


def test_it_shows_routes_and_leaf_nodes(browser: Browser) -> None:
    options = {"http_port": -1, "cluster": ClusterOptions(pool_size=-1, compression=Compression("off"))}
    with (
        ClusterThread(2, leafs=1, **options) as cluster,
        Connection(("127.0.0.1", cluster.leafs[0].port)) as client,
    ):
        client.send(b"CONNECT {}\r\nSUB orders.* 1\r\n")
        client.fence()
        cluster.wait_for_interest()
        open_dashboard(browser, cluster.servers[0])
        found = browser.wait(lambda: {row[0]: row for row in rows(browser, "#link_rows") if len(row) == 10})
        leaf, route = found["l0 (leaf node)"], found["s1 (route)"]
        assert (leaf[2], leaf[5]) == ("$G", "0 B")
        assert int(leaf[6]) >= 1  # orders.*, and the subject for detecting loops
        assert leaf[8].startswith("s2_")
        assert (route[5], route[8]) == ("0 B", "off")
        assert leaf[9] == route[9] == ""
        assert browser.text("#state") == "healthy"
        cluster.stop_leaf(0)
        cluster.start_leaf(0)
        found = browser.wait(
            lambda: {row[0]: row[9] for row in rows(browser, "#link_rows") if row[9:] > [""]}
        )
        assert found == {"l0 (leaf node)": "Client Closed"}
    assert browser.complaints() == []


def test_it_shows_gateways_and_their_direction(browser: Browser) -> None:
    with (
        SuperClusterThread(2, http_port=-1) as clusters,
        Connection(("127.0.0.1", clusters.clusters[1].servers[0].port)) as client,
    ):
        client.send(b"CONNECT {}\r\nSUB orders.* 1\r\n")
        client.fence()
        clusters.wait_for_interest()
        open_dashboard(browser, clusters.clusters[0].servers[0])
        found = browser.wait(lambda: {row[0]: row for row in rows(browser, "#link_rows") if len(row) == 10})
        out, back = found["test-1-s0 (gateway to test-1)"], found["test-1-s0 (gateway from test-1)"]
        assert int(out[6]) >= 1
        assert (back[6], out[5], back[5], out[8], out[9]) == ("0", "0 B", "0 B", "not supported", "")
        assert browser.text("#state") == "healthy"
    assert browser.complaints() == []


def test_it_shows_a_route_that_is_missing(browser: Browser) -> None:
    with reserve_port() as reserved:
        where = f"127.0.0.1:{port_of(reserved)}"
        cluster = ClusterOptions(name="C", port=-1, routes=(parse_url(f"nats://{where}"),))
        with ServerThread(http_port=-1, cluster=cluster) as server:
            open_dashboard(browser, server)
            browser.wait(lambda: "missing route" in browser.text("#link_rows"))
            refused = f"dial tcp {where}: connect: connection refused"
            assert [(row[1], row[9]) for row in rows(browser, "#link_rows")] == [(where, refused)] * 2
            assert browser.text("#state") == "2 links have problems"
    assert browser.complaints() == []


def test_names_that_clients_choose_are_text(page: Browser, server: ServerThread) -> None:
    with busy(server):
        page.wait(lambda: HOSTILE in page.text("#connection_rows"))
        assert page.run("return document.querySelectorAll('main img').length") == 0
        assert page.run("return document.title") == "the-server - gnats"
    assert page.complaints() == []


def test_it_can_be_paused(page: Browser, server: ServerThread) -> None:
    page.click("#pause")
    assert page.text("#state") == "paused"
    assert page.run("return document.querySelector('#pause').getAttribute('aria-pressed')") == "true"
    page.click("#pause")
    before = polls(server)
    page.wait(lambda: polls(server) > before)
    page.wait(lambda: page.text("#state") == "healthy")


def polls(server: ServerThread) -> int:
    return server.call(lambda running: running.http_requests["/varz"])


def test_it_says_when_nobody_answers(page: Browser, server: ServerThread) -> None:
    server.stop()
    page.wait(lambda: page.text("#state") == "no answer")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(page: Browser, server: ServerThread, scheme: str) -> None:
    """Text has WCAG's contrast of 4.5 against its background."""
    page.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    with busy(server):
        page.wait(lambda: page.text("#connections") == "1")
        poor = page.run(CONTRAST)
    assert poor == []
    background = page.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 384) == (scheme == "dark")


CONTRAST = """
const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
const light = (color) => {
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = color.slice(0, 3).map((v) => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (node) => {
  const color = rgb(getComputedStyle(node).backgroundColor);
  return color.length === 4 && color[3] === 0 ? behind(node.parentElement) : color;
};
const poor = [];
for (const node of document.querySelectorAll("h1, h2, p, dt, dd, th, td, a, button, figcaption, .key")) {
  const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < 4.5) poor.push(`${node.tagName} ${node.textContent}: ${contrast}`);
}
return poor;
"""


def test_it_is_for_everyone(page: Browser) -> None:
    """Controls have names, columns have headers, and the page fits into a narrow window."""
    assert page.run("return document.documentElement.lang") == "en"
    assert page.run("return [...document.querySelectorAll('thead th:not([scope])')].length") == 0
    assert (
        page.run("return [...document.querySelectorAll('svg:not([aria-label]), img:not([alt])')].length") == 0
    )
    regions = "[...document.querySelectorAll('[role=region]')]"
    named = page.run(
        f"return {regions}.map((e) => document.getElementById(e.getAttribute('aria-labelledby')))"
    )
    assert len(named) == 6 and all(named)
    ids = page.run("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    assert page.run("return document.querySelector('#state').getAttribute('role')") == "status"
    page.command(
        "Emulation.setDeviceMetricsOverride", width=360, height=640, deviceScaleFactor=1, mobile=True
    )
    try:
        assert page.run("return document.documentElement.scrollWidth - innerWidth") <= 0
    finally:
        page.command("Emulation.clearDeviceMetricsOverride")


def test_the_index_leads_everywhere(browser: Browser, server: ServerThread) -> None:
    base = server.call(lambda running: running.opts.http_base_path)
    browser.open(f"http://127.0.0.1:{server.monitor_port}{base or '/'}")
    links = browser.run("return [...document.querySelectorAll('a')].map((a) => a.href)")
    assert len(links) > 10
    for link in links:
        assert browser.run("return fetch(arguments[0]).then((r) => r.status)", link) == (
            404 if link.endswith("raftz") else 200
        ), link
    browser.complaints()  # drop the complaint about /raftz
