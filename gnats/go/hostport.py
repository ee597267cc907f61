"""Addresses of a host and a port as text (parseHostPort in util.go)."""

from gnats.errors import OptionError
from gnats.go.text import quote

RANDOM_PORT = -1


def split_host_port(text: str) -> tuple[str, str]:
    """Split host:port or [host]:port. Raises OptionError for other text."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise OptionError(f"address {text}: too many colons in address")
    if not colon:
        raise OptionError(f"address {text}: missing port in address")
    return host, port


def parse_host_port(text: str, default_port: int) -> tuple[str, int]:
    """Split an advertised address, host or host:port; without a port, use `default_port`.

    Raises OptionError for other text.
    """
    if ":" not in text or text.endswith("]"):
        text = f"{text}:{default_port}"
    host, number = split_host_port(text)
    try:
        port = int(number)
    except ValueError:
        raise OptionError(f"address {text}: {quote(number)} is not a port") from None
    return host.strip(), port if port not in (0, RANDOM_PORT) else default_port
