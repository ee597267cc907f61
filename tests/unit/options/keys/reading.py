"""Reads a configuration's text as a server would."""

from gnats.conf import parse
from gnats.options.keys import apply_config
from gnats.options.options import Options

HERE = "server.conf"


def read(text: str) -> tuple[Options, list[str]]:
    """The options that a text sets, and the warnings. Raises OptionError."""
    opts = Options()
    warnings = apply_config(opts, parse(text, HERE), HERE)
    return opts, warnings


def options(text: str) -> Options:
    """The options of a text that nothing is wrong with."""
    opts, warnings = read(text)
    assert warnings == []
    return opts
