"""Reloads by SIGHUP: their effect on new and open connections, and refusals.

Intended differences (docs/status.md has them too):

* The reference closes the clients of a single user or of a token at every reload; gnats, when it changes.
* The reference ends when a new log cannot be opened; gnats refuses the reload.
* The reference logs "authorization users" and "accounts" at every reload; gnats, when they have changed.
* With a lower max_connections, of the server or of an account, the reference closes any connections; gnats
  the youngest.
* In gnats a new ping_interval holds for open connections too, and a new max_payload does not lift the limits
  of an account.
* When the last mapping is removed, the reference keeps the old ones; gnats has none.
* The reference logs "tls = enabled" at every reload once a client has connected; gnats, when it has changed.
* gnats closes connections whose certificate is not among new pinned_certs; the reference checks the old ones.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path

import pytest
from support.certs import Certificates
from support.launch import Launch
from support.monitor import monitor
from support.reload import hang_up, refused, reload, without_always
from support.servers import TIMEOUT, Kind, Server, until
from support.tlswire import TLSConnection, client_context
from support.wire import PING, PONG, VIOLATION, Closed, Connection, connect_op

from .cases import params

pytestmark = pytest.mark.timeout(120)


def connect(server: Server, **options: object) -> Connection:
    """Connect with `options` as members of CONNECT, and wait for the answer to a PING. Raises Closed."""
    connection = Connection(server.address)
    try:
        connection.send(connect_op(**{"pedantic": False} | options))
        connection.fence()
    except BaseException:
        connection.close()
        raise
    return connection


def user(server: Server, name: str, password: str = "pw", **options: object) -> Connection:
    return connect(server, user=name, **{"pass": password}, **options)


def heard(connection: Connection) -> bytes:
    """Return what the server has sent up to now; the second PING gets output made while it read the first."""
    return b"".join(connection.fence() + connection.fence())


# -- options that cannot change ------------------------------------------------------------------------------

ISSUER = "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA"
BASE = """
no_auth_user: a
authorization { users: [{ user: a, password: pw }, { user: b, password: pw }] }
accounts { A { users: [{ user: sys, password: pw }] } }
"""
REFUSED = {
    "server_name": ("server_name: other", "ServerName: old=, new=other"),
    "max_subscriptions": ("max_subscriptions: 10", "MaxSubs: old=0, new=10"),
    "max_sub_tokens": ("max_sub_tokens: 10", "MaxSubTokens: old=0, new=10"),
    "max_pending": ("max_pending: 10MB", "MaxPending: old=67108864, new=10485760"),
    "http_port": ("http: '127.0.0.1:-1'", "HTTPPort: old=0, new=-1"),
    "http_base_path": ("http_base_path: /x", "HTTPBasePath: old=, new=/x"),
    "prof_port": ("prof_port: 12345", "ProfPort: old=0, new=12345"),
    "lame_duck_duration": ("lame_duck_duration: '40s'", "LameDuckDuration: old=2m0s, new=40s"),
    "lame_duck_grace_period": (
        "lame_duck_grace_period: '1500ms'",
        "LameDuckGracePeriod: old=10s, new=1.5s",
    ),
    "write_timeout": ("write_timeout: close", "WriteTimeout: old=, new=close"),
    "allow_non_tls": ("allow_non_tls: true", "AllowNonTLS: old=false, new=true"),
    "no_sublist_cache": ("no_sublist_cache: true", "NoSublistCache: old=false, new=true"),
    "no_header_support": ("no_header_support: true", "NoHeaderSupport: old=false, new=true"),
    "max_closed_clients": ("max_closed_clients: 5", "MaxClosedClients: old=10000, new=5"),
    "log_size_limit": ("log_size_limit: 5000", "LogSizeLimit: old=0, new=5000"),
    "log_max_num": ("log_max_num: 5", "LogMaxFiles: old=0, new=5"),
    "no_system_account": ("no_system_account: true", "NoSystemAccount: old=false, new=true"),
    "system_account": ("system_account: A", "SystemAccount: old=, new=A"),
    "no_auth_user": ("no_auth_user: b", "NoAuthUser: old=a, new=b"),
    "trusted_keys": (
        "trusted_keys: [OCAAKRJR3YTWZLKAYLKQGBT4HIJGXSTF7CWGOX6QYL4UOSXMSBTGC5GZ]",
        "",
    ),
    "two at once": ("max_pending: 10MB\nserver_name: other", "ServerName: old=, new=other"),
}


@pytest.fixture(scope="module")
def steady(launch_shared: Launch) -> Server:
    """A server whose configuration no test changes with success."""
    return launch_shared(config=BASE)


@pytest.mark.parametrize(("line", "refusal"), params(REFUSED))
def test_what_cannot_change_is_refused_and_nothing_changes(steady: Server, line: str, refusal: str) -> None:
    with user(steady, "b") as client:
        why = refused(steady, f"{BASE}\n{line}\nmax_payload: 99\ndebug: true")
        if refusal:
            assert why == f"config reload not supported for {refusal}"
        assert heard(client) == b""
        with user(steady, "b") as other:
            assert other.info["max_payload"] == client.info["max_payload"] == 1 << 20
    assert without_always(reload(steady, BASE)) == []


def test_auth_callout_is_refused(launch: Launch) -> None:
    users = "users: [{ user: a, password: pw }]"
    server = launch(config=f"authorization {{ {users} }}")
    callout = f"auth_callout {{ issuer: {ISSUER}, auth_users: [a] }}"
    assert refused(server, f"authorization {{ {users}, {callout} }}") == (
        f"config reload not supported for AuthCallout: old=<nil>, new=&{{{ISSUER} $G [a]  []}}"
    )


def test_rules_for_certificates_are_refused(launch: Launch, certs: Certificates) -> None:
    tls = f'{certs.server.tls_block}, ca_file: "{certs.ca.cert_file}"'
    server = launch(config=f"tls {{ {tls} }}")
    for line, refusal in (
        ("verify_and_map: true", "TLSMap: old=false, new=true"),
        ("connection_rate_limit: 5", "TLSRateLimit: old=0, new=5"),
    ):
        why = refused(server, f"tls {{ {tls}, {line} }}")
        assert why == f"config reload not supported for {refusal}"
    with TLSConnection(server.address, client_context(certs)) as connection:
        assert connection.fence() == []


BAD = {
    "syntax": "max_payload: [",
    "unknown key": "max_payload: 99\nno_such_key: 1",
    "wrong type": "max_payload: 99\nmax_connections: many",
    "options that do not go together": "max_payload: 99\nno_auth_user: nobody",
    "no such file": "max_payload: 99\ninclude 'nosuch.conf'",
    "user twice": (
        "max_payload: 99\nauthorization { users: [{ user: a, password: b }, { user: a, password: c }] }"
    ),
    "import of what is not exported": (
        "max_payload: 99\naccounts { A {}, B { imports: [{ stream: { account: A, subject: x } }] } }"
    ),
    "certificate that is not there": (
        "max_payload: 99\ntls { cert_file: 'nosuch.pem', key_file: 'nosuch.pem' }"
    ),
    "advertised address that is none": "max_payload: 99\nclient_advertise: 'a:b:c'",
    "mapping that is none": "max_payload: 99\nmappings { 'a.*': 'b.$2' }",
}


@pytest.mark.parametrize("config", [pytest.param(text, id=name) for name, text in BAD.items()])
def test_a_bad_configuration_changes_nothing(steady: Server, config: str) -> None:
    with user(steady, "b") as client:
        refused(steady, config)
        assert heard(client) == b""
        with user(steady, "b") as other:
            assert other.info == client.info | {"client_id": other.info["client_id"]}
    assert without_always(reload(steady, BASE)) == []


def test_a_configuration_that_is_gone_changes_nothing(launch: Launch) -> None:
    server = launch()
    server.conf.unlink()
    server.process.send_signal(signal.SIGHUP)
    server.wait_log(r"\[ERR\] Failed to reload server configuration: .*no such file or directory")
    with connect(server) as client:
        assert client.fence() == []


# -- the log of a reload -------------------------------------------------------------------------------------

SAID = {
    "nothing": ("", []),
    "client_advertise": ("client_advertise: 'a.b:5'", ["Reload: client_advertise = a.b:5"]),
    "trace_headers": (
        "trace_headers: true",
        ["Reloaded: trace = true", "Reloaded: trace_headers = true"],
    ),
    "levels": (
        "debug: true\ntrace: true\ntrace_verbose: true",
        ["Reloaded: trace = true", "Reloaded: debug = true", "Reloaded: trace_verbose = true"],
    ),
    "logtime_utc": ("logtime_utc: true", ["Reloaded: logtime_utc = true"]),
    "logtime": ("logtime: false", ["Reloaded: logtime = false"]),
    "max_connections": ("max_connections: 500", ["Reloaded: max_connections = 500"]),
    "limits": (
        "ping_interval: '90s'\nping_max: 5\nmax_control_line: 512\nmax_payload: 5000",
        [
            "Reloaded: ping_interval = 1m30s",
            "Reloaded: ping_max = 5",
            "Reloaded: max_control_line = 512",
            "Reloaded: max_payload = 5000",
        ],
    ),
    "auth_timeout": ("authorization { timeout: 2.5 }", ["Reloaded: authorization timeout = 2.5"]),
    "stalls": ("no_fast_producer_stall: true", ["Reloaded: fast producers will not be stalled"]),
    "prof_block_rate": ("prof_block_rate: 5", ["Reloaded: prof_block_rate = 5"]),
    "pid_file": ("pid_file: some.pid", ["Reloaded: pid_file = some.pid"]),
    "pid_file in no directory": ("pid_file: '/nosuch/x'", ["Reloaded: pid_file = /nosuch/x"]),
    "ports_file_dir": ("ports_file_dir: '.'", ["Reloaded: ports_file_dir = ."]),
    "write_deadline": ("write_deadline: '3s'", ["Reloaded: write_deadline = 3s"]),
    "traced length": ("max_traced_msg_len: 7", ["Reloaded: max_traced_msg_len = 7"]),
    "reports": (
        "connect_error_reports: 5\nreconnect_error_reports: 6",
        ["Reloaded: connect_error_reports = 5", "Reloaded: reconnect_error_reports = 6"],
    ),
    "tags": ("server_tags: [a, b]\nserver_metadata { a: b }", ["Reloaded: tags", "Reloaded: metadata"]),
    "single user": (
        "authorization { user: a, password: b }",
        ["Reloaded: authorization username", "Reloaded: authorization password"],
    ),
    "token": ("authorization { token: t }", ["Reloaded: authorization token"]),
    "nkeys": (
        "authorization { users: [{ nkey: UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR }] }",
        ["Reloaded: authorization nkey users"],
    ),
}


@pytest.fixture(scope="module")
def changing(launch_shared: Launch) -> Server:
    """A server with an empty configuration; a test that reloads it puts that back."""
    return launch_shared()


@pytest.mark.parametrize(("config", "expected"), params(SAID))
def test_what_has_changed_is_logged(changing: Server, config: str, expected: list[str]) -> None:
    said = without_always(reload(changing, config))
    reload(changing, "")
    assert said == expected


# -- limits --------------------------------------------------------------------------------------------------


def test_max_payload_holds_for_live_clients_and_info(launch: Launch) -> None:
    server = launch()
    with connect(server, protocol=1) as live:
        live.fence()
        reload(server, "max_payload: 8")
        assert heard(live) == b""  # without an INFO
        with connect(server) as new:
            assert new.info["max_payload"] == 8
        live.send(b"PUB a 9\r\n123456789\r\n")
        assert live.rest() == b"-ERR 'Maximum Payload Violation'\r\n"
    reload(server, "")
    with connect(server) as client:
        client.send(b"SUB a 1\r\nPUB a 9\r\n123456789\r\n")
        assert client.fence() == [b"MSG a 1 9\r\n123456789\r\n"]


def test_max_control_line_holds_for_live_clients(launch: Launch) -> None:
    server = launch()
    with connect(server) as live:
        reload(server, "max_control_line: 64")
        assert heard(live) == b""
        live.send(b"SUB " + b"a" * 100 + b" 1\r\n")
        assert live.rest() == b"-ERR 'maximum control line exceeded'\r\n"


def test_connections_over_the_maximum_go(launch: Launch) -> None:
    server = launch()
    clients = [connect(server) for _ in range(5)]
    assert without_always(reload(server, "max_connections: 2")) == [
        "Closed 3 connections to fall within max_connections",
        "Reloaded: max_connections = 2",
    ]
    ends = [last_words(client) for client in clients]
    assert sorted(ends, key=bool) == [None, None, *[b"-ERR 'maximum connections exceeded'\r\n"] * 3]
    if not server.kind.is_reference:
        assert ends[:2] == [None, None]  # the oldest stay
    with pytest.raises(Closed):
        connect(server)
    reload(server, "max_connections: 3")
    clients.append(connect(server))
    for client in clients:
        client.close()


def last_words(connection: Connection) -> bytes | None:
    """Return what the server sent before it closed a connection, or None if it is open."""
    said = b""
    try:
        for _ in range(2):
            said += b"".join(connection.fence())
    except Closed as closed:
        return said + bytes(closed.args[0])
    assert said == b""
    return None


@pytest.mark.parametrize("most", [0, 1, 3])
def test_connections_over_the_maximum_of_their_account_are_closed(launch: Launch, most: int) -> None:
    def config(limit: int, others: str = "{ user: mover, password: pw }") -> str:
        limits = f"limits {{ max_connections: {limit} }}"
        return f"""accounts {{
            A {{ users: [{{ user: a, password: pw }}, {others}], {limits} }}
            B {{ users: [{{ user: b, password: pw }}], {limits} }}
        }}"""

    server = launch(config=config(10))
    mover = user(server, "mover")  # closed because its user is removed: not counted
    clients, other = [user(server, "a") for _ in range(5)], user(server, "b")
    reload(server, config(most, "{ user: another, password: pw }"))
    told = b"-ERR 'maximum account active connections exceeded'\r\n"
    said = [last_words(client) for client in clients]
    assert sorted(said, key=bool) == [None] * most + [told] * (5 - most)
    if not server.kind.is_reference:  # the reference closes any of them
        assert said[:most] == [None] * most
    if most:
        assert heard(other) == b""
    with pytest.raises(Closed) as refused_client:
        for _ in range(most + 1):
            clients.append(user(server, "a"))
    assert refused_client.value.args[0] == told
    with pytest.raises(Closed):
        heard(mover)
    for client in (mover, other, *clients):
        client.close()


def test_ping_interval_is_for_new_connections(launch: Launch) -> None:
    server = launch()
    with Connection(server.address, pings=True) as live, Connection(server.address, pings=True) as client:
        live.send(connect_op() + PING)
        assert live.read_op() == PONG
        reload(server, "ping_interval: '50ms'")
        client.send(connect_op())
        assert client.read_op() == PING
        if not server.kind.is_reference:
            assert live.read_op() == PING


def test_auth_timeout_is_for_new_connections(launch: Launch) -> None:
    server = launch(config="authorization { user: a, password: pw, timeout: 60 }")
    reload(server, "authorization { user: a, password: pw, timeout: 0.1 }")
    with Connection(server.address) as client:
        assert client.rest() == b"-ERR 'Authentication Timeout'\r\n"


def test_client_advertise_is_for_new_connections(launch: Launch) -> None:
    server = launch()
    with connect(server, protocol=1) as live:
        live.fence()
        reload(server, "client_advertise: 'example.net:99'")
        assert heard(live) == b""
    with connect(server) as client:
        assert (client.info["host"], client.info["port"]) == ("example.net", 99)
    reload(server, "client_advertise: 'example.org'")
    with connect(server) as client:
        assert (client.info["host"], client.info["port"]) == ("example.org", server.port)
    reload(server, "")
    with connect(server) as client:
        assert (client.info["host"], client.info["port"]) == server.address


def test_the_port_that_was_taken_is_as_good_as_any(launch: Launch) -> None:
    server = launch()
    assert without_always(reload(server, f"listen: '127.0.0.1:{server.port}'")) == []


# -- logs and files ------------------------------------------------------------------------------------------


def test_levels_change_for_live_connections(launch: Launch) -> None:
    server = launch()
    with connect(server) as client:
        client.send(b"PUB quiet 2\r\nhi\r\n")
        client.fence()
        reload(server, "debug: true\ntrace: true\nmax_traced_msg_len: 3")
        client.fence()
        client.send(b"PUB traced 5\r\nhello\r\n")
        client.fence()
        server.wait_log(r'\[TRC\] .*<<- MSG_PAYLOAD: \["hel\.\.\."\]')
        with connect(server):
            server.wait_log(r"\[DBG\] .*Client connection created")
        reload(server, "")
        client.fence()
        start = len(server.log)
        client.send(b"PUB quiet 2\r\nhi\r\n")
        with connect(server) as other:
            other.fence()
        reload(server, "max_payload: 5000")  # by its end a trace would be in the log
    assert "quiet" not in server.log
    assert "created" not in server.log[start:]


def test_the_log_moves_to_a_file_and_back(launch: Launch, tmp_path: Path) -> None:
    server = launch()
    file = tmp_path / "a.log"
    hang_up(server, f"log_file: '{file}'")
    server.wait_log(re.escape(f"Reloaded: log_file = {file}"))
    until(lambda: file.exists() and "Reloaded server configuration" in file.read_text())
    assert "Reloaded server configuration" not in server.log
    reload(server, "")
    assert file.read_text().rstrip().endswith("Reloaded: log_file =")


def test_a_log_that_cannot_be_opened_is_refused(launch: Launch, kind: Kind) -> None:
    if kind.is_reference:
        pytest.skip("the reference ends when it cannot open the log")
    server = launch()
    why = refused(server, "max_payload: 5000\nlog_file: '/nosuch/x'")
    assert why == "error opening file: open /nosuch/x: no such file or directory"
    with connect(server) as client:
        assert client.info["max_payload"] == 1 << 20


def test_pid_and_ports_files_are_written_where_they_should_be(launch: Launch, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    server = launch(config=f"ports_file_dir: '{one}'")
    until(lambda: list(one.iterdir()))  # the reference writes it after it has said that it is ready
    reload(server, f"pid_file: '{tmp_path}/pid'\nports_file_dir: '{other}'")
    assert (tmp_path / "pid").read_text() == str(server.process.pid)
    # The reference writes one file and removes the other after it has said that it is reloaded.
    (ports,) = until(lambda: [path for path in other.glob("*.ports") if path.stat().st_size])
    assert json.loads(ports.read_text())["nats"] == [server.url]
    until(lambda: list(one.iterdir()) == [])


def test_files_that_cannot_be_written_do_not_stop_the_rest(launch: Launch) -> None:
    server = launch()
    reload(server, "max_payload: 5000\npid_file: '/nosuch/x'\nports_file_dir: '/nosuch'")
    server.wait_log(r"\[ERR\] Failed to write pidfile: open /nosuch/x: no such file or directory")
    server.wait_log(r"\[ERR\] Error writing ports file .*no such file or directory")
    with connect(server) as client:
        assert client.info["max_payload"] == 5000


def test_tags_and_metadata_are_shown(launch: Launch) -> None:
    server = launch("-m", "-1")
    before = monitor(server, "/varz")
    reload(server, "server_tags: [a, b]\nserver_metadata { key: value }\nmax_payload: 5000")
    after = until(lambda: (varz := monitor(server, "/varz")).get("tags") and varz)
    assert (after["tags"], after["metadata"], after["max_payload"]) == (["a", "b"], {"key": "value"}, 5000)
    assert after["config_load_time"] > before["config_load_time"]
    assert after["config_digest"] != before["config_digest"]


# -- users ---------------------------------------------------------------------------------------------------


def users(*rows: str) -> str:
    return f"authorization {{ users: [{', '.join(f'{{ {row} }}' for row in rows)}] }}"


def test_users_come_and_go(launch: Launch) -> None:
    server = launch(config=users("user: a, password: pw", "user: b, password: pw"))
    with user(server, "a") as stays, user(server, "b") as goes:
        reload(server, users("user: a, password: pw", "user: c, password: pw"))
        assert goes.rest() == b""
        assert heard(stays) == b""
    with user(server, "c") as client:
        assert client.fence() == []
    with pytest.raises(Closed) as refusal:
        user(server, "b")
    assert refusal.value.args[0] == VIOLATION


def test_a_changed_password_ends_the_connection(launch: Launch) -> None:
    server = launch(config=users("user: a, password: pw", "user: b, password: pw"))
    with user(server, "a") as client, user(server, "b") as other:
        reload(server, users("user: a, password: new", "user: b, password: pw"))
        assert client.rest() == VIOLATION
        assert heard(other) == b""
    with user(server, "a", "new") as client:
        assert client.fence() == []


def test_users_instead_of_none(launch: Launch) -> None:
    server = launch()
    with connect(server) as nobody, user(server, "a") as named, Connection(server.address) as silent:
        reload(server, users("user: a, password: pw"))
        assert nobody.rest() == VIOLATION
        assert heard(named) == b""  # it gave the user in CONNECT
        assert silent.rest() == VIOLATION
        with connect(server, user="a", **{"pass": "pw"}) as client:
            assert client.info["auth_required"]


def test_no_users_any_more(launch: Launch) -> None:
    server = launch(config=users("user: a, password: pw"))
    with user(server, "a") as client:
        reload(server, "")
        assert client.rest() == b""
    with connect(server) as client:
        assert "auth_required" not in client.info


def test_a_single_user_that_stays_is_not_disturbed(launch: Launch) -> None:
    server = launch(config="authorization { user: a, password: pw }")
    with user(server, "a") as client:
        reload(server, "authorization { user: a, password: pw }\nmax_payload: 5000")
        if server.kind.is_reference:
            assert client.rest() == b""
        else:
            assert heard(client) == b""
            reload(server, "authorization { user: a, password: new }")
            assert client.rest() == VIOLATION


def test_a_token_that_stays_is_not_disturbed(launch: Launch) -> None:
    server = launch(config="authorization { token: t }")
    with connect(server, auth_token="t") as client:
        reload(server, "authorization { token: t }\nmax_payload: 5000")
        assert heard(client) == b""
        reload(server, "authorization { token: other }")
        assert client.rest() == VIOLATION


def test_the_default_user_goes_with_its_clients(launch: Launch) -> None:
    server = launch(config="no_auth_user: a\n" + users("user: a, password: pw", "user: b, password: pw"))
    with connect(server) as client, user(server, "b") as other:
        reload(server, users("user: b, password: pw"))
        assert client.rest() == b""
        assert heard(other) == b""
    with pytest.raises(Closed):
        connect(server)


def test_permissions_of_live_connections_change(launch: Launch) -> None:
    server = launch(config=users("user: a, password: pw", "user: b, password: pw"))
    with user(server, "a") as client, user(server, "b") as other:
        client.send(b"SUB keep 1\r\nSUB lose 2\r\nSUB lose.q work 3\r\n")
        client.fence()
        reload(
            server,
            users(
                "user: a, password: pw, permissions { publish: keep, subscribe: keep }",
                "user: b, password: pw",
            ),
        )
        gone = [client.read_op(), client.read_op()]
        assert sorted(gone) == [
            b'-ERR \'Permissions Violation for Subscription to "lose" (sid "2")\'\r\n',
            b'-ERR \'Permissions Violation for Subscription to "lose.q" using queue "work" (sid "3")\'\r\n',
        ]
        server.wait_log(r'\[INF\] Removed sub "lose" \(sid "2"\) for User "a" - not authorized')
        server.wait_log(r'\[INF\] Removed sub "lose\.q" using queue "work" \(sid "3"\) for User "a"')
        other.send(b"PUB lose 1\r\nx\r\nPUB keep 1\r\ny\r\n")
        assert heard(other) == b""
        assert client.read_op() == b"MSG keep 1 1\r\ny\r\n"
        client.send(b"PUB lose 1\r\nx\r\n")
        assert client.fence() == [b"-ERR 'Permissions Violation for Publish to \"lose\"'\r\n"]
        reload(server, users("user: a, password: pw", "user: b, password: pw"))
        client.fence()
        client.send(b"SUB lose 4\r\nPUB lose 1\r\nz\r\n")
        assert client.fence() == [b"MSG lose 4 1\r\nz\r\n"]


def test_kinds_of_connections_change(launch: Launch) -> None:
    server = launch(config=users("user: a, password: pw"))
    with user(server, "a") as client:
        reload(server, users("user: a, password: pw, allowed_connection_types: [WEBSOCKET]"))
        assert client.rest() == VIOLATION
    reload(server, users("user: a, password: pw, allowed_connection_types: [STANDARD]"))
    with user(server, "a") as client:
        assert client.fence() == []


# -- accounts ------------------------------------------------------------------------------------------------


def test_accounts_come_and_go(launch: Launch) -> None:
    a = "A { users: [{ user: a, password: pw }] }"
    b = "B { users: [{ user: b, password: pw }] }"
    server = launch(config=f"accounts {{ {a} }}")
    with user(server, "a") as stays:
        stays.send(b"SUB x 1\r\n")
        reload(server, f"accounts {{ {a}, {b} }}")
        with user(server, "b") as goes:
            goes.send(b"PUB x 1\r\ny\r\n")
            goes.fence()
            assert heard(stays) == b""
            reload(server, f"accounts {{ {a} }}")
            assert goes.rest() == b""
        with pytest.raises(Closed):
            user(server, "b")
        stays.send(b"PUB x 1\r\ny\r\n")
        assert stays.fence() == [b"MSG x 1 1\r\ny\r\n"]


def test_a_user_of_another_account_reconnects(launch: Launch) -> None:
    server = launch(config="accounts { A { users: [{ user: a, password: pw }] }, B {} }")
    with user(server, "a") as client:
        reload(server, "accounts { A {}, B { users: [{ user: a, password: pw }] } }")
        assert client.rest() == b""
    with user(server, "a", protocol=1) as client:
        assert b'"remote_account":"B"' in heard(client)


def test_mappings_change_under_live_connections(launch: Launch) -> None:
    server = launch(config="mappings { a: b }")
    with connect(server) as client:
        client.send(b"SUB > 1\r\nPUB a 1\r\n1\r\n")
        assert client.fence() == [b"MSG b 1 1\r\n1\r\n"]
        reload(server, "mappings { a: c }")
        client.send(b"PUB a 1\r\n2\r\n")
        assert client.fence() == [b"MSG c 1 1\r\n2\r\n"]
        reload(server, "")
        client.send(b"PUB a 1\r\n3\r\n")
        left = b"c" if server.kind.is_reference else b"a"
        assert client.fence() == [b"MSG %s 1 1\r\n3\r\n" % left]


def exchange(exports: str, imports: str) -> str:
    return f"""accounts {{
        A {{ users: [{{ user: a, password: pw }}], exports: [{exports}] }}
        B {{ users: [{{ user: b, password: pw }}], imports: [{imports}] }}
    }}"""


def test_stream_imports_change_under_live_subscriptions(launch: Launch) -> None:
    stream = "{ stream: { account: A, subject: 'pub.>' } }"
    server = launch(config=exchange("{ stream: 'pub.>' }", ""))
    with user(server, "a") as giver, user(server, "b") as taker:
        taker.send(b"SUB pub.x 1\r\nSUB in.pub.x 2\r\n")
        taker.fence()
        publish = b"PUB pub.x 1\r\n%d\r\n"
        reload(server, exchange("{ stream: 'pub.>' }", stream))
        taker.fence()
        giver.send(publish % 1)
        giver.fence()
        assert heard(taker) == b"MSG pub.x 1 1\r\n1\r\n"
        reload(server, exchange("{ stream: 'pub.>' }", stream.replace("} }", "}, prefix: in }")))
        taker.fence()
        giver.send(publish % 2)
        giver.fence()
        assert heard(taker) == b"MSG in.pub.x 2 1\r\n2\r\n"
        reload(server, exchange("", ""))
        taker.fence()
        giver.send(publish % 3)
        giver.fence()
        assert heard(taker) == b""


def test_service_imports_change_under_live_connections(launch: Launch) -> None:
    service = "{ service: { account: A, subject: svc } }"
    server = launch(config=exchange("{ service: svc }", ""))
    with user(server, "a") as giver, user(server, "b") as taker:
        giver.send(b"SUB svc 1\r\n")
        giver.fence()
        taker.send(b"SUB answer 1\r\nPUB svc answer 1\r\n0\r\n")
        assert taker.fence() == []
        for change in (1, 2):
            reload(server, exchange("{ service: svc }", service))
            taker.send(b"PUB svc answer 1\r\n%d\r\n" % change)
            taker.fence()
            request = giver.read_op()
            _, subject, _, reply, _ = request.split(b"\r\n")[0].split()
            assert subject == b"svc"
            giver.send(b"PUB %s 2\r\nok\r\n" % reply)
            giver.fence()
            assert heard(taker) == b"MSG answer 1 2\r\nok\r\n"
            reload(server, exchange("{ service: svc }", ""))
            taker.send(b"PUB svc answer 1\r\n9\r\n")
            taker.fence()
            assert heard(giver) == b""


# -- TLS -----------------------------------------------------------------------------------------------------


def served(server: Server, certs: Certificates) -> bytes:
    with TLSConnection(server.address, client_context(certs)) as connection:
        der: bytes = connection.sock.getpeercert(binary_form=True)
        return der


def test_a_renewed_certificate_is_for_new_connections(
    launch: Launch, certs: Certificates, tmp_path: Path
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def install(which: object) -> None:
        shutil.copy(which.cert_file, cert)  # type: ignore[attr-defined]
        shutil.copy(which.key_file, key)  # type: ignore[attr-defined]

    install(certs.server)
    config = f"tls {{ cert_file: '{cert}', key_file: '{key}' }}"
    server = launch(config=config)
    with TLSConnection(server.address, client_context(certs)) as old:
        said = without_always(reload(server, config))
        assert server.kind.is_reference or said == []
        renewed = certs.make("renewed", issuer=certs.ca)
        install(renewed)
        assert without_always(reload(server, config)) == ["Reloaded: tls = enabled"]
        assert served(server, certs) == renewed.der
        key.write_text("no key")
        refused(server, config + "\nmax_payload: 99")
        assert served(server, certs) == renewed.der
        assert old.fence() == []


def test_tls_is_switched_on_and_off(launch: Launch, certs: Certificates) -> None:
    server = launch()
    with connect(server) as plain:
        said = without_always(reload(server, f"tls {{ {certs.server.tls_block}, timeout: 5 }}"))
        assert said == [
            "Reloaded: authorization timeout = 6",
            "Reloaded: tls timeout = 5",
            "Reloaded: tls = enabled",
        ]
        assert served(server, certs) == certs.server.der
        assert plain.fence() == []
        reload(server, "")
        with connect(server) as client:
            assert "tls_required" not in client.info


def test_pinned_certificates_change(launch: Launch, certs: Certificates) -> None:
    ca = f'{certs.server.tls_block}, ca_file: "{certs.ca.cert_file}", verify: true'
    server = launch(config=f"tls {{ {ca} }}")
    with TLSConnection(server.address, client_context(certs, certs.client)) as client:
        said = without_always(reload(server, f'tls {{ {ca}, pinned_certs: ["{certs.client.pin}"] }}'))
        assert said[-1] == "Reloaded: 1 pinned_certs"
        assert client.fence() == []
        other = certs.make("other", issuer=certs.ca)
        reload(server, f'tls {{ {ca}, pinned_certs: ["{other.pin}"] }}')
        if not server.kind.is_reference:
            assert client.rest() == b""
            server.wait_log(r"Disconnect 1 clients due to pinned certs reload")


# -- when ----------------------------------------------------------------------------------------------------


def test_the_system_account_reloads(launch: Launch) -> None:
    config = "accounts { $SYS { users: [{ user: sys, password: pw }] } }\n"
    server = launch(config=config)
    with user(server, "sys") as admin:
        subject = f"$SYS.REQ.SERVER.{admin.info['server_id']}.RELOAD".encode()

        def ask(text: str) -> dict[str, object]:
            threads = "" if server.kind.is_reference else f"\nio_threads: {server.kind.io_threads}\n"
            server.conf.write_text(config + text + threads)
            admin.send(b"PUB %s answer 0\r\n\r\n" % subject)
            answer: dict[str, object] = json.loads(admin.read_op().split(b"\r\n")[1])
            return answer

        admin.send(b"SUB answer 1\r\n")
        admin.fence()
        assert "error" not in ask("max_payload: 5000")
        error = "config reload not supported for ServerName: old=, new=x"
        assert ask("server_name: x")["error"] == {"code": 500, "description": error}
        with user(server, "sys") as other:
            assert other.info["max_payload"] == 5000


def test_hangups_in_great_number(launch: Launch) -> None:
    server = launch()
    with connect(server) as client:
        for size in range(5000, 5020):
            hang_up(server, f"max_payload: {size}")
        hang_up(server, "max_payload: 6000\nclient_advertise: 'the.last:1'")
        server.wait_log(r"client_advertise = the\.last:1[\s\S]*Reloaded server configuration")
        assert client.fence() == []
        with connect(server) as new:
            assert new.info["max_payload"] == 6000


def test_a_reload_in_lame_duck_mode(launch: Launch, kind: Kind, tmp_path: Path) -> None:
    if kind.is_reference:
        pytest.skip("the reference reloads at the end of lame duck mode")
    base = "lame_duck_grace_period: '20s'\nlame_duck_duration: '30s'\n"
    server = launch(config=base)
    with connect(server) as client:
        server.process.send_signal(signal.SIGUSR2)
        server.wait_log("Entering lame duck mode")
        reload(server, base + f"max_payload: 8\nports_file_dir: '{tmp_path}'")
        heard(client)
        client.send(b"PUB a 9\r\n123456789\r\n")
        assert client.rest().endswith(b"-ERR 'Maximum Payload Violation'\r\n")
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(TIMEOUT) == 0
