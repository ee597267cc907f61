"""Who may connect (auth.go): for now one user with a password, or a token."""

from _operator import _compare_digest as compare_digest  # hmac's own, without loading OpenSSL

from gnats.opts import Options
from gnats.session import ClientOptions


def auth_required(opts: Options) -> bool:
    """Whether clients must authenticate."""
    return bool(opts.username or opts.authorization)


def check_authentication(opts: Options, client: ClientOptions) -> bool:
    """Whether a client's CONNECT is good for this server."""
    if not auth_required(opts):
        return True
    if opts.authorization:
        return compare_passwords(opts.authorization, client.auth_token)
    return opts.username == client.user and compare_passwords(opts.password, client.password)


def compare_passwords(server: str, client: str) -> bool:
    """Whether two secrets are equal, in a time that does not depend on where they differ."""
    return compare_digest(server.encode("utf-8", "surrogateescape"), client.encode())
