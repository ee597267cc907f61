"""The keys of the configuration file and the options they set."""

import pytest

from gnats.conf import parse
from gnats.confkeys import apply_config
from gnats.errors import OptionError
from gnats.opts import Options

pytestmark = pytest.mark.timeout(60)

HERE = "server.conf"


def options(text: str) -> Options:
    opts = Options()
    assert apply_config(opts, parse(text, HERE).root, HERE) == []
    return opts


def error(text: str) -> str:
    with pytest.raises(OptionError) as caught:
        apply_config(Options(), parse(text, HERE).root, HERE)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_all_keys_set_their_option() -> None:
    opts = options(
        """
        listen: 127.0.0.1:4333
        client_advertise: example.com
        server_name: name
        debug: true
        trace: true
        logtime: false
        logtime_utc: true
        log_file: /l
        pid_file: /p
        ports_file_dir: /d
        http: localhost:8222
        max_connections: 100
        max_subscriptions: 10
        max_control_line: 2k
        max_payload: 2MB
        max_pending: 4MB
        max_closed_clients: 5
        write_deadline: 2s
        ping_interval: "1m"
        ping_max: 3
        no_fast_producer_stall: true
        no_header_support: true
        io_threads: 2
        authorization { user: bob, password: "p w", timeout: 0.5 }
        """
    )
    assert opts == Options(
        host="127.0.0.1",
        port=4333,
        client_advertise="example.com",
        server_name="name",
        debug=True,
        trace=True,
        logtime=False,
        logtime_utc=True,
        log_file="/l",
        pid_file="/p",
        ports_file_dir="/d",
        http_host="localhost",
        http_port=8222,
        max_conn=100,
        max_subs=10,
        max_control_line=2000,
        max_payload=2 << 20,
        max_pending=4 << 20,
        max_closed_clients=5,
        write_deadline=2.0,
        ping_interval=60.0,
        ping_max=3,
        no_fast_producer_stall=True,
        no_header_support=True,
        io_threads=2,
        username="bob",
        password="p w",
        auth_timeout=0.5,
    )


@pytest.mark.parametrize(
    ("text", "opts"),
    [
        ("host: ::1\nport: -1", Options(host="::1", port=-1)),
        ("net: localhost", Options(host="localhost")),
        ("listen: 5", Options(port=5)),
        ("http_port: 1", Options(http_port=1)),
        ("monitor_port: 1", Options(http_port=1)),
        ("PORT: 5", Options(port=5)),
        ("port: 4\nport: 5", Options(port=5)),
        ("max_conn: 0", Options(max_conn=-1)),
        ("io_threads: auto", Options(io_threads="auto")),
        ("authorization { token: t, timeout: 3s }", Options(authorization="t", auth_timeout=3.0)),
        ("logfile: a\npidfile: b\nmax_subs: 7", Options(log_file="a", pid_file="b", max_subs=7)),
    ],
)
def test_keys_have_aliases_and_any_case(text: str, opts: Options) -> None:
    assert options(text) == opts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nfoo: 1", 'server.conf:2:1: unknown field "foo"'),
        ("cluster { port: 1 }", 'server.conf:1:0: key "cluster" is not supported yet'),
        ("jetstream: true", 'server.conf:1:0: key "jetstream" is not supported yet'),
        ("authorization {\n zz: 1 }", 'server.conf:2:2: unknown field "zz"'),
        ("authorization { users: x }", 'server.conf:1:16: key "users" is not supported yet'),
        ("authorization: x", "server.conf:1:0: expected a block: authorization { ... }"),
        ("authorization { user: a, token: b }", "server.conf:1:0: Cannot have a user/pass and token"),
        ("port { a: 1 }", "server.conf:1:0: port takes a value, not a block"),
        ('port: "4222"', 'server.conf:1:0: port takes a number, not "4222"'),
        ("port: true", "server.conf:1:0: port takes a number, not true"),
        ("debug: maybe", 'server.conf:1:0: debug takes true or false, not "maybe"'),
        ("server_name: 12", "server.conf:1:0: server_name takes a string, not 12"),
        ("ping_interval: 10x", 'server.conf:1:0: unknown unit "x" in duration "10x"'),
        ("ping_interval: true", 'server.conf:1:0: ping_interval takes a duration like "10s", not true'),
        ("listen: 127.0.0.1", 'server.conf:1:0: expected a port or host:port, got "127.0.0.1"'),
        ("listen: a:b", 'server.conf:1:0: expected a port or host:port, got "a:b"'),
        ("io_threads: many", 'server.conf:1:0: io_threads takes a number or "auto", not "many"'),
        ("authorization { timeout: on }", "server.conf:1:16: timeout takes seconds or a duration, not true"),
    ],
)
def test_a_wrong_key_or_value_is_one_line_with_its_place(text: str, message: str) -> None:
    assert error(text) == message


@pytest.mark.parametrize(
    ("text", "warning", "opts"),
    [
        ("", "server.conf: config has no values or is empty", Options()),
        (
            "ping_interval: 10",
            'server.conf:1:0: invalid use of field "ping_interval":'
            " ping_interval should be converted to a duration",
            Options(ping_interval=10.0),
        ),
    ],
)
def test_what_is_doubtful_is_a_warning(text: str, warning: str, opts: Options) -> None:
    found = Options()
    assert apply_config(found, parse(text, HERE).root, HERE) == [warning]
    assert found == opts


def test_a_high_authentication_timeout_is_a_warning() -> None:
    (warning,) = apply_config(Options(), parse("authorization { timeout: 100 }", HERE).root, HERE)
    assert "timeout of 100 (100.000000 seconds) is high" in warning
