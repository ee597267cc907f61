"""The JavaScript client (npm package "nats"), installed once into build/npm."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.servers import Server

pytestmark = pytest.mark.timeout(180)

PACKAGE = "nats@2.29.3"
HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def modules(npm: Callable[..., Path]) -> Path:
    """The folder in which node finds the client."""
    return npm(PACKAGE)


@pytest.fixture
def session(server: Server, modules: Path) -> Callable[[str], Any]:
    """Run a scenario of session.cjs and return its outcome (JSON)."""

    def session(scenario: str) -> Any:
        done = subprocess.run(
            ["node", HERE / "session.cjs", server.url, scenario],
            env={**os.environ, "NODE_PATH": str(modules)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return session


def test_publish_and_subscribe(session: Callable[[str], Any]) -> None:
    assert session("pubsub") == {"all": [str(n) for n in range(1000)], "one": ["7"]}


def test_large_payloads(session: Callable[[str], Any]) -> None:
    assert session("large") == [n * 1024 * 1024 for n in range(4)]


def test_request_and_reply(session: Callable[[str], Any]) -> None:
    assert session("request") == {"answers": [f"re: {n}" for n in range(100)], "mux": "re: alone"}


def test_request_that_nobody_answers(session: Callable[[str], Any]) -> None:
    assert session("noresponders") == "no responders"


def test_queue_group(session: Callable[[str], Any]) -> None:
    outcome = session("queue")
    assert outcome["messages"] == [str(n) for n in range(1000)]
    assert all(outcome["counts"]), outcome["counts"]


def test_headers(session: Callable[[str], Any]) -> None:
    assert session("headers") == [["payload", [["one", "two"], "value: with colon"]], ["bare", None]]


def test_drain(session: Callable[[str], Any]) -> None:
    assert session("drain") == {
        "closed": True,
        "handled": [str(n) for n in range(1000)],
        "after": "no responders",
    }
