"""Fail each system call of a store once: every acknowledged message is stored and kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.caller import Caller
from support.failing import ERRORS, Failing, build
from support.faults import Home, create, info, stored
from support.servers import until

from . import raftfiles
from .conftest import STRESS
from .stores import USES

pytestmark = pytest.mark.timeout(300)

TIMEOUT = 250
COUNT = 120


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("failing"))


def run(library: Path, page: Path, module: str, *args: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests in a process whose calls may fail."""
    tests = Path(__file__).parent.parent
    found = subprocess.run(
        [sys.executable, "-P", "-m", module, *args],
        env=os.environ | Failing(page).variables(library) | {"PYTHONPATH": str(tests)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert found.returncode == 0, found.stderr
    return found


@pytest.mark.parametrize("name", USES)
def test_what_is_acknowledged_is_kept(library: Path, tmp_path: Path, name: str) -> None:
    found = run(library, tmp_path / "page", "faults.stores", tmp_path / "stores", name)
    assert not found.stdout, found.stdout
    assert int(found.stderr.split()[-3]) > 50, "hardly any call has failed"


@pytest.mark.parametrize("name", raftfiles.USES)
def test_a_raft_member_keeps_what_it_has_promised(library: Path, tmp_path: Path, name: str) -> None:
    seeds = str(2 + 4 * STRESS)
    found = run(library, tmp_path / "page", "faults.raftfiles", tmp_path / "files", name, seeds)
    assert not found.stdout, found.stdout
    assert int(found.stderr.split()[0]) > 500, "hardly any call has failed"


def test_a_sync_that_finds_nothing_to_do_waits_for_those_at_work(library: Path, tmp_path: Path) -> None:
    """Otherwise a message is acknowledged before the other thread has synced it."""
    (tmp_path / "store").mkdir()
    found = run(library, tmp_path / "page", "faults.syncers", tmp_path / "store")
    assert found.stdout == "first second\n"


def test_the_end_of_a_store(library: Path, tmp_path: Path) -> None:
    """Acknowledged messages are synced. A message that cannot be read now expires later."""
    for name in ("syncTrue", "syncFalse", "failing", "expiry"):
        (tmp_path / name).mkdir()
    found = run(library, tmp_path / "page", "faults.closers", tmp_path)
    assert not found.stdout, found.stdout


@pytest.mark.parametrize(
    ("call", "always"),
    [
        ("write", False),
        ("write", True),
        ("sync", True),
        ("dup", True),
        ("open", False),
        ("open", True),
        ("mmap", False),
        ("malloc", False),
        ("malloc", True),
    ],
)
def test_a_server_goes_on_without_the_stream(
    library: Path, home: Home, tmp_path: Path, call: str, always: bool
) -> None:
    """A stream whose call failed still serves its acknowledged messages, also after a restart.

    Clients of other streams notice nothing.
    """
    failing = Failing(tmp_path / "page")
    home.sync_always = always
    home.wrapper = ("env", *(f"{name}={value}" for name, value in failing.variables(library).items()))
    acked: dict[int, tuple[str, bytes]] = {}
    with Caller(home.start()) as caller:
        create(caller, "S", storage="file", max_bytes=120_000)
        create(caller, "OTHER", storage="file")
        # many messages may be synced at once
        failing.arm(call, 1 if call in ("sync", "dup") else 3, ERRORS[call][0])
        asked = {}
        for number in range(COUNT):
            payload = b"%d " % number + b"x" * 900
            asked[caller.ask(f"S.{number}", payload)] = f"S.{number}", payload
            caller.fence()
        until(lambda: failing.hits)
        failing.disarm()
        for number in range(COUNT):
            # earlier requests have their answers by now, or get none because the stream is read-only
            assert caller.request("OTHER.a", b"served").json["seq"] == number + 1
        create(caller, "NEW", storage="file")
        for message in caller.kept():
            if message.subject in asked and "error" not in message.json:
                acked[message.json["seq"]] = asked[message.subject]
        state = info(caller, "S")["state"]
        found = stored(caller, "S")
        assert not {
            seq for seq, each in acked.items() if seq >= state["first_seq"] and found.get(seq) != each
        }
        assert "lost" not in state
    home.kill()
    home.wrapper = ()
    with Caller(home.start()) as caller:
        state = info(caller, "S")["state"]
        found = stored(caller, "S")
        missing = [seq for seq, each in acked.items() if seq >= state["first_seq"] and found.get(seq) != each]
        assert not missing
        assert "lost" not in state
        assert len(stored(caller, "OTHER")) == COUNT
        assert caller.request("S.next", b"next").json["seq"] > max(acked, default=0)
    home.stop()
