"""The configuration file: its language, its keys, its errors."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnats.conf import Entry, parse_config, read_config
from gnats.confkeys import apply_config
from gnats.errors import OptionError
from gnats.opts import Options

pytestmark = pytest.mark.timeout(60)

HERE = "server.conf"


def values(text: str) -> dict[str, object]:
    return {entry.key: entry.value for entry in parse_config(text, HERE)}


def options(text: str) -> Options:
    opts = Options()
    assert apply_config(opts, parse_config(text, HERE), HERE) == []
    return opts


def error(text: str) -> str:
    with pytest.raises(OptionError) as caught:
        apply_config(Options(), parse_config(text, HERE), HERE)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "text", ["port: 1", "port = 1", "port 1", "port:1", "port=1", "\tport  :\t1  ", "'port': 1"]
)
def test_a_key_and_a_value_are_parted_by_a_colon_an_equals_sign_or_a_space(text: str) -> None:
    assert values(text) == {text.split("port")[0].strip(" \t'") + "port": 1}


def test_entries_are_parted_by_line_ends_commas_and_semicolons() -> None:
    assert values("a 1, b 2; c: 3\r\n\n,d = 4") == {"a": 1, "b": 2, "c": 3, "d": 4}


def test_comments_are_skipped() -> None:
    text = "# first\na: 1 # behind a value\n// line\n  b: x//y // that was no comment\n"
    assert values(text) == {"a": 1, "b": "x//y"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("YES", True),
        ("on", True),
        ("false", False),
        ("No", False),
        ("off", False),
        ("-12", -12),
        ("1k", 1000),
        ("1K", 1000),
        ("1kb", 1024),
        ("1Ki", 1024),
        ("1KiB", 1024),
        ("2MB", 2 << 20),
        ("2m", 2_000_000),
        ("1g", 10**9),
        ("1gb", 1 << 30),
        ("1.5", 1.5),
        ("10s", "10s"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1:4222", "127.0.0.1:4222"),
        ("name", "name"),
        ("'raw \\n'", "raw \\n"),
        (r'"a\tb\n\"\\\x41"', 'a\tb\n"\\A'),
        ('"12"', "12"),
        ('"two words # not a comment"', "two words # not a comment"),
    ],
)
def test_values_have_types(text: str, value: object) -> None:
    found = values(f"key: {text}\n")["key"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "authorization { user: a, pass: b, timeout: 1 }",
        "authorization: {\n  user: a\n  pass: b # comment\n  timeout: 1\n}\n",
        "authorization = {user a; pass b; timeout 1}",
    ],
)
def test_a_block_may_have_one_line_or_several(text: str) -> None:
    block = values(text)["authorization"]
    assert isinstance(block, list)
    assert [(entry.key, entry.value) for entry in block] == [("user", "a"), ("pass", "b"), ("timeout", 1)]


def test_entries_know_their_line() -> None:
    assert parse_config("a: 1\n\n# comment\nb: 2", HERE) == [Entry("a", 1, 1), Entry("b", 2, 4)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1 2", 'server.conf:1: expected the end of the line after a value, got "2"'),
        ("\na = = 2", 'server.conf:2: expected the end of the line after a value, got "2"'),
        ("a:", "server.conf:1: expected a value"),
        ("a: }", 'server.conf:1: expected a value, got "}"'),
        ("}", 'server.conf:1: expected a key, got "}"'),
        ("a {\n b: 1\n", "server.conf:3: the block opened on line 1 is not closed with }"),
        ('a: "b', 'server.conf:1: expected a value, got "\\"b"'),
        ('a: "\\q"', r"server.conf:1: invalid escape \q: there are \xHH, \t, \n, \r, \" and \\"),
        ("a: 99999999999g", "server.conf:1: the number 99999999999g is too big"),
        ("a: $HOST", "server.conf:1: the variable $HOST is not supported yet; write the value"),
        ("a: [1, 2]", "server.conf:1: an array is not supported yet"),
        ("a { b { c: 1 } }", "server.conf:1: a block in a block is not supported yet"),
        ("include other.conf", "server.conf:1: include is not supported yet"),
    ],
)
def test_an_error_says_where_and_what(text: str, message: str) -> None:
    assert error(text) == message


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
        ("\nfoo: 1", 'server.conf:2: unknown field "foo"'),
        ("cluster { port: 1 }", 'server.conf:1: key "cluster" is not supported yet'),
        ("jetstream: true", 'server.conf:1: key "jetstream" is not supported yet'),
        ("authorization {\n zz: 1 }", 'server.conf:2: unknown field "zz"'),
        ("authorization { users: x }", 'server.conf:1: key "users" is not supported yet'),
        ("authorization: x", "server.conf:1: expected a block: authorization { ... }"),
        ("authorization { user: a, token: b }", "server.conf:1: Cannot have a user/pass and token"),
        ("port { a: 1 }", "server.conf:1: port takes a value, not a block"),
        ('port: "4222"', 'server.conf:1: port takes a number, not "4222"'),
        ("port: true", "server.conf:1: port takes a number, not true"),
        ("debug: maybe", 'server.conf:1: debug takes true or false, not "maybe"'),
        ("server_name: 12", "server.conf:1: server_name takes a string, not 12"),
        ("ping_interval: 10x", 'server.conf:1: unknown unit "x" in duration "10x"'),
        ("ping_interval: true", 'server.conf:1: ping_interval takes a duration like "10s", not true'),
        ("listen: 127.0.0.1", 'server.conf:1: expected a port or host:port, got "127.0.0.1"'),
        ("listen: a:b", 'server.conf:1: expected a port or host:port, got "a:b"'),
        ("io_threads: many", 'server.conf:1: io_threads takes a number or "auto", not "many"'),
        ("authorization { timeout: on }", "server.conf:1: timeout takes seconds or a duration, not true"),
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
            'server.conf:1: invalid use of field "ping_interval":'
            " ping_interval should be converted to a duration",
            Options(ping_interval=10.0),
        ),
    ],
)
def test_what_is_doubtful_is_a_warning(text: str, warning: str, opts: Options) -> None:
    found = Options()
    assert apply_config(found, parse_config(text, HERE), HERE) == [warning]
    assert found == opts


def test_a_high_authentication_timeout_is_a_warning() -> None:
    (warning,) = apply_config(Options(), parse_config("authorization { timeout: 100 }", HERE), HERE)
    assert "timeout of 100 (100.000000 seconds) is high" in warning


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_bytes(b"server_name: n\xff")
    assert read_config(str(path)) == [Entry("server_name", "n\udcff", 1)]


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"open .*/no\.conf: no such file or directory"):
        read_config(str(tmp_path / "no.conf"))


@settings(deadline=None)
@given(st.text(alphabet="ab1 \n:={}[],;#/\"'\\$k.-", max_size=40))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    try:
        parse_config(text, HERE)
    except OptionError as exc:
        assert str(exc).startswith("server.conf:")
        assert "\n" not in str(exc)
