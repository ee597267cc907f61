"""The command line of gnats-server (opts.go): nats-server's flags, in Go's style, as options."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from gnats.errors import OptionError
from gnats.go.hostport import RANDOM_PORT
from gnats.go.text import parse_bool, quote
from gnats.go.url import URL, parse_url
from gnats.options.options import ANY_HOST, Options, read_config
from gnats.options.values.tls import TLSOptions

_STRING, _INT, _BOOL, _THREADS = "a string", "a number", "true or false", 'a number or "auto"'

_OPTIONS: dict[str, tuple[str, str]] = {
    # option: kind of value, flags
    "host": (_STRING, "a addr net"),
    "port": (_INT, "p port"),
    "server_name": (_STRING, "n name server_name"),
    "client_advertise": (_STRING, "client_advertise"),
    "pid_file": (_STRING, "P pid"),
    "ports_file_dir": (_STRING, "ports_file_dir"),
    "http_port": (_INT, "m http_port"),
    "https_port": (_INT, "ms https_port"),
    "prof_port": (_INT, "profile"),
    "log_file": (_STRING, "l log"),
    "log_size_limit": (_INT, "log_size_limit"),
    "syslog": (_BOOL, "s syslog"),
    "remote_syslog": (_STRING, "r remote_syslog"),
    "logtime": (_BOOL, "T logtime"),
    "logtime_utc": (_BOOL, "logtime_utc"),
    "debug": (_BOOL, "D debug"),
    "trace": (_BOOL, "V trace"),
    "max_traced_msg_len": (_INT, "max_traced_msg_len"),
    "username": (_STRING, "user"),
    "password": (_STRING, "pass"),
    "authorization": (_STRING, "auth"),
    "io_threads": (_THREADS, "io_threads"),
    "cluster_name": (_STRING, "cluster_name"),
    "cluster_listen": (_STRING, "cluster cluster_listen"),
    "cluster_advertise": (_STRING, "cluster_advertise"),
    "routes": (_STRING, "routes"),
    "no_advertise": (_BOOL, "no_advertise"),
    "connect_retries": (_INT, "connect_retries"),
    "jetstream_on": (_BOOL, "js jetstream"),
    "store_dir": (_STRING, "sd store_dir"),
    # flags that are not options of the server
    "config_file": (_STRING, "c config"),
    "check_config": (_BOOL, "t"),
    "signal": (_STRING, "sl signal"),
    "debug_and_trace": (_BOOL, "DV"),
    "debug_and_verbose_trace": (_BOOL, "DVV"),
    "verbose_trace": (_BOOL, "VV"),
    "tls_on": (_BOOL, "tls"),
    "tls_verify": (_BOOL, "tlsverify"),
    "tls_cert": (_STRING, "tlscert"),
    "tls_key": (_STRING, "tlskey"),
    "tls_ca_cert": (_STRING, "tlscacert"),
    "version": (_BOOL, "v version"),
    "help": (_BOOL, "h help"),
    "help_tls": (_BOOL, "help_tls"),
}

_LEVELS = {
    # applied in this order, so that the last given flag decides
    "debug_and_trace": ("debug", "trace"),
    "debug_and_verbose_trace": ("debug", "trace", "trace_verbose"),
    "verbose_trace": ("trace", "trace_verbose"),
}

_CLUSTER_FLAGS = {
    # flag: field of ClusterOptions
    "cluster_name": "name",
    "cluster_advertise": "advertise",
    "no_advertise": "no_advertise",
    "connect_retries": "connect_retries",
}

_FLAGS = {flag: (option, kind) for option, (kind, flags) in _OPTIONS.items() for flag in flags.split()}

HELP = """\
Usage: gnats-server [options]

Server:
    -a, --addr, --net HOST     Address to listen on for clients (default: 0.0.0.0)
    -p, --port PORT            Port to listen on for clients, -1 for a free one (default: 4222)
    -n, --name NAME            Name of the server, also --server_name (default: its id)
    -m, --http_port PORT       Port for the monitoring endpoints, -1 for a free one (default: none)
    -ms, --https_port PORT     The same over TLS
    -c, --config FILE          Configuration file; flags win over what it says
    -t                         Check the configuration file and exit
    -sl, --signal SIGNAL[=PID] Send ldm, stop, quit, term, reopen or reload to a server and exit;
                               PID may be a file that holds it, or a prefix*
    -P, --pid FILE             Write the process id to a file
        --ports_file_dir DIR   Write the URLs to DIR/<program>_<pid>.ports
        --client_advertise HP  host:port that INFO names to clients
        --profile PORT         Port for the profiling endpoint (default: none)
        --io_threads N         Threads that serve connections; 0: the event loop's own does (default: auto)

Cluster:
        --cluster URL          nats://[USER:PASSWORD@]HOST:PORT to listen on for routes, also --cluster_listen
        --routes URLS          Servers of the cluster to connect to, with commas between them
        --cluster_name NAME    Name of the cluster (default: made up)
        --cluster_advertise HP host:port that other servers connect to
        --no_advertise         Tell clients no URLs of the cluster's servers
        --connect_retries N    Times to try again to connect to servers that others told of (default: 0)

JetStream:
    -js, --jetstream           Enable JetStream
    -sd, --store_dir DIR       Where it stores (default: the directory for temporary files)

Log:
    -l, --log FILE             Log to a file (default: stderr)
    -T, --logtime              Begin every line with the time (default: true)
        --logtime_utc          Write the time in UTC (default: false)
        --log_size_limit SIZE  Bytes after which the log file is rotated (default: never)
    -s, --syslog               Log to syslog
    -r, --remote_syslog URL    Log to a syslog server: udp://host:port, tcp://host:port or unix:///path
    -D, --debug                Log what connections do
    -V, --trace                Log every protocol line
    -VV                        Those of the system account, too
    -DV                        -D and -V
    -DVV                       -D and -VV
        --max_traced_msg_len N Bytes of a payload that are logged (default: all)

Authentication:
        --user NAME            User that clients must be
        --pass PASSWORD        and its password
        --auth TOKEN           Token that clients must have

TLS:
        --tls                  Require TLS; --tls=false: do not, whatever the configuration file says
        --tlscert FILE         Certificate of the server
        --tlskey FILE          and its private key
        --tlsverify            Require TLS, and a certificate of the client
        --tlscacert FILE       Certificate authority of the clients

    -v, --version              Print the version of nats-server whose behaviour this is, and exit
    -h, --help                 Print this text and exit
        --help_tls             Print what can be asked for in a tls block, and exit
"""


@dataclass(slots=True)
class CommandLine:
    """An action and its options.

    `action` is "run", "check" (only check the configuration), "signal" (send `signal`: a command and the
    expression of pids), "version", "help" or "help_tls". `warnings` are of the configuration file; `args` is
    the command line, for reloads.
    """

    action: str
    options: Options = field(default_factory=Options)
    warnings: list[str] = field(default_factory=list)
    args: tuple[str, ...] = ()
    signal: tuple[str, str] = ("", "")


def configure_options(args: list[str]) -> CommandLine:
    """Read the command line, and the configuration file that it names; the command line takes precedence.

    Raises OptionError with a line for each error.
    """
    values, rest = parse_flags(args)
    word = rest[0].lower() if rest else ""
    for action in ("version", "help", "help_tls"):
        if values.get(action):
            return CommandLine(action)
    if word in ("version", "help"):
        return CommandLine(word)
    if word:
        raise OptionError(f"unrecognized command: {quote(rest[0])}")
    if signal := str(values.get("signal", "")):
        command, *pids = signal.split("=")
        if len(pids) > 1:
            raise OptionError(f"invalid signal parameters: [{' '.join(pids[1:])}]")
        return CommandLine("signal", signal=(command, "".join(pids)))
    path = str(values.get("config_file", ""))
    if values.get("check_config"):
        if not path:
            raise OptionError("must specify [-c, --config] option to check configuration file syntax")
        opts = Options()
        return CommandLine("check", opts, read_config(opts, path))
    opts = Options(host="")
    warnings = read_config(opts, path) if path else []
    _override(opts, values)
    opts.host = opts.host or ANY_HOST
    if opts.cluster.port and not opts.cluster.host:
        opts.cluster = replace(opts.cluster, host=ANY_HOST)
    if opts.gateway.port and not opts.gateway.host:
        opts.gateway = replace(opts.gateway, host=ANY_HOST)
    if opts.leafnodes.port and not opts.leafnodes.host:
        opts.leafnodes = replace(opts.leafnodes, host=ANY_HOST)
    return CommandLine("run", opts.baseline(), warnings, tuple(args))


def reload_options(command: CommandLine) -> Options:
    """Read the same command line again, with the present configuration file.

    Raises OptionError.
    """
    return configure_options(list(command.args)).options


def _override(opts: Options, values: dict[str, object]) -> None:
    for flag, options in _LEVELS.items():
        if flag in values:
            values.update(dict.fromkeys(options, values[flag]))
    for option, value in values.items():
        if hasattr(opts, option):
            setattr(opts, option, value)
    jetstream: dict[str, Any] = {}
    if values.get("jetstream_on"):
        jetstream["enabled"] = True
    if values.get("store_dir"):
        jetstream["store_dir"] = values["store_dir"]
    opts.jetstream = replace(opts.jetstream, **jetstream)
    _override_cluster(opts, values)
    _override_tls(opts, values)


def _override_cluster(opts: Options, values: dict[str, object]) -> None:
    """Apply the flags about routes; --cluster "" turns routes off (overrideCluster)."""
    changes: dict[str, Any] = {}
    for flag, option in _CLUSTER_FLAGS.items():
        if flag in values:
            changes[option] = values[flag]
    if "cluster_listen" in values:
        changes |= _cluster_listen(str(values["cluster_listen"]))
    if "routes" in values:
        changes["routes"] = _routes(str(values["routes"]))
    opts.cluster = replace(opts.cluster, **changes)
    if changes.get("routes") and not (opts.cluster.port or opts.cluster.host):
        raise OptionError("solicited routes require cluster capabilities, e.g. --cluster")


def _cluster_listen(text: str) -> dict[str, Any]:
    if not text:
        return {"port": 0}
    random = text.endswith(":-1")  # no port of a URL
    try:
        url = parse_url(text.removesuffix(":-1") + ":0" if random else text)
    except ValueError as exc:
        raise OptionError(f"parse {quote(text)}: {exc}") from None
    if not url.host:
        raise OptionError("missing port in address")
    host, port = url.address()
    if url.user and url.password is None:
        raise OptionError("expected cluster password to be set")
    found: dict[str, Any] = {"host": host, "username": url.user, "password": url.password or ""}
    if not port:
        raise OptionError(f"address {url.host}: missing port in address")
    return found | {"port": RANDOM_PORT if random else int(port)}


def _routes(text: str) -> tuple[URL, ...]:
    urls = []
    for each in filter(None, map(str.strip, text.split(","))):
        try:
            urls.append(parse_url(each))
        except ValueError as exc:
            raise OptionError(f"error parsing route url [{quote(each)}]: {exc}") from None
    return tuple(urls)


def _override_tls(opts: Options, values: dict[str, object]) -> None:
    """Replace the files in the TLS options by those of the command line; keep the other TLS options."""
    if values.get("tls_on") is False:
        opts.tls = None
        return
    if not any(flag.startswith("tls_") for flag in values):
        return
    cert, key = str(values.get("tls_cert", "")), str(values.get("tls_key", ""))
    for file, what in (cert, "certificate"), (key, "private key"):
        if not file:
            raise OptionError(f"TLS Server {what} must be present and valid")
    opts.tls = replace(
        opts.tls or TLSOptions(),
        cert_file=cert,
        key_file=key,
        ca_file=str(values.get("tls_ca_cert", "")),
        verify=bool(values.get("tls_verify")),
        certificates=(),
        insecure=False,
        cipher_suites=(),
        curve_preferences=(),
        allow_insecure_cipher_suites=False,
        min_version="1.2",
    )


def parse_flags(args: list[str]) -> tuple[dict[str, object], list[str]]:
    """Return (values by option, the words after the flags); the last of repeated flags counts.

    Raises OptionError.
    """
    values: dict[str, object] = {}
    args = list(args)
    while args and args[0].startswith("-") and args[0] != "-":
        arg = args.pop(0)
        if arg == "--":
            break
        name, equals, text = arg.removeprefix("-").removeprefix("-").partition("=")
        if not name or name.startswith("-"):
            raise OptionError(f"bad flag syntax: {arg}")
        if name not in _FLAGS:
            raise OptionError(f"unknown flag -{name}; gnats-server -h lists the flags")
        option, kind = _FLAGS[name]
        if not equals:
            if kind == _BOOL:
                text = "true"
            elif args:
                text = args.pop(0)
            else:
                raise OptionError(f"flag -{name} needs a value: {kind}")
        values[option] = _parse_value(name, kind, text)
    return values, args


def _parse_value(name: str, kind: str, text: str) -> object:
    if kind == _STRING or (kind == _THREADS and text == "auto"):
        return text
    with suppress(ValueError):
        if kind == _BOOL:
            return parse_bool(text)
        if kind in (_INT, _THREADS) and text.isascii() and text == text.strip():
            return int(text, 0)  # decimal, 0x, 0o or 0b
    raise OptionError(f"invalid value {quote(text)} for flag -{name}: it takes {kind}")
