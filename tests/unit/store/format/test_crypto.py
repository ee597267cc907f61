"""Encryption of a store: published vectors, and files encrypted by nats-server."""

from __future__ import annotations

import json

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st
from support.written import ACCOUNT, KEY, Written

from gnats.store.format.codec import decode_consumer, decode_index
from gnats.store.format.crypto import create_key, open_key, seal, unseal, xor_block
from gnats.store.format.highway import checksum
from gnats.store.format.packing import decompress_block
from gnats.store.format.record import decode

pytestmark = pytest.mark.timeout(120)

CIPHERS = pytest.mark.parametrize(("cipher", "nonce_size"), [("chacha", 24), ("aes", 16)])
SEED = bytes(range(0x80, 0xA0))


def test_xchacha20_vector() -> None:
    # The beginning of the vector in draft-irtf-cfrg-xchacha.
    nonce = bytes(range(0x40, 0x57)) + b"\x58"
    text = (
        b'The dhole (pronounced "dole") is also known as the Asiatic wild dog, red dog, and whistling dog. '
        b"It is about the size of a German shepherd but looks more like a long-legged fox. This highly "
        b"elusive and skilled jumper is classified with wolves, coyotes, jackals, and foxes in the "
        b"taxonomic family Canidae."
    )
    sealed = xor_block("chacha", SEED, nonce, 0, text)
    assert sealed.hex().startswith("4559abba4e48c16102e8bb2c05e6947f50a786de162f9b0b7e592a9b53d0d4e9")
    assert xor_block("chacha", SEED, nonce, 0, sealed) == text


def test_aes_is_what_others_do() -> None:
    data = bytes(range(200))
    file = seal("aes", SEED, data)
    assert AESGCM(SEED).decrypt(file[:16], file[16:], None) == data
    assert unseal("aes", SEED, bytes(16) + AESGCM(SEED).encrypt(bytes(16), data, None)) == data
    for nonce in (bytes(16), b"\xff" * 16):
        stream = Cipher(algorithms.AES(SEED), modes.CTR(nonce)).encryptor()
        assert xor_block("aes", SEED, nonce, 0, data) == stream.update(data)
    with pytest.raises(InvalidTag):
        AESGCM(SEED).decrypt(file[:16], file[16:-1] + bytes([file[-1] ^ 1]), None)


@CIPHERS
@given(st.data())
def test_a_block_is_decrypted_from_anywhere(cipher: str, nonce_size: int, data: st.DataObject) -> None:
    text = data.draw(st.binary(max_size=500))
    start = data.draw(st.integers(0, len(text)))
    far = data.draw(st.sampled_from([0, 64, 1 << 20, (1 << 32) + 16]))
    nonce = data.draw(st.sampled_from([bytes(nonce_size), b"\xff" * nonce_size, bytes(range(nonce_size))]))
    whole = xor_block(cipher, SEED, nonce, far, text)
    assert xor_block(cipher, SEED, nonce, far + start, whole[start:]) == text[start:]
    assert xor_block(cipher, SEED, nonce, far, text[:start]) == whole[:start]


@CIPHERS
def test_key_files(cipher: str, nonce_size: int) -> None:
    file, seed = create_key(cipher, b"server", b"$GORDERS")
    assert (len(file), len(seed)) == (nonce_size + 48, 32)
    assert open_key(cipher, b"server", b"$GORDERS", file) == seed
    assert create_key(cipher, b"server", b"$GORDERS")[1] != seed
    other = "aes" if cipher == "chacha" else "chacha"
    changed = file[:-1] + bytes([file[-1] ^ 1])
    for wrong in [
        (cipher, b"another", b"$GORDERS", file),
        (cipher, b"server", b"$GORDERS2", file),
        (other, b"server", b"$GORDERS", file),
        (cipher, b"server", b"$GORDERS", changed),
        (cipher, b"server", b"$GORDERS", file[:-1]),
        (cipher, b"server", b"$GORDERS", b""),
    ]:
        with pytest.raises(ValueError, match="another key"):
            open_key(*wrong)


@CIPHERS
@given(data=st.binary(max_size=300), at=st.integers(0, 400))
def test_sealed_files(cipher: str, nonce_size: int, data: bytes, at: int) -> None:
    file = seal(cipher, SEED, data)
    assert len(file) == nonce_size + len(data) + 16
    assert unseal(cipher, SEED, file) == data
    changed = bytearray(file)
    changed[at % len(file)] ^= 1
    for wrong in (bytes(changed), file[: at % len(file)]):
        with pytest.raises(ValueError, match="damaged"):
            unseal(cipher, SEED, wrong)


def test_what_is_asked_wrongly() -> None:
    with pytest.raises(ValueError, match="'rot13' is no cipher"):
        create_key("rot13", b"", b"")
    with pytest.raises(ValueError, match="32 bytes, not 31"):
        seal("aes", bytes(31), b"")
    with pytest.raises(ValueError, match="24 bytes, not 16"):
        xor_block("chacha", SEED, bytes(16), 0, b"")


@pytest.fixture
def sealed(written: Written) -> Written:
    if not written.cipher:
        pytest.skip("not encrypted")
    return written


def context(*names: str) -> bytes:
    return (ACCOUNT + "".join(names)).encode()


def test_what_nats_server_sealed(sealed: Written) -> None:
    cipher, key = sealed.cipher, KEY.encode()
    for stream in sealed.messages:
        path = sealed.stream(stream)
        seed = open_key(cipher, key, context(stream), (path / "meta.key").read_bytes())
        data = (path / "meta.inf").read_bytes()
        assert (path / "meta.sum").read_text() == checksum(stream.encode(), data).hex()
        assert json.loads(unseal(cipher, seed, data))["name"] == stream
        data = (path / "msgs" / "index.db").read_bytes()
        assert data[-8:] == checksum(stream.encode(), data[:-8])
        state = decode_index(unseal(cipher, seed, data[:-8]))[0]
        assert (state[0], state[4]) == (len(sealed.messages[stream]), 800)

        path = path / "obs" / "BUSY"
        seed = open_key(cipher, key, context(stream, ".BUSY"), (path / "meta.key").read_bytes())
        assert json.loads(unseal(cipher, seed, (path / "meta.inf").read_bytes()))["name"] == "BUSY"
        assert decode_consumer(unseal(cipher, seed, (path / "o.dat").read_bytes()))[0][0] == 23


def test_blocks_that_nats_server_encrypted(sealed: Written) -> None:
    for stream in sealed.messages:
        messages = {}
        for path in sealed.blocks(stream):
            file = path.with_suffix(".key").read_bytes()
            seed = open_key(sealed.cipher, KEY.encode(), context(stream, ":", path.stem), file)
            data = xor_block(sealed.cipher, seed, file, 0, path.read_bytes())
            if data.startswith(b"cmp"):
                assert stream == "SQUEEZED"
                data = decompress_block(data, 1 << 26)
            at = 0
            while at < len(data):
                kind, seq, _, subject, hdr, msg, size = decode(f"{stream}-{path.stem}".encode(), data, at)
                at += size
                if kind == "message":
                    messages[seq] = (subject, hdr, msg)
        stored = sealed.messages[stream]
        assert {seq: message for seq, message in messages.items() if seq in stored} == stored
