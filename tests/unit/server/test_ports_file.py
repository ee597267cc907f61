"""The ports file."""

import ipaddress
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnats.log.logger import Logger
from gnats.options.options import Options
from gnats.options.values.tls import TLSOptions
from gnats.server.ports_file import PortsFile, interface_addresses, scheme_of

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


def test_the_file_is_named_by_program_and_pid_and_holds_the_urls(
    tmp_path: Path, sock: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/gnats-server", "-p", "-1"])
    file = PortsFile(Options(ports_file_dir=str(tmp_path)), {"nats": sock, "monitoring": sock}, Logger(len))
    assert list(tmp_path.iterdir()) == [tmp_path / f"gnats-server_{os.getpid()}.ports"]
    port = sock.getsockname()[1]
    assert json.loads(file.path.read_text()) == {
        "nats": [f"nats://127.0.0.1:{port}"],
        "monitoring": [f"http://127.0.0.1:{port}"],
    }
    file.delete()
    assert list(tmp_path.iterdir()) == []


def test_a_socket_that_listens_everywhere_has_a_url_for_each_address(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as sock:
        file = PortsFile(Options(ports_file_dir=str(tmp_path)), {"nats": sock}, Logger(len))
        port = sock.getsockname()[1]
    urls = json.loads(file.path.read_text())["nats"]
    assert f"nats://127.0.0.1:{port}" in urls
    assert len(urls) == len(interface_addresses())


def test_addresses_are_ip_addresses() -> None:
    addresses = interface_addresses()
    assert "127.0.0.1" in addresses
    assert all(ipaddress.ip_address(address) for address in addresses)


def test_a_file_that_cannot_be_written_is_logged(tmp_path: Path, sock: socket.socket) -> None:
    lines: list[str] = []
    log = Logger(lambda line: lines.append(line.decode()), logtime=False)
    file = PortsFile(Options(ports_file_dir=str(tmp_path / "no")), {"nats": sock}, log)
    file.delete()
    assert [line.split("] ", 1)[1] for line in lines] == [
        f"[ERR] Error writing ports file ({file.path}): open {file.path}: no such file or directory\n",
        f"[ERR] Error cleaning up ports file {file.path}: remove {file.path}: no such file or directory\n",
    ]


def test_the_scheme_says_whether_tls_is_asked_for() -> None:
    tls = TLSOptions(cert_file="cert.pem", key_file="key.pem")
    assert scheme_of("nats", Options(tls=tls)) == "tls"
    assert scheme_of("nats", Options(tls=tls, allow_non_tls=True)) == "nats"
    assert scheme_of("monitoring", Options(https_port=1)) == "https"
    assert scheme_of("profile", Options(https_port=1, tls=tls)) == "http"
