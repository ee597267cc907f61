"""Network namespaces on one bridge: hosts between which a test loses packets, in either direction by itself.

Needs root and the commands `ip`, `unshare` and `nsenter`. Nothing is visible outside of the test's process.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

CLONE_NEWNET = 0x40000000
PREFIX = "10.77.0"
_NOBODY = "02:00:00:00:00:01"
"""A hardware address that nobody has: what is sent there is lost, and the sender learns nothing."""


class Network:
    """Hosts on a bridge, by number; the test's thread is on the bridge, too."""

    def __init__(self, size: int, holders: ExitStack) -> None:
        self._pids: list[int] = []
        _ip("link set lo up")
        _ip("link add bridge type bridge")
        _ip(f"addr add {PREFIX}.254/24 dev bridge")
        _ip("link set bridge up")
        for number in range(size):
            # The namespace ends with the process that holds it.
            holder = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo; exec cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            holders.callback(holder.wait)
            holders.callback(holder.kill)
            assert holder.stdout and holder.stdin
            holders.callback(holder.stdout.close)
            holders.callback(holder.stdin.close)
            holder.stdout.readline()  # it has its namespace
            self._pids.append(holder.pid)
            _ip(f"link add port{number} type veth peer name eth0 netns {holder.pid}")
            _ip(f"link set port{number} master bridge up")
            self._in(number, "link set lo up")
            self._in(number, f"addr add {self.address(number)}/24 dev eth0")
            self._in(number, "link set eth0 up")

    def __len__(self) -> int:
        return len(self._pids)

    @staticmethod
    def address(number: int) -> str:
        """Return the address of a host."""
        return f"{PREFIX}.{number + 1}"

    def wrapper(self, number: int) -> list[str]:
        """Return the command that runs another one on a host."""
        return ["nsenter", f"--net=/proc/{self._pids[number]}/ns/net"]

    def lose(self, sender: int, receiver: int) -> None:
        """Lose all packets from one host to another, until pass_all()."""
        self._in(sender, f"neigh replace {self.address(receiver)} lladdr {_NOBODY} nud permanent dev eth0")

    def pass_all(self, sender: int, receiver: int) -> None:
        """Undo lose()."""
        self._in(sender, f"neigh del {self.address(receiver)} dev eth0")

    def _in(self, number: int, words: str) -> None:
        subprocess.run([*self.wrapper(number), "ip", *words.split()], check=True)


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


@contextmanager
def network(size: int) -> Iterator[Network]:
    """Put the test's thread on a network of its own, with so many hosts; skip the test where that fails."""
    for command in ("ip", "unshare", "nsenter"):
        if not shutil.which(command):
            pytest.skip(f"the command {command} is not installed")
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(CLONE_NEWNET):
            pytest.skip(f"no network namespaces: {os.strerror(ctypes.get_errno())}")
        try:
            with ExitStack() as holders:
                yield Network(size, holders)
        finally:
            if libc.setns(before, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "cannot go back to the network")
    finally:
        os.close(before)
