"""Nkeys: encoding, decoding, signing and encrypting as other implementations do."""

import base64

import nkeys as others
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.nkeys.nkeys import (
    KEY_LENGTH,
    PUBLIC_PREFIXES,
    CurveKeyPair,
    KeyPair,
    NkeyError,
    Prefix,
    PublicKey,
    decode_public_key,
    decode_seed,
    decode_signature,
    encode,
    encode_seed,
    is_valid_public_key,
)

pytestmark = pytest.mark.timeout(60)

OPERATOR_SEED = "SOAFYNORQLQFJYBYNUGC5D7SH2MXMUX5BFEWWGHN3EK4VGG5TPT5DZP7QU"
OPERATOR_KEY = "OCAT33MTVU2VUOIMGNGUNXJ66AH2RLSDAF3MUBCYAY5QMIL65NQM6XQG"

seeds = st.binary(min_size=KEY_LENGTH, max_size=KEY_LENGTH)
prefixes = st.sampled_from(sorted(PUBLIC_PREFIXES))
signing = st.sampled_from(sorted(PUBLIC_PREFIXES - {Prefix.CURVE}))


def test_a_seed_known_from_nats_server_gives_the_key_known_from_it() -> None:
    assert KeyPair.from_seed(OPERATOR_SEED).public_key == OPERATOR_KEY
    assert KeyPair.from_seed(OPERATOR_SEED).seed == OPERATOR_SEED


@given(prefixes, seeds)
def test_keys_and_seeds_come_back(prefix: Prefix, seed: bytes) -> None:
    assert decode_public_key(encode(prefix, seed)) == (prefix, seed)
    assert decode_seed(encode_seed(prefix, seed)) == (prefix, seed)
    assert encode(prefix, seed)[0] == encode_seed(prefix, seed)[1] == prefix_letter(prefix)


def prefix_letter(prefix: Prefix) -> str:
    return "X" if prefix == Prefix.CURVE else "N" if prefix == Prefix.SERVER else prefix.name[0]


@given(signing, seeds, st.binary(max_size=300))
def test_signatures_are_those_of_the_other_library(prefix: Prefix, seed: bytes, data: bytes) -> None:
    ours = KeyPair(prefix, seed)
    theirs = others.from_seed(ours.seed.encode())
    assert theirs.public_key.decode() == ours.public_key
    assert theirs.sign(data) == ours.sign(data)
    assert PublicKey(ours.public_key).verify(data, theirs.sign(data))
    assert ours.verify(data, theirs.sign(data))


@given(seeds, st.binary(max_size=100), st.integers(0, 63), st.integers(1, 255))
def test_a_changed_signature_is_refused(seed: bytes, data: bytes, at: int, change: int) -> None:
    pair = KeyPair(Prefix.USER, seed)
    signature = bytearray(pair.sign(data))
    signature[at] ^= change
    assert not pair.verify(data, bytes(signature))
    assert not PublicKey(pair.public_key).verify(data + b"!", pair.sign(data))


@given(prefixes, seeds, st.integers(0, 55), st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"))
def test_a_mistyped_key_is_no_key(prefix: Prefix, seed: bytes, at: int, letter: str) -> None:
    key = encode(prefix, seed)
    mistyped = key[:at] + letter + key[at + 1 :]
    assert is_valid_public_key(mistyped) == (mistyped == key)


@given(st.text(max_size=80))
def test_any_text_is_a_key_or_not(text: str) -> None:
    assert not is_valid_public_key(text)
    with pytest.raises(NkeyError):
        KeyPair.from_seed(text)


@pytest.mark.parametrize(
    "text", ["", "A", "AAAA", OPERATOR_SEED, OPERATOR_KEY.lower(), OPERATOR_KEY + "=", "É" * 56]
)
def test_what_is_not_a_public_key(text: str) -> None:
    assert not is_valid_public_key(text)
    with pytest.raises(NkeyError):
        PublicKey(text)


def test_a_key_of_another_kind_is_not_valid() -> None:
    assert is_valid_public_key(OPERATOR_KEY, Prefix.OPERATOR)
    assert is_valid_public_key(OPERATOR_KEY, Prefix.ACCOUNT, Prefix.OPERATOR)
    assert not is_valid_public_key(OPERATOR_KEY, Prefix.ACCOUNT)
    assert not is_valid_public_key(encode(Prefix.ACCOUNT, bytes(31)))


@given(seeds, seeds, st.binary(max_size=300))
def test_what_is_sealed_only_its_reader_opens(seed: bytes, other: bytes, data: bytes) -> None:
    writer, reader = CurveKeyPair(seed), CurveKeyPair.create()
    sealed = writer.seal(data, reader.public_key)
    assert sealed.startswith(b"xkv1")
    assert CurveKeyPair.from_seed(reader.seed).open(sealed, writer.public_key) == data
    with pytest.raises(NkeyError):
        CurveKeyPair(other).open(sealed, writer.public_key)
    with pytest.raises(NkeyError):
        reader.open(sealed, reader.public_key)
    with pytest.raises(NkeyError):
        reader.open(sealed[:-1] + bytes([sealed[-1] ^ 1]), writer.public_key)


def test_what_was_never_sealed_is_not_opened() -> None:
    pair = CurveKeyPair.create()
    for sealed in (b"", b"xkv1", b"xkv1" + bytes(24), b"xkv2" + bytes(60), b"xkv1" + bytes(60)):
        with pytest.raises(NkeyError):
            pair.open(sealed, pair.public_key)


def test_a_curve_key_does_not_sign_and_others_do_not_seal() -> None:
    curve, user = CurveKeyPair.create(), KeyPair.create(Prefix.USER)
    with pytest.raises(NkeyError):
        KeyPair.from_seed(curve.seed)
    with pytest.raises(NkeyError):
        PublicKey(curve.public_key)
    with pytest.raises(NkeyError):
        CurveKeyPair.from_seed(user.seed)
    with pytest.raises(NkeyError):
        curve.seal(b"x", user.public_key)


@given(st.binary(max_size=100))
def test_signatures_come_in_either_base64(signature: bytes) -> None:
    assert decode_signature(base64.urlsafe_b64encode(signature).decode().rstrip("=")) == signature
    assert decode_signature(base64.b64encode(signature).decode()) == signature


@pytest.mark.parametrize("text", ["!", "A", "AA=A", "AAAA AAAA", "é"])
def test_what_is_no_base64(text: str) -> None:
    assert decode_signature(text) is None
