"""Where a server that was started with `--ports_file_dir` listens."""

import json
import subprocess
from pathlib import Path


def wait_for_url(server: subprocess.Popen[bytes], home: Path) -> str:
    """Its URL once it listens. Fails with what it logged when it ends before."""
    for _ in range(1500):
        for path in home.glob("*.ports"):
            try:
                return str(json.loads(path.read_text())["nats"][0])
            except json.JSONDecodeError:
                pass  # it is being written
        try:
            server.wait(timeout=0.01)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError((home / "log").read_text())
