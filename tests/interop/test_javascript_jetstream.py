"""JavaScript clients (npm packages @nats-io/*, installed once into build/npm) with streams and buckets."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.servers import Server

pytestmark = pytest.mark.timeout(120)

VERSION = "3.4.0"
PACKAGES = [f"@nats-io/{name}@{VERSION}" for name in ("transport-node", "jetstream", "kv", "obj")]
PROGRAM = Path(__file__).with_name("jetstream.cjs")


@pytest.fixture(scope="module")
def outcomes(launch_shared: Callable[..., Server], npm: Callable[..., Path]) -> Any:
    """The outcomes of jetstream.cjs's scenarios by name (JSON)."""
    modules = npm(*PACKAGES)
    server = launch_shared(config="jetstream { store_dir: js }")
    done = subprocess.run(
        ["node", PROGRAM, server.url],
        env={**os.environ, "NODE_PATH": str(modules)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def numbers(count: int, first: int = 0) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def test_publish(outcomes: Any) -> None:
    """Publishes with message ids and expectations, two hundred at once, and an atomic batch."""
    assert outcomes["publish"] == {
        "first": [1, False, True, 10071],
        "acks": list(range(2, 202)),
        "batch": [3, 204],
        "subjects": [1, 200, 3],
    }


def test_pull_consumer(outcomes: Any) -> None:
    assert outcomes["pull"] == {
        "fetched": numbers(40),
        "next": "40",
        "again": "41",
        "consumed": numbers(59, 41),
        "nobody": None,
        "left": [0, 0],
    }


def test_ordered_consumers(outcomes: Any) -> None:
    assert outcomes["ordered"] == {
        "consumed": numbers(300),
        "fetched": numbers(300)[1::2],
        "pushed": numbers(200, 100),
    }


def test_push_consumer_with_flow_control(outcomes: Any) -> None:
    assert outcomes["push"] == {"sequences": list(range(1, 501)), "acked": 500}


def test_mirror_and_source(outcomes: Any) -> None:
    assert outcomes["copies"] == {
        "mirror": [["NAME.a", "a"], ["NAME.b", "b"], ["NAME.c", "c"]],
        "source": [["sourced.NAME", "b"]],
    }


def test_direct_get(outcomes: Any) -> None:
    assert outcomes["direct"] == {
        "one": [2, "1", ["one", "two"]],
        "last": "3",
        "batch": ["1", "2", "3"],
        "lasts": ["3", "4", "5"],
        "none": None,
    }


def test_account_and_management(outcomes: Any) -> None:
    assert outcomes["account"] == {
        "more": [1, 1, True],
        "paused": [True, False],
        "left": 0,
        "names": ["D"],
        "deleted": [True, True],
        "gone": 10059,
    }


def test_keys(outcomes: Any) -> None:
    assert outcomes["keys"] == {
        "revisions": [1, 2, 3],
        "refused": [True, 10071],
        "values": ["3", "1"],
        "keys": ["user.a", "user.b"],
        "history": ["1", "3"],
        "told": [
            ["user.a", "PUT", "1"],
            ["user.b", "PUT", "2"],
            ["user.a", "PUT", "3"],
            ["user.b", "DEL", ""],
            ["user.a", "PURGE", ""],
            ["soon", "PUT", "5"],
            ["soon", "PURGE", ""],
        ],
        "gone": "DEL",
        "status": [4, 5],
        "destroyed": True,
    }


def test_objects(outcomes: Any) -> None:
    assert outcomes["objects"] == {
        "large": [3 << 20, 24, True],
        "link": ["link", "hello"],
        "told": [["large", False], ["small", False], ["small", True]],
        "listed": ["large", "small"],
        "sealed": [True, True],
        "destroyed": [True, True],
    }
