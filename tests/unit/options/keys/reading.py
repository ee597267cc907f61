"""Read a configuration's text as a server does."""

from gnats.conf import parse
from gnats.options.keys import apply_config
from gnats.options.options import Options

HERE = "server.conf"


def read(text: str) -> tuple[Options, list[str]]:
    """Return the options that a text sets, and the warnings. Raises OptionError."""
    opts = Options()
    warnings = apply_config(opts, parse(text, HERE), HERE)
    return opts, warnings


def options(text: str) -> Options:
    """Return the options of a text, which must cause no warning."""
    opts, warnings = read(text)
    assert warnings == []
    return opts
