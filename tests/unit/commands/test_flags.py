"""The command line's flags."""

from pathlib import Path

import pytest

from gnats.commands.flags import HELP, configure_options, reload_options
from gnats.errors import OptionError
from gnats.options.options import ANY_HOST, Options
from gnats.options.values.cluster import ClusterOptions
from gnats.options.values.tls import TLSOptions

pytestmark = pytest.mark.timeout(60)


TLS = ["--tlscert", "c", "--tlskey", "k"]
TLS_OPTIONS = TLSOptions(cert_file="c", key_file="k")


def options(*args: str) -> Options:
    command = configure_options(list(args))
    assert command.action == "run"
    return command.options


def error(*args: str) -> str:
    with pytest.raises(OptionError) as caught:
        configure_options(list(args))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("args", [["-p", "1"], ["-p=1"], ["--p", "1"], ["--port=1"], ["-port", "0x1"]])
def test_flags_have_one_dash_or_two_and_a_value_behind_a_space_or_an_equals_sign(args: list[str]) -> None:
    assert options(*args).port == 1


@pytest.mark.parametrize(
    ("args", "changed"),
    [
        (["-a", "h"], {"host": "h"}),
        (["--addr", "h"], {"host": "h"}),
        (["--net", "h"], {"host": "h"}),
        (["-p", "-1"], {"port": -1}),
        (["-n", "s"], {"server_name": "s"}),
        (["--name", "s"], {"server_name": "s"}),
        (["--server_name", "s"], {"server_name": "s"}),
        (["--client_advertise", "h:1"], {"client_advertise": "h:1"}),
        (["-P", "f"], {"pid_file": "f"}),
        (["--pid", "f"], {"pid_file": "f"}),
        (["--ports_file_dir", "d"], {"ports_file_dir": "d"}),
        (["-m", "1"], {"http_port": 1}),
        (["--http_port", "1"], {"http_port": 1}),
        (["-ms", "-1", *TLS], {"https_port": -1, "tls": TLS_OPTIONS}),
        (["--https_port", "1", *TLS], {"https_port": 1, "tls": TLS_OPTIONS}),
        (["--profile", "1"], {"prof_port": 1}),
        (["--log_size_limit", "5"], {"log_size_limit": 5}),
        (["-s"], {"syslog": True}),
        (["--syslog"], {"syslog": True}),
        (["-r", "udp://a:1"], {"remote_syslog": "udp://a:1"}),
        (["--remote_syslog", "udp://a:1"], {"remote_syslog": "udp://a:1"}),
        (["--max_traced_msg_len", "9"], {"max_traced_msg_len": 9}),
        (["-l", "f"], {"log_file": "f"}),
        (["--log", "f"], {"log_file": "f"}),
        (["-T=false"], {"logtime": False}),
        (["--logtime=0"], {"logtime": False}),
        (["--logtime_utc"], {"logtime_utc": True}),
        (["-D"], {"debug": True}),
        (["--debug"], {"debug": True}),
        (["-V"], {"trace": True}),
        (["--trace=T"], {"trace": True}),
        (["-DV"], {"debug": True, "trace": True}),
        (["-D", "-DV=false"], {"debug": False, "trace": False}),
        (["-VV"], {"trace": True, "trace_verbose": True}),
        (["-DVV"], {"debug": True, "trace": True, "trace_verbose": True}),
        (["-DVV", "-VV=false"], {"debug": True}),
        (TLS, {"tls": TLS_OPTIONS}),
        (["--tls", *TLS], {"tls": TLS_OPTIONS}),
        (["--tls=false", *TLS], {}),
        (
            ["--tlsverify", "--tlscacert", "a", *TLS],
            {"tls": TLSOptions(cert_file="c", key_file="k", ca_file="a", verify=True)},
        ),
        (["--user", "u", "--pass", "p"], {"username": "u", "password": "p"}),
        (["--auth", "t"], {"authorization": "t"}),
        (["--io_threads", "3"], {"io_threads": 3}),
        (["--io_threads", "auto"], {"io_threads": "auto"}),
        (["-p", "1", "-p", "2"], {"port": 2}),
        (["-D", "--"], {"debug": True}),
        (["-n", "-D"], {"server_name": "-D"}),
    ],
)
def test_each_flag_sets_its_option(args: list[str], changed: dict[str, object]) -> None:
    assert options(*args) == Options(**{"host": ANY_HOST} | changed).baseline()  # type: ignore[arg-type]


@pytest.mark.parametrize("args", [["-v"], ["--version"], ["-v=true"], ["version"], ["-p", "1", "VERSION"]])
def test_the_version_may_be_asked_for(args: list[str]) -> None:
    assert configure_options(args).action == "version"


def test_it_listens_on_all_interfaces_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("listen: ':5000'")
    assert options("-c", str(path)).host == options().host == ANY_HOST
    path.write_text("listen: 'example.com:5000'")
    assert options("-c", str(path)).host == "example.com"


def cluster(*args: str, conf: Path | None = None, text: str = "") -> ClusterOptions:
    if conf:
        conf.write_text(text)
        args = ("-c", str(conf), *args)
    return options(*args).cluster


def test_a_cluster_by_flags() -> None:
    found = cluster("--cluster", "nats://u:p@:6222", "--routes", "nats://a:1, nats://b:2/")
    assert (found.host, found.port, found.username, found.password) == (ANY_HOST, 6222, "u", "p")
    assert [url.host for url in found.routes] == ["a:1", "b:2"]
    found = cluster("--cluster_listen", "//h:-1", "--cluster_name", "C", "--cluster_advertise", "x:4")
    assert (found.host, found.port, found.name, found.advertise) == ("h", -1, "C", "x:4")
    found = cluster("--cluster", "x://h:1", "--no_advertise", "--connect_retries", "3")
    assert (found.no_advertise, found.connect_retries) == (True, 3)
    assert cluster("--cluster", "x://:1").host == ANY_HOST


def test_flags_win_over_the_cluster_block(tmp_path: Path) -> None:
    conf = tmp_path / "server.conf"
    block = "port: 1, authorization { user: a, password: b }, routes: ['x://a:1'], no_advertise: true"
    text = f"cluster {{ {block} }}"
    found = cluster("--cluster", "nats://h:2", conf=conf, text=text)
    assert (found.host, found.port, found.username, found.password) == ("h", 2, "", "")
    assert len(found.routes) == 1
    found = cluster("--routes", "", "--no_advertise=false", conf=conf, text=text)
    assert (found.host, found.port, found.username, found.routes) == (ANY_HOST, 1, "a", ())
    assert not found.no_advertise
    assert cluster("--cluster", "", conf=conf, text=text).port == 0


def test_help_about_tls_may_be_asked_for() -> None:
    assert configure_options(["--help_tls"]).action == "help_tls"


@pytest.mark.parametrize("args", [["-h"], ["--help"], ["help"], ["-help", "version"]])
def test_help_may_be_asked_for(args: list[str]) -> None:
    assert configure_options(args).action == "help"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-cluster", "x"], "missing port in address"),
        (["--cluster", "nats://a"], "address a: missing port in address"),
        (["--cluster", "nats://a:"], "address a:: missing port in address"),
        (["--cluster", "nats://u@a:1"], "expected cluster password to be set"),
        (["--cluster", "1.2.3.4:1"], 'parse "1.2.3.4:1": first path segment in URL cannot contain colon'),
        (["--cluster", "nats://a:x"], 'parse "nats://a:x": invalid port :x after host'),
        (["--routes", "nats://a:1"], "solicited routes require cluster capabilities, e.g. --cluster"),
        (
            ["--cluster", "nats://a:1", "--routes", "x://b:1, :b"],
            'error parsing route url [":b"]: missing protocol scheme',
        ),
        (["--cluster", "nats://a:1", "-js"], "jetstream cluster requires `server_name` to be set"),
        (["-zz"], "unknown flag -zz; gnats-server -h lists the flags"),
        (["-p"], "flag -p needs a value: a number"),
        (["-p", "x"], 'invalid value "x" for flag -p: it takes a number'),
        (["-p", ""], 'invalid value "" for flag -p: it takes a number'),
        (["-p", " 1"], 'invalid value " 1" for flag -p: it takes a number'),
        (["-D=maybe"], 'invalid value "maybe" for flag -D: it takes true or false'),
        (["--io_threads", "x"], 'invalid value "x" for flag -io_threads: it takes a number or "auto"'),
        (["---p"], "bad flag syntax: ---p"),
        (["-=3"], "bad flag syntax: -=3"),
        (["start"], 'unrecognized command: "start"'),
        (["-"], 'unrecognized command: "-"'),
        (["-D", "false"], 'unrecognized command: "false"'),
        (["-t"], "must specify [-c, --config] option to check configuration file syntax"),
        (["--tls"], "TLS Server certificate must be present and valid"),
        (["--tls", "--tlscert", "c"], "TLS Server private key must be present and valid"),
        (["-sl", "stop=1=2"], "invalid signal parameters: [2]"),
        (["-n", "a b"], "server name cannot contain spaces"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(args: list[str], message: str) -> None:
    assert error(*args) == message


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("port: 1\nhost: h\ndebug: true\ntrace: true\n")
    opts = options("-c", str(path), "-p", "2", "-V=false")
    assert (opts.port, opts.host, opts.debug, opts.trace) == (2, "h", True, False)
    assert opts.config_file == str(path)


def test_tls_flags_replace_files_but_not_how_they_are_used(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("tls { timeout: 5, verify: true, handshake_first: true, min_version: '1.3' }\n")
    assert options("-c", str(path), *TLS).tls == TLSOptions(
        cert_file="c", key_file="k", timeout=5.0, handshake_first=True
    )
    assert options("-c", str(path), "--tls=false").tls is None


@pytest.mark.parametrize("flag", ["-sl", "--signal"])
@pytest.mark.parametrize(
    ("value", "signal"),
    [("stop", ("stop", "")), ("reload=12", ("reload", "12")), ("ldm=/run/pid", ("ldm", "/run/pid"))],
)
def test_a_signal_is_for_some_server_or_for_the_only_one(
    flag: str, value: str, signal: tuple[str, str]
) -> None:
    command = configure_options([flag, value, "-c", "none.conf"])
    assert (command.action, command.signal) == ("signal", signal)


def test_a_reload_reads_the_file_again_and_flags_still_win(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("port: 1\nserver_name: a\n")
    command = configure_options(["-c", str(path), "-p", "2"])
    path.write_text("port: 3\nserver_name: b\n")
    opts = reload_options(command)
    assert (opts.port, opts.server_name) == (2, "b")


def test_a_configuration_may_be_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("port: 1\n")
    command = configure_options(["-t", "-c", str(path)])
    assert (command.action, command.options.config_file, command.warnings) == ("check", str(path), [])


def test_warnings_about_the_file_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("ping_interval: 5\n")
    command = configure_options(["-c", str(path)])
    assert command.options.ping_interval == 5.0
    assert len(command.warnings) == 1


def test_options_of_file_and_flags_must_go_together(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("max_payload: 65MB\n")
    assert error("-c", str(path)) == "max_payload (68157440) cannot be higher than max_pending (67108864)"


def test_help_names_every_flag_that_works() -> None:
    from gnats.commands.flags import _FLAGS

    words = set(HELP.replace(",", " ").split())
    missing = [flag for flag in _FLAGS if not {f"-{flag}", f"--{flag}"} & words]
    assert missing == []
