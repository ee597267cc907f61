"""The commands gnats-server and gnats, where they start no server."""

from pathlib import Path

import pytest

from gnats import cli, main
from gnats.version import NATS_VERSION, __version__

pytestmark = pytest.mark.timeout(60)

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["-cluster", "nats://127.0.0.1"], "gnats-server: address 127.0.0.1: missing port in address"),
        (["-zz"], "gnats-server: unknown flag -zz; gnats-server -h lists the flags"),
        (["-c", "/no/such.conf"], "gnats-server: open /no/such.conf: no such file or directory"),
        (
            ["-l", "/no/such/log"],
            "gnats-server: error opening file: open /no/such/log: no such file or directory",
        ),
        (["-t"], "gnats-server: must specify [-c, --config] option to check configuration file syntax"),
    ],
)
def test_what_keeps_the_server_from_starting_is_one_line(args: list[str], line: str, capsys: Capture) -> None:
    assert main.main(args) == 1
    assert capsys.readouterr() == ("", line + "\n")


def test_the_version_is_that_of_the_server_it_behaves_like(capsys: Capture) -> None:
    assert main.main(["-v"]) == 0
    assert capsys.readouterr() == (f"nats-server: v{NATS_VERSION}\n", "")


def test_a_valid_configuration_is_said_to_be_valid(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.conf"
    path.write_text("port: 1\n")
    assert main.main(["-t", "-c", str(path)]) == 0
    digest = "sha256:5b27b68e52c25859a76c94f378c31d5a499ca677a46b38fb5f58ded229b59650"
    assert capsys.readouterr() == ("", f"gnats-server: configuration file {path} is valid ({digest})\n")


@pytest.mark.parametrize("text", ["", "ping_interval: 10\n", "port: x\n"])
def test_a_doubtful_or_wrong_configuration_is_not_valid(text: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.conf"
    path.write_text(text)
    assert main.main(["-t", "-c", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert str(path) in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("args", [["version"], ["-v"], ["--version"]])
def test_gnats_prints_both_versions(args: list[str], capsys: Capture) -> None:
    assert cli.main(args) == 0
    assert capsys.readouterr().out == f"gnats: v{__version__} (as nats-server v{NATS_VERSION})\n"


def test_gnats_server_is_the_server(capsys: Capture) -> None:
    assert cli.main(["server", "-v"]) == 0
    assert capsys.readouterr().out == f"nats-server: v{NATS_VERSION}\n"


def test_gnats_lists_its_commands(capsys: Capture) -> None:
    assert cli.main(["help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n    {command} " in out for command in ("server", "bench", "version"))


@pytest.mark.parametrize(("args", "text"), [([], "Usage: gnats"), (["fly"], "gnats: unknown command 'fly'")])
def test_gnats_without_a_command_it_knows_fails(args: list[str], text: str, capsys: Capture) -> None:
    assert cli.main(args) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(text)
