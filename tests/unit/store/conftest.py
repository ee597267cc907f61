"""Fixtures: store directories written by nats-server."""

from __future__ import annotations

import asyncio

import pytest
from support.launch import start
from support.servers import REFERENCE
from support.written import KEY, Written, fill


@pytest.fixture(scope="session", params=["", "chacha", "aes"], ids=["clear", "chacha", "aes"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A directory of a stopped nats-server, unencrypted and with each cipher."""
    root = tmp_path_factory.mktemp("written")
    encryption = f'key: "{KEY}", cipher: {request.param}' if request.param else ""
    server = start(REFERENCE, root, config=f'jetstream {{ store_dir: "{root}", {encryption} }}')
    written = Written(root, request.param)
    try:
        asyncio.run(fill(server, written))
    finally:
        server.stop()
    return written


@pytest.fixture
def clear(written: Written) -> Written:
    """The unencrypted directory."""
    if written.cipher:
        pytest.skip("encrypted")
    return written
