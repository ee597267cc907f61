"""The command line of gnats-server: nats-server's flags, in Go's style, and what becomes of them."""

from dataclasses import dataclass, field

from gnats.errors import OptionError
from gnats.gofmt import quote
from gnats.opts import Options

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
    "log_file": (_STRING, "l log"),
    "logtime": (_BOOL, "T logtime"),
    "logtime_utc": (_BOOL, "logtime_utc"),
    "debug": (_BOOL, "D debug"),
    "trace": (_BOOL, "V trace"),
    "username": (_STRING, "user"),
    "password": (_STRING, "pass"),
    "authorization": (_STRING, "auth"),
    "io_threads": (_THREADS, "io_threads"),
    # not options of the server
    "config_file": (_STRING, "c config"),
    "check_config": (_BOOL, "t"),
    "debug_and_trace": (_BOOL, "DV"),
    "version": (_BOOL, "v version"),
    "help": (_BOOL, "h help"),
}

_FLAGS = {flag: (option, kind) for option, (kind, flags) in _OPTIONS.items() for flag in flags.split()}

_NOT_YET_NAMES = """
    ms https_port sl signal log_size_limit s syslog r remote_syslog VV DVV max_traced_msg_len js
    jetstream sd store_dir tls tlsverify tlscert tlskey tlscacert help_tls cluster cluster_listen
    cluster_name cluster_advertise routes no_advertise connect_retries profile
"""
_NOT_YET = frozenset(_NOT_YET_NAMES.split())

_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))

HELP = """\
Usage: gnats-server [options]

Server:
    -a, --addr, --net HOST     Address to listen on for clients (default: 0.0.0.0)
    -p, --port PORT            Port to listen on for clients, -1 for a free one (default: 4222)
    -n, --name NAME            Name of the server, also --server_name (default: its id)
    -m, --http_port PORT       Port for the monitoring endpoints, -1 for a free one (default: none)
    -c, --config FILE          Configuration file; flags win over what it says
    -t                         Check the configuration file and exit
    -P, --pid FILE             Write the process id to a file
        --ports_file_dir DIR   Write the URLs to DIR/<program>_<pid>.ports
        --client_advertise HP  host:port that clients are told to connect to
        --io_threads N         Threads that serve connections; 0: the event loop's own does (default: auto)

Log:
    -l, --log FILE             Log to a file (default: stderr)
    -T, --logtime              Begin every line with the time (default: true)
        --logtime_utc          Write the time in UTC (default: false)
    -D, --debug                Log what connections do
    -V, --trace                Log every protocol line
    -DV                        Both

Authentication:
        --user NAME            User that clients must be
        --pass PASSWORD        and its password
        --auth TOKEN           Token that clients must have

    -v, --version              Print the version of nats-server whose behaviour this is, and exit
    -h, --help                 Print this text and exit
"""


@dataclass(slots=True)
class CommandLine:
    """What to do: "run", "check" (only the configuration), "version" or "help"; with which options."""

    action: str
    options: Options
    warnings: list[str] = field(default_factory=list)


def configure_options(args: list[str]) -> CommandLine:
    """Read the command line, and the configuration file it names; the command line wins.

    Raises OptionError, one line.
    """
    values, rest = parse_flags(args)
    word = rest[0].lower() if rest else ""
    if word not in ("", "version", "help"):
        raise OptionError(f"unrecognized command: {quote(rest[0])}")
    opts = Options()
    if values.get("version") or (word == "version" and not values.get("help")):
        return CommandLine("version", opts)
    if values.get("help") or word == "help":
        return CommandLine("help", opts)
    warnings: list[str] = []
    path = str(values.get("config_file", ""))
    if path:
        from gnats.conf import parse_file
        from gnats.confkeys import apply_config

        warnings = apply_config(opts, parse_file(path).root, path)
    elif values.get("check_config"):
        raise OptionError("must specify [-c, --config] option to check configuration file syntax")
    if values.get("check_config"):
        opts.config_file = path
        return CommandLine("check", opts.baseline(), warnings)
    if "debug_and_trace" in values:
        values["debug"] = values["trace"] = values["debug_and_trace"]
    for option, value in values.items():
        if hasattr(opts, option):
            setattr(opts, option, value)
    return CommandLine("run", opts.baseline(), warnings)


def parse_flags(args: list[str]) -> tuple[dict[str, object], list[str]]:
    """The values by option, of repeated flags the last, and the words after the flags.

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
        if name in _NOT_YET:
            raise OptionError(f"flag -{name} is not supported yet")
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
    if kind == _BOOL and text in _TRUE | _FALSE:
        return text in _TRUE
    if kind in (_INT, _THREADS) and text.isascii() and text == text.strip():
        try:
            return int(text, 0)  # decimal, 0x, 0o or 0b
        except ValueError:
            pass
    raise OptionError(f"invalid value {quote(text)} for flag -{name}: it takes {kind}")
