"""The addresses of the machine's network interfaces."""

import fcntl
import socket
from pathlib import Path

_SIOCGIFADDR = 0x8915
_IFREQ_SIZE = 40


def interface_addresses() -> list[str]:
    """Return the addresses of the machine's interfaces, IPv4 first."""
    addresses = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            request = name.encode().ljust(_IFREQ_SIZE, b"\0")
            try:
                answer = fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, request)
            except OSError:  # the interface has no IPv4 address
                continue
            addresses.append(socket.inet_ntoa(answer[20:24]))
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
        packed = [bytes.fromhex(line.split()[0]) for line in lines]
    except FileNotFoundError:  # a kernel without IPv6
        packed = []
    return addresses + [socket.inet_ntop(socket.AF_INET6, address) for address in packed]
