"""The keys at the top level of a configuration."""

import pytest

from gnats.errors import OptionError
from gnats.options.options import Options

from .reading import HERE, options, read

pytestmark = pytest.mark.timeout(60)


def changed(opts: Options) -> dict[str, object]:
    """Return the options that differ from the defaults."""
    default = Options()
    names = set(Options.__dataclass_fields__) - {"config_file", "config_digest"}
    return {name: getattr(opts, name) for name in names if getattr(opts, name) != getattr(default, name)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("listen: 127.0.0.2:4333", {"host": "127.0.0.2", "port": 4333}),
        ("listen: '[::1]:-1'", {"host": "::1", "port": -1}),
        ("listen: 5", {"port": 5}),
        ("host: ::1\nport: -1", {"host": "::1", "port": -1}),
        ("net: localhost", {"host": "localhost"}),
        ("PORT: 5", {"port": 5}),
        ("port: 4\nlisten: a:5", {"host": "a", "port": 5}),
        ("listen: a:5\nport: 4", {"host": "a", "port": 4}),
        ("client_advertise: example.com", {"client_advertise": "example.com"}),
        ("server_name: name", {"server_name": "name"}),
        ("debug: true\ntrace: true", {"debug": True, "trace": True}),
        ("trace_verbose: true", {"trace": True, "trace_verbose": True}),
        ("trace_headers: true", {"trace": True, "trace_headers": True}),
        ("max_traced_msg_len: 9", {"max_traced_msg_len": 9}),
        ("logtime: false\nlogtime_utc: true", {"logtime": False, "logtime_utc": True}),
        ("log_file: l", {"log_file": "l"}),
        ("logfile: l", {"log_file": "l"}),
        ("log_size_limit: 1k\nlog_max_num: 2", {"log_size_limit": 1000, "log_max_num": 2}),
        ("logfile_size_limit: 1\nlogfile_max_num: 2", {"log_size_limit": 1, "log_max_num": 2}),
        ("syslog: true\nremote_syslog: udp://a:1", {"syslog": True, "remote_syslog": "udp://a:1"}),
        ("connect_error_reports: 1", {"connect_error_reports": 1}),
        ("reconnect_error_reports: 2", {"reconnect_error_reports": 2}),
        ("pid_file: p", {"pid_file": "p"}),
        ("pidfile: p", {"pid_file": "p"}),
        ("ports_file_dir: d", {"ports_file_dir": "d"}),
        ("prof_port: 1\nprof_block_rate: 2", {"prof_port": 1, "prof_block_rate": 2}),
        ("http: localhost:8222", {"http_host": "localhost", "http_port": 8222}),
        ("http: 8222", {"http_port": 8222}),
        ("http_port: 1", {"http_port": 1}),
        ("monitor_port: 1", {"http_port": 1}),
        ("https: localhost:8222", {"https_host": "localhost", "https_port": 8222}),
        ("https_port: 1", {"https_port": 1}),
        ("http_base_path: /x", {"http_base_path": "/x"}),
        ("allow_non_tls: true", {"allow_non_tls": True}),
        ("no_auth_user: a", {"no_auth_user": "a"}),
        ("default_sentinel: s", {"default_sentinel": "s"}),
        ("system_account: A", {"system_account": "A"}),
        ("system: A", {"system_account": "A"}),
        ("no_system_account: true", {"no_system_account": True}),
        ("no_system: true", {"no_system_account": True}),
        ("no_sys_acc: true", {"no_system_account": True}),
        ("max_connections: 100", {"max_conn": 100}),
        ("max_conn: 0", {"max_conn": -1}),
        ("max_subscriptions: 10", {"max_subs": 10}),
        ("max_subs: 10", {"max_subs": 10}),
        ("max_sub_tokens: 8", {"max_sub_tokens": 8}),
        ("max_subscription_tokens: 8", {"max_sub_tokens": 8}),
        ("max_control_line: 2k", {"max_control_line": 2000}),
        ("max_payload: 2MB", {"max_payload": 2 << 20}),
        ("max_pending: 4MB", {"max_pending": 4 << 20}),
        ("max_closed_clients: 5", {"max_closed_clients": 5}),
        ("write_deadline: 2s", {"write_deadline": 2.0}),
        ("write_timeout: close", {"write_timeout": "close"}),
        ("write_timeout: default", {}),
        ("write_timeout: retry", {"write_timeout": "retry"}),
        ('ping_interval: "1m"', {"ping_interval": 60.0}),
        ("ping_max: 3", {"ping_max": 3}),
        ("no_sublist_cache: true", {"no_sublist_cache": True}),
        ("disable_sublist_cache: true", {"no_sublist_cache": True}),
        ("no_fast_producer_stall: true", {"no_fast_producer_stall": True}),
        ("no_header_support: true", {"no_header_support": True}),
        ("lame_duck_duration: 31s", {"lame_duck_duration": 31.0}),
        ("lame_duck_grace_period: 500ms", {"lame_duck_grace_period": 0.5}),
        ("server_tags: [' A ', b, '', a]", {"server_tags": ("a", "b")}),
        ("server_tags: A", {"server_tags": ("a",)}),
        ("server_metadata { K: v }", {"server_metadata": {"K": "v"}}),
        ("io_threads: 2", {"io_threads": 2}),
        ("io_threads: auto", {}),
        ("proxy_protocol: false\njetstream: disabled\nocsp: false\nocsp_cache { type: none }", {}),
    ],
)
def test_each_key_sets_its_option(text: str, expected: dict[str, object]) -> None:
    assert changed(options(text)) == expected


def test_the_file_and_its_digest_are_options() -> None:
    opts = options("port: 1\n")
    assert opts.config_file == HERE
    assert opts.config_digest == "sha256:5b27b68e52c25859a76c94f378c31d5a499ca677a46b38fb5f58ded229b59650"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nfoo: 1", '2:1: unknown field "foo"'),
        ("mqtt { port: 1 }", '1:0: key "mqtt" is not supported yet'),
        ("port { a: 1 }", "1:0: port takes a number, not a block"),
        ("port: [a]", "1:0: port takes a number, not an array"),
        ('port: "4222"', '1:0: port takes a number, not "4222"'),
        ("port: true", "1:0: port takes a number, not true"),
        ("port: 2020-01-02T03:04:05Z", "1:0: port takes a number, not 2020-01-02 03:04:05+00:00"),
        ("debug: maybe", '1:0: debug takes true or false, not "maybe"'),
        ("server_name: 12", "1:0: server_name takes a string, not 12"),
        ("ping_interval: 10x", '1:0: error parsing ping_interval: unknown unit "x" in duration "10x"'),
        ("ping_interval: true", '1:0: ping_interval takes a duration like "10s", not true'),
        ("listen: a:b", '1:0: listen: expected port or host:port, got "a:b"'),
        ("io_threads: many", '1:0: io_threads takes a number or "auto", not "many"'),
        ("server_tags: 1", "1:0: server_tags takes a string or an array of strings, not 1"),
    ],
)
def test_a_wrong_key_or_value_is_one_line_with_its_place(text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        read(text)
    assert str(caught.value) == f"{HERE}:{message}"


def test_all_errors_are_collected_behind_the_warnings() -> None:
    with pytest.raises(OptionError) as caught:
        read("port: x\nping_interval: 5\nfoo: 1\naccounts { A { zz: 1 }, B: 1 }")
    assert str(caught.value).splitlines() == [
        f'{HERE}:2:1: invalid use of field "ping_interval": ping_interval should be converted to a duration',
        f'{HERE}:1:0: port takes a number, not "x"',
        f'{HERE}:3:1: unknown field "foo"',
        f'{HERE}:4:16: unknown field "zz"',
        f'{HERE}:4:25: account "B" takes a block {{ ... }}, not 1',
    ]


def test_a_key_that_is_used_as_a_variable_may_have_any_name() -> None:
    assert options("x: 5\nport: $x").port == 5


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("", f"{HERE}: config has no values or is empty"),
        (
            "ping_interval: 10",
            f'{HERE}:1:0: invalid use of field "ping_interval":'
            " ping_interval should be converted to a duration",
        ),
    ],
)
def test_what_is_doubtful_is_a_warning(text: str, warning: str) -> None:
    assert read(text)[1] == [warning]
