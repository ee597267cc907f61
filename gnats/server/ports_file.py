"""The ports file (server.go), from which a test or script reads the ports of the server that it started."""

import os
import socket
import sys
from pathlib import Path

from gnats.go.json import compact
from gnats.go.text import join_host_port, os_error
from gnats.log.logger import Logger
from gnats.options.options import Options
from gnats.system.interfaces import interface_addresses
from gnats.system.paths import system_path


class PortsFile:
    """The file <program>_<pid>.ports in ports_file_dir: a JSON object with the URLs of each kind of listener.

    An error with the file is logged and does not stop the server.
    """

    def __init__(self, opts: Options, listeners: dict[str, socket.socket], log: Logger) -> None:
        self.path = Path(opts.ports_file_dir) / f"{Path(sys.argv[0]).name}_{os.getpid()}.ports"
        self._log = log
        urls = {kind: listen_urls(scheme_of(kind, opts), sock) for kind, sock in listeners.items()}
        # Scripts poll for the file, so it must appear complete: write another file and rename it.
        unfinished = self.path.with_suffix(".ports.tmp")
        try:
            system_path(unfinished)
            unfinished.write_text(compact(urls, ascii=True))
            unfinished.rename(self.path)
        except OSError as exc:
            log.error(f"Error writing ports file ({self.path}): open {self.path}: {os_error(exc)}")

    def delete(self) -> None:
        try:
            system_path(self.path)
            self.path.unlink()
        except OSError as exc:
            self._log.error(f"Error cleaning up ports file {self.path}: remove {self.path}: {os_error(exc)}")


def scheme_of(kind: str, opts: Options) -> str:
    """Return the URL scheme of a kind of listener ("nats", "monitoring", "cluster" or "profile")."""
    if kind == "nats":
        return "tls" if opts.tls and not opts.allow_non_tls else "nats"
    if kind == "cluster":
        return "tls" if opts.cluster.tls else "nats"
    return "https" if kind == "monitoring" and opts.https_port else "http"


def listen_urls(scheme: str, sock: socket.socket) -> list[str]:
    """Return the URLs of a listening socket: one for each address of the machine if it listens on all."""
    host, port = sock.getsockname()[:2]
    hosts = interface_addresses() if host in ("0.0.0.0", "::") else [host]
    return [f"{scheme}://{join_host_port(host, port)}" for host in hosts]
