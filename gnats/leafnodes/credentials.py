"""How this server proves who it is to a server that it dials: a JWT, an nkey, signatures of a nonce."""

import base64
import re
from pathlib import Path

from gnats.go.text import os_error, quote
from gnats.jwt.claims import UserClaims, UserPermissionLimits
from gnats.jwt.token import JWTError, decode_as
from gnats.nkeys.nkeys import KeyPair, NkeyError
from gnats.options.values.leafnodes import RemoteLeafOptions
from gnats.system.paths import system_path

_BLOCK = re.compile(r"\s*(?:(?:-{3,}.*-{3,}\r?\n)([\w\-.=]+)(?:\r?\n-{3,}.*-{3,}(?:\r?\n|\Z)))", re.ASCII)

_UNRESTRICTED = UserPermissionLimits()


class CredentialsError(Exception):
    """Credentials cannot be read; the text is for the log."""


def _blocks(path: str) -> tuple[str, str]:
    """Return the JWT and the seed in a file. Raises OSError, CredentialsError."""
    found: list[str] = _BLOCK.findall(Path(system_path(path)).read_text("utf-8", "replace"))
    if len(found) < 2:
        raise CredentialsError("malformed")
    return found[0], found[1]


def check_credentials(path: str) -> tuple[str, bool]:
    """Check a file with credentials at the start of the server (solicitLeafNodeRemotes).

    Return an error for the log, empty without one, and whether the user in the file has permissions.
    """
    shown = f"LeafNode Remote Credentials file {quote(path)}"
    try:
        token, seed = _blocks(path)
    except OSError as exc:
        return f"Error reading {shown}: open {path}: {os_error(exc)}", False
    except CredentialsError as exc:
        return f"{shown} {exc}", False
    try:
        KeyPair.from_seed(seed)
    except NkeyError:
        return f"{shown} has malformed seed", False
    try:
        user = decode_as(UserClaims, token)
    except JWTError:
        return f"{shown} has malformed user jwt", False
    nats = user.nats
    return "", any(getattr(nats, name) != getattr(_UNRESTRICTED, name) for name in ("pub", "sub", "resp"))


def signed(options: RemoteLeafOptions, nonce: str) -> dict[str, object]:
    """Return the members of CONNECT that prove who this server is. Raises CredentialsError."""
    if options.credentials:
        try:
            token, seed = _blocks(options.credentials)
        except OSError as exc:
            raise CredentialsError(f"open {options.credentials}: {os_error(exc)}") from None
        except CredentialsError:
            raise CredentialsError("Credentials file malformed") from None
        return {"jwt": token, "sig": _sign(seed, nonce, "Credentials file has malformed seed")[1]}
    if options.nkey:
        key, sig = _sign(options.nkey, nonce, "Remote nkey has malformed seed")
        return {"nkey": key, "sig": sig}
    return {}


def _sign(seed: str, nonce: str, error: str) -> tuple[str, str]:
    try:
        pair = KeyPair.from_seed(seed)
    except NkeyError:
        raise CredentialsError(error) from None
    return pair.public_key, base64.urlsafe_b64encode(pair.sign(nonce.encode())).rstrip(b"=").decode()
