"""nats-server's configuration language: turns text into a tree of tokens (conf/ of nats-server)."""

from gnats.conf.parse import Config, parse, parse_file
from gnats.conf.tokens import Token, Value

__all__ = ["Config", "Token", "Value", "parse", "parse_file"]
