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
    """session.c, compiled."""
    return compiled(SOURCE)


@pytest.fixture
def session(server: Server, program: Path) -> Callable[[str], str]:
    """Run a scenario of session.c and return the line that it prints."""

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
    """A thousand answers, then "no responders" after the responder has left."""
    assert session("request") == "1000 1000 1"


def test_queue_group(session: Callable[[str], str]) -> None:
    """The members share all messages, and each member gets some."""
    assert session("queue") == "1000 0"


def test_headers(session: Callable[[str], str]) -> None:
    assert session("headers") == "payload|2|one|two|value: with colon"


def test_drain(session: Callable[[str], str]) -> None:
    """The client handles all messages that have arrived, in order, before it closes."""
    assert session("drain") == "1000 1000"


def test_slow_consumer_callback(session: Callable[[str], str]) -> None:
    assert session("slow") == "990 0"
