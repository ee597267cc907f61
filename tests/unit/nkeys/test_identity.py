"""Server ids are nkeys."""

import base64

import pytest

from gnats.nkeys.identity import new_server_id
from gnats.nkeys.nkeys import KEY_LENGTH, Prefix, encode, is_valid_public_key

pytestmark = pytest.mark.timeout(60)

FROM_NATS_SERVER = "NATT4NOEXYQLPI3UCXJSF7OC2XGN6OJRYD6KMLZUYYSJZJQWJINJUFPS"


def test_an_id_that_nats_server_made_is_encoded_the_same() -> None:
    raw = base64.b32decode(FROM_NATS_SERVER)
    assert encode(Prefix(raw[0]), raw[1 : 1 + KEY_LENGTH]) == FROM_NATS_SERVER


def test_a_new_id_is_a_server_nkey() -> None:
    identity = new_server_id()
    assert identity[0] == "N"
    assert is_valid_public_key(identity, Prefix.SERVER)


def test_ids_differ() -> None:
    assert new_server_id() != new_server_id()
