"""A server's identity: a public nkey, as nats-server's (its form only: nothing is signed with it yet)."""

import os

from gnats.nkeys import KEY_LENGTH, Prefix, encode


def new_server_id() -> str:
    """A new id: N and 55 more base32 characters, the last of them a checksum."""
    return encode(Prefix.SERVER, os.urandom(KEY_LENGTH))
