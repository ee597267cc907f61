"""What the log says at a start about settings that are not as safe as they could be."""

import re

from gnats.authopts import User
from gnats.logger import Logger
from gnats.opts import Options

_BCRYPT = re.compile(r"\$2[abxy]\$\d\d\$")


def check_auth_for_warnings(opts: Options, log: Logger) -> None:
    """Warn of passwords that anybody who can read the configuration knows."""
    plain = opts.password and not _BCRYPT.match(opts.password)
    if plain or any(_plaintext(user, opts) for user in opts.users):
        log.warn("Plaintext passwords detected, use nkeys or bcrypt")


def _plaintext(user: User, opts: Options) -> bool:
    types = user.allowed_connection_types
    if not user.password and opts.tls and opts.tls.verify_and_map and (not types or "STANDARD" in types):
        return False  # it is known by its certificate
    return not _BCRYPT.match(user.password)
