"""Drive a headless Chromium through the WebDriver protocol, which is JSON over HTTP."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from urllib.request import Request, urlopen

from support.servers import TIMEOUT, until

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # the sandbox needs privileges that containers lack
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--window-size=1200,900",
)


def installed() -> bool:
    """Return True if Chromium and its driver are installed."""
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """One browser with one window. Errors of the driver are raised as HTTPError."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            ["chromedriver", "--port=0", "--allowed-ips=127.0.0.1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            self._base = f"http://127.0.0.1:{self._port()}"
            options = {
                "args": [*ARGUMENTS, f"--user-data-dir={directory}"],
                "binary": shutil.which("chromium"),
            }
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self._base += f"/session/{answer['sessionId']}"
        except BaseException:
            self._end()
            raise

    def _port(self) -> int:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                # Read the rest of its output, so that the pipe does not fill up.
                threading.Thread(target=self._process.stdout.read, daemon=True).start()
                return int(found[1])
        raise RuntimeError("chromedriver ended without a port")

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=TIMEOUT) as response:
            return json.load(response)["value"]

    def open(self, url: str) -> None:
        """Load a page."""
        self._call("POST", "/url", {"url": url})

    def run(self, script: str, *args: object) -> Any:
        """Run a JavaScript function's body with `arguments`; return its result."""
        return self._call("POST", "/execute/sync", {"script": script, "args": args})

    def text(self, selector: str) -> str:
        """Return the text of the first element that a CSS selector finds."""
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements that a CSS selector finds."""
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        return list(self.run(script, selector))

    def click(self, selector: str) -> None:
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        (identity,) = found.values()
        self._call("POST", f"/element/{identity}/click", {})

    def wait(self, condition: Callable[[], Any]) -> Any:
        """Call `condition` until its result is true; return that. Raises TimeoutError."""
        return until(condition)

    def command(self, name: str, **params: object) -> None:
        """Send a command of the DevTools protocol."""
        self._call("POST", "/goog/cdp/execute", {"cmd": name, "params": params})

    def complaints(self) -> list[str]:
        """Return the console's errors and policy violations since the last call."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._end()

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT)
        assert self._process.stdout is not None
        self._process.stdout.close()
