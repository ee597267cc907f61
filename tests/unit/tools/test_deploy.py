"""The files for running gnats as a service: systemd accepts them, and they are as strict as they claim."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.launch import require
from support.servers import KINDS, REFERENCE, Kind

pytestmark = pytest.mark.timeout(60)

DEPLOY = Path(__file__).parents[3] / "deploy"
EXPOSURE = 1.5
"""Highest exposure that systemd-analyze security may find, on a scale to 10: a service that may do all."""

Analyze = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def analyze(tmp_path: Path) -> Analyze:
    """Run a command of systemd-analyze on the unit, with paths of this machine."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed (Debian package systemd)")
    unit = tmp_path / "gnats.service"
    text = (DEPLOY / "gnats.service").read_text()
    unit.write_text(text.replace("/opt/gnats/bin/", f"{Path(sys.executable).parent}/"))

    def analyze(command: str, *args: str) -> subprocess.CompletedProcess[str]:
        line = [program, command, "--no-pager", *args, str(unit)]
        return subprocess.run(line, capture_output=True, text=True, timeout=30)

    return analyze


def test_the_unit_is_one(analyze: Analyze) -> None:
    done = analyze("verify", "--man=no")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_unit_lets_the_server_do_little(analyze: Analyze) -> None:
    done = analyze("security", "--offline=true", f"--threshold={round(EXPOSURE * 10)}")
    assert done.returncode == 0, done.stdout
    exposure = re.search(r"Overall exposure level for gnats\.service: (\d+\.\d)", done.stdout)
    assert exposure
    assert float(exposure[1]) <= EXPOSURE


def test_stopping_takes_no_longer_than_the_unit_allows() -> None:
    unit, conf = (DEPLOY / "gnats.service").read_text(), (DEPLOY / "gnats.conf").read_text()
    timeout, minutes = (
        re.search(r"^TimeoutStopSec=(\d+)$", unit, re.M),
        re.search(r'^lame_duck_duration: "(\d+)m"', conf, re.M),
    )
    assert timeout
    assert minutes
    assert int(timeout[1]) > 60 * int(minutes[1])


def test_the_account_and_the_directory_can_be_made(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    (tmp_path / "etc").mkdir()
    for tool, *args in (["sysusers"], ["tmpfiles", "--create"]):
        program = shutil.which(f"systemd-{tool}")
        if program is None:
            pytest.skip(f"systemd-{tool} is not installed (Debian package systemd)")
        line = [program, f"--root={tmp_path}", *args, str(DEPLOY / f"gnats.{tool}")]
        done = subprocess.run(line, capture_output=True, text=True, timeout=30)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert re.search(r"^gnats:.*:/var/lib/gnats:", (tmp_path / "etc/passwd").read_text(), re.M)
    assert (tmp_path / "etc/gnats").stat().st_mode & 0o777 == 0o750


@pytest.fixture(params=[REFERENCE, KINDS["gnats-loop"]], ids=lambda kind: kind.name)
def server(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    require(kind)
    return kind


def test_the_example_configuration_is_good(server: Kind, tmp_path: Path) -> None:
    done = server.run(tmp_path, "-t", "-c", str(DEPLOY / "gnats.conf"))
    assert (done.returncode, "is valid" in done.stderr) == (0, True), done.stderr


def test_so_is_every_setting_that_it_has_not_switched_on(server: Kind, tmp_path: Path) -> None:
    path = tmp_path / "all.conf"
    text = (DEPLOY / "gnats.conf").read_text()
    path.write_text(re.sub(r"^#(?=[a-z}]|    )", "", text, flags=re.M))
    assert path.read_text().count("\n#") < text.count("\n#") - 15
    done = server.run(tmp_path, "-t", "-c", str(path))
    assert (done.returncode, "is valid" in done.stderr) == (0, True), done.stderr


def test_the_example_shows_the_defaults() -> None:
    from gnats.commands.flags import configure_options

    shown = configure_options(["-c", str(DEPLOY / "gnats.conf")]).options
    default = configure_options([]).options
    differing = {name for name in default.__slots__ if getattr(shown, name) != getattr(default, name)}
    assert differing <= {"http_host", "http_port", "config_file", "config_digest"}
