"""Install npm packages and compile C programs for the tests with clients of other languages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[2] / "build" / "npm"
UNREACHABLE = re.compile(
    r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT|E50\d)\b"
)


@pytest.fixture(scope="session")
def npm() -> Callable[..., Path]:
    """Install packages ("name@version") once into build/npm; return the path for node's NODE_PATH."""
    for command in ("node", "npm"):
        if not shutil.which(command):
            pytest.skip(f"{command} is not installed")

    def npm(*packages: str) -> Path:
        modules = CACHE / "node_modules"
        if all(installed(modules, *package.rsplit("@", 1)) for package in packages):
            return modules
        CACHE.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(CACHE), *packages]
        done = subprocess.run(install, capture_output=True, text=True, timeout=120)
        if unreachable := UNREACHABLE.search(done.stderr):
            pytest.skip(f"npm cannot reach its registry: {unreachable[1]}")
        assert done.returncode == 0, done.stderr
        return modules

    return npm


def installed(modules: Path, name: str, version: str) -> bool:
    manifest = modules / name / "package.json"
    return manifest.exists() and json.loads(manifest.read_text())["version"] == version


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Compile a C program that uses the C client; return the program's path."""
    if not (compiler := shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("no C compiler is installed")
    look = subprocess.run(
        [compiler, "-E", "-x", "c", "-"],
        input="#include <nats/nats.h>",
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "nats/nats.h" in look.stderr:
        pytest.skip("nats/nats.h is not installed (Debian package libnats-dev)")

    def compiled(source: Path) -> Path:
        program = tmp_path_factory.mktemp("interop") / source.stem
        done = subprocess.run(
            [compiler, "-O2", "-Wall", "-Wextra", "-pthread", source, "-o", program, "-lnats"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return program

    return compiled
