"""Files with JWTs and seeds between lines of dashes: operator JWTs, a user's credentials (.creds)."""

import re

from gnats.jwt.claims import UserClaims
from gnats.jwt.token import JWTError, decode_as
from gnats.nkeys.nkeys import KeyPair, NkeyError, Prefix

_BLOCK = re.compile(r"-{3,}.*-{3,}\r?\n([\w\-.=]+)\r?\n-{3,}.*-{3,}(?:\r?\n|\Z)", re.ASCII)
_SEEDS = tuple("S" + letter for letter in "OAU")


def parse_decorated_jwt(text: str) -> str:
    """Return the first JWT of a decorated text; without decoration, the text itself."""
    found = _BLOCK.search(text)
    return found[1] if found else text


def parse_decorated_seed(text: str) -> KeyPair:
    """Return the key pair of the seed (operator, account or user) in a decorated text or a file of lines.

    Raises NkeyError when there is no seed.
    """
    blocks: list[str] = _BLOCK.findall(text)
    lines = blocks[1:2] if len(blocks) > 1 else text.splitlines()
    for line in lines:
        if line.strip().startswith(_SEEDS):
            return KeyPair.from_seed(line.strip())
    raise NkeyError("no nkey seed found")


def format_user_config(token: str, user: KeyPair) -> str:
    """Return the text of a .creds file. Raises JWTError when the JWT is not the user's."""
    if user.prefix != Prefix.USER or decode_as(UserClaims, token).sub != user.public_key:
        raise JWTError("nkey seed does not match the jwt subject")
    return (
        f"{_block('NATS USER JWT', token)}\n"
        "************************* IMPORTANT *************************\n"
        "Whoever has the seed below is this user: keep it secret.\n\n"
        f"{_block('USER NKEY SEED', user.seed)}\n"
        "*************************************************************\n"
    )


def _block(title: str, text: str) -> str:
    return f"-----BEGIN {title}-----\n{text}\n------END {title}------\n"
