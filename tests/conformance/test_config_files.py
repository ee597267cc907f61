"""Configuration files: gnats accepts and refuses what nats-server accepts and refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from server.peer import Peer
from support.certs import Certificates
from support.launch import require
from support.servers import REFERENCE, Kind

from gnats import Server
from gnats.commands.flags import configure_options
from gnats.errors import OptionError, ServerError

from . import gateway_files, leafnode_files
from .config_files import BAD, CONFLICTS, DOUBTFUL, GOOD, IGNORED_BY_REFERENCE, MANY, NOT_YET

pytestmark = pytest.mark.timeout(60)

NAME = "server.conf"
Check = Callable[[str], str]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two self-signed certificates, cert and other, and their keys."""
    directory = tmp_path_factory.mktemp("config")
    certificates = Certificates(directory)
    certificates.make("cert")
    certificates.make("other")
    return directory


@pytest.fixture
def write(scratch: Path, tmp_path: Path) -> Callable[[str], None]:
    def write(text: str) -> None:
        (tmp_path / NAME).write_text(text.replace("%d", str(scratch)))

    return write


@pytest.fixture
def gnats(write: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Check a configuration with gnats: its digest, or its warnings or error."""
    monkeypatch.chdir(tmp_path)

    def check(text: str) -> str:
        write(text)
        try:
            command = configure_options(["-t", "-c", NAME])
        except OptionError as exc:
            return str(exc)
        return "\n".join(command.warnings) or command.options.config_digest

    return check


@pytest.fixture
def reference(write: Callable[[str], None], tmp_path: Path) -> Check:
    """Check a configuration with the reference: its digest, or its warnings or errors."""
    require(REFERENCE)

    def check(text: str) -> str:
        write(text)
        done = REFERENCE.run(tmp_path, "-t", "-c", NAME)
        said = done.stderr.removeprefix("nats-server: ").strip()
        valid = f"configuration file {NAME} is valid ("
        assert said.startswith(valid) == (done.returncode == 0), said
        return said.removeprefix(valid).removesuffix(")") if done.returncode == 0 else said

    return check


@pytest.mark.parametrize("text", GOOD + leafnode_files.GOOD + gateway_files.GOOD)
def test_what_is_good_is_taken_and_has_the_same_digest(text: str, gnats: Check, reference: Check) -> None:
    found = gnats(text)
    assert found.startswith("sha256:")
    assert found == reference(text)


@pytest.mark.parametrize(("text", "line", "named"), BAD + leafnode_files.BAD + gateway_files.BAD)
def test_what_is_bad_is_refused_and_named_with_its_place(
    text: str, line: int, named: str, gnats: Check, reference: Check
) -> None:
    found = gnats(text)
    assert any(each.startswith(f"{NAME}:{line}:") and named in each for each in found.splitlines()), found
    assert not reference(text).startswith("sha256:")


@pytest.mark.parametrize("text", gateway_files.UNPLACED)
def test_what_is_bad_is_refused_even_if_the_reference_does_not_name_a_place(
    text: str, gnats: Check, reference: Check
) -> None:
    assert gnats(text).startswith(f"{NAME}:1:")
    assert not reference(text).startswith("sha256:")


@pytest.mark.parametrize(
    ("text", "warning"), (DOUBTFUL | leafnode_files.DOUBTFUL | gateway_files.DOUBTFUL).items()
)
def test_what_is_doubtful_is_a_warning(text: str, warning: str, gnats: Check, reference: Check) -> None:
    for found in gnats(text), reference(text):
        assert warning in found
        assert len(found.splitlines()) == 1


def test_all_that_is_wrong_is_said_warnings_first(gnats: Check, reference: Check) -> None:
    ours, theirs = gnats(MANY).splitlines(), reference(MANY).splitlines()

    def places(lines: list[str]) -> set[str]:
        return {line.split(": ")[0] for line in lines}

    assert places(ours[:2]) == places(theirs[:2]) == {f"{NAME}:4:1", f"{NAME}:5:17"}
    assert places(ours[2:]) >= places(theirs[2:])


@pytest.mark.parametrize("text", NOT_YET | leafnode_files.NOT_YET)
def test_what_is_not_built_yet_is_refused_by_name(text: str, gnats: Check, reference: Check) -> None:
    assert gnats(text).startswith(f"{NAME}:1:")
    assert re.search(r" (is|are) not supported yet(: use .*)?$", gnats(text))
    assert reference(text).startswith("sha256:")


@pytest.mark.parametrize(
    ("text", "warning"),
    (IGNORED_BY_REFERENCE | leafnode_files.IGNORED_BY_REFERENCE | gateway_files.IGNORED_BY_REFERENCE).items(),
)
def test_what_would_be_ignored_is_warned_of(text: str, warning: str, gnats: Check, reference: Check) -> None:
    assert warning in gnats(text)
    assert reference(text).startswith("sha256:")


@pytest.mark.parametrize(
    ("text", "status"), [("port: 1", 0), ("port: x", 1), ("ping_interval: 5", 1), (MANY, 1)]
)
def test_a_check_says_what_it_found_and_exits(
    text: str, status: int, executable: Kind, write: Callable[[str], None], tmp_path: Path
) -> None:
    write(text)
    done = executable.run(tmp_path, "-t", "-c", NAME)
    assert (done.returncode, done.stdout) == (status, "")
    assert "Traceback" not in done.stderr
    if not status:
        assert done.stderr == REFERENCE.run(tmp_path, "-t", "-c", NAME).stderr.replace(
            "nats-server:", f"{executable.command}:"
        )
    else:
        assert done.stderr.startswith(f"{executable.command}: {NAME}:")


@pytest.mark.parametrize(
    ("text", "message"), (CONFLICTS | leafnode_files.CONFLICTS | gateway_files.CONFLICTS).items()
)
def test_options_that_do_not_go_together_end_the_start(
    text: str, message: str, executable: Kind, write: Callable[[str], None], tmp_path: Path
) -> None:
    write(text)
    done = executable.run(tmp_path, "-a", "127.0.0.1", "-p", "-1", "-c", NAME)
    assert done.returncode == 1
    assert message in done.stderr


def test_jetstream_with_a_gateway_needs_routes(executable: Kind, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(gateway_files.JETSTREAM)
    done = executable.run(tmp_path, "-a", "127.0.0.1", "-p", "-1", "-c", NAME)
    message = "JetStream cluster requires configured routes or solicited leafnode for the system account\n"
    assert done.returncode == 1
    assert done.stderr.endswith(message)


@pytest.mark.parametrize(
    "flags", [["--tls"], ["--tlsverify"], ["--tls", "--tlscert", "c"], ["--tlskey", "k"]]
)
def test_tls_of_the_command_line_needs_a_certificate_and_a_key(
    flags: list[str], executable: Kind, tmp_path: Path
) -> None:
    done = executable.run(tmp_path, "-a", "127.0.0.1", "-p", "-1", *flags)
    assert done.returncode == 1
    assert "TLS Server " in done.stderr
    assert done.stderr.rstrip().endswith("must be present and valid")


def test_a_signal_takes_one_process(executable: Kind, tmp_path: Path) -> None:
    done = executable.run(tmp_path, "--signal", "reload=1=2")
    assert (done.returncode, done.stderr) == (1, f"{executable.command}: invalid signal parameters: [2]\n")


ENDS = (
    "0", "-1", "1", "2147483647", "2147483648", "4294967295", "4294967296", "9007199254740993",
    "4611686018427387904", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "18446744073709551616", "1e400", "1.5", '""', '"x"', "true", "[]", "{}", "8GB", "9000PB",
    "1s", "-1s", "9223372036s", "9999999999999h", '"\\x00"',
)  # fmt: skip
"""Values to try for a number, a size or a duration."""
ENDED = (
    "port", "http_port", "max_traced_msg_len", "log_size_limit", "log_max_num", "connect_error_reports",
    "reconnect_error_reports", "prof_port", "prof_block_rate", "max_connections", "max_subs",
    "max_subscription_tokens", "max_control_line", "max_payload", "max_pending", "max_closed_clients",
    "write_deadline", "ping_interval", "ping_max", "lame_duck_duration", "lame_duck_grace_period",
    *(f"jetstream.{name}" for name in (
        "max_mem", "max_file", "sync", "request_queue_limit", "info_queue_limit", "limits.max_ack_pending",
        "limits.max_request_batch", "limits.duplicate_window", "limits.default_max_consumers",
        "limits.batch.max_msgs", "limits.batch.timeout", "limits.batch.max_inflight_total",
        "limits.batch.max_inflight_per_stream",
    )),
    *(f"leafnodes.{name}" for name in (
        "port", "reconnect", "dial_timeout", "write_deadline", "authorization.timeout",
    )),
    *(f"gateway.{name}" for name in (
        "port", "connect_retries", "write_deadline", "authorization.timeout",
    )),
    *(f"accounts.A.jetstream.{name}" for name in ("mem", "disk", "streams", "consumers", "max_ack_pending")),
    *(f"accounts.A.limits.{name}" for name in ("max_conn", "max_subs", "max_payload", "max_leafnodes")),
)  # fmt: skip
STARTED_ELSEWHERE = (
    "port",
    "leafnodes.port",
    "gateway.port",
    "http_port",
    "prof_port",
    "accounts.",
    "lame_duck",
)
"""Not started: ports that may be in use, and options that need more than a number."""


def nested(path: str, value: str) -> str:
    first, _, rest = path.partition(".")
    return f"{first} {{ {nested(rest, value)} }}" if rest else f"{first}: {value}"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("key", ENDED)
async def test_values_at_the_ends_of_their_ranges(
    key: str, gnats: Check, reference: Check, tmp_path: Path
) -> None:
    """Both servers accept a value or both refuse it; with an accepted one gnats starts and takes a client."""
    different = []
    for value in ENDS:
        text = nested(key, value)
        found, expected = (check(text).startswith("sha256:") for check in (gnats, reference))
        if found != expected:
            different.append(f"{text}: gnats {gnats(text)!r}, reference {reference(text)!r}")
        if found and not key.startswith(STARTED_ELSEWHERE):
            different += await starts(tmp_path, f"{text}\njetstream {{ store_dir: js }}")
    assert not different, "\n".join(different)


async def starts(directory: Path, text: str) -> list[str]:
    """Start gnats with a configuration and connect a client; return a text for each failure."""
    (directory / NAME).write_text(text)
    try:
        options = configure_options(["-a", "127.0.0.1", "-p", "-1", "-c", NAME]).options
        async with Server(options) as server:
            peer = await Peer.connect(server.port)
            await peer.close()
    except (OptionError, ServerError):
        return []  # a value may be good by itself and contradict others at the start
    except (OverflowError, ValueError, ConnectionError) as exc:
        return [f"{text}: {exc!r}"]
    return []
