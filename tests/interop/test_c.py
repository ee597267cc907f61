"""The C client (Debian's libnats-dev), compiled for the test."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.servers import Server

pytestmark = pytest.mark.timeout(180)

SOURCE = Path(__file__).with_name("session.c")


@pytest.fixture(scope="session")
def program(compiled: Callable[[Path], Path]) -> Path:
    """The compiled client."""
    return compiled(SOURCE)


@pytest.fixture
def session(server: Server, program: Path) -> Callable[[str], str]:
    """Runs one scenario of session.c and returns the line it prints."""

    def session(scenario: str) -> str:
        done = subprocess.run(
            [program, server.url, scenario],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return session


def test_publish_and_subscribe_a_hundred_thousand(session: Callable[[str], str]) -> None:
    assert session("pubsub") == "100000"


def test_request_and_reply(session: Callable[[str], str]) -> None:
    """A thousand answers, and no responders after the last one has left."""
    assert session("request") == "1000 1000 1"


def test_queue_group(session: Callable[[str], str]) -> None:
    """All messages are with the members, none of which has nothing."""
    assert session("queue") == "1000 0"


def test_headers(session: Callable[[str], str]) -> None:
    assert session("headers") == "payload|2|one|two|value: with colon"


def test_drain(session: Callable[[str], str]) -> None:
    """Everything that had arrived was handled in order before the connection was closed."""
    assert session("drain") == "1000 1000"


def test_slow_consumer_callback(session: Callable[[str], str]) -> None:
    assert session("slow") == "990 0"
