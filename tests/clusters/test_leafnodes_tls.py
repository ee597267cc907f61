"""A hub and a spoke of every two kinds over TLS: when the handshake is, whom each side trusts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.certs import Certificates
from support.monitor import monitor
from support.servers import Kind

from .members import few_pairs, named
from .test_leafnodes import connected, exchange, leafs

pytestmark = pytest.mark.timeout(120)
KINDS = pytest.mark.parametrize("kinds", few_pairs(), ids=named)
FIRST = "handshake_first: true"


def hub_tls(certs: Certificates, *more: str) -> str:
    lines = [certs.node.tls_block, f'ca_file: "{certs.ca.cert_file}"', "timeout: 10", *more]
    return f"tls {{ {', '.join(lines)} }}"


def spoke_tls(certs: Certificates, *more: str) -> str:
    """A remote's tls block, without a certificate."""
    return f'tls {{ {", ".join([f"""ca_file: "{certs.ca.cert_file}" """, "timeout: 10", *more])} }}'


@KINDS
def test_the_handshake_follows_info(tmp_path: Path, kinds: tuple[Kind, Kind], certs: Certificates) -> None:
    blocks = {"hub_block": hub_tls(certs), "remote": spoke_tls(certs)}
    with connected(tmp_path, kinds, host="localhost", **blocks) as pair:
        exchange(pair)
        assert monitor(pair.hub, "/varz")["leaf"]["tls_required"] is True
        pair.hub.wait_log(r"\[DBG\] .* - lid:\d+ - Starting TLS leafnode server handshake\n")
        pair.spoke.wait_log(r"\[DBG\] .* - lid:\d+ - Starting TLS leafnode client handshake\n")


@KINDS
def test_the_handshake_comes_first(tmp_path: Path, kinds: tuple[Kind, Kind], certs: Certificates) -> None:
    blocks = {"hub_block": hub_tls(certs, FIRST), "remote": spoke_tls(certs, FIRST)}
    with connected(tmp_path, kinds, host="localhost", **blocks) as pair:
        exchange(pair)


@KINDS
def test_either_is_taken(tmp_path: Path, kinds: tuple[Kind, Kind], certs: Certificates) -> None:
    """The hub waits a little for a handshake, then sends INFO."""
    blocks = {"hub_block": hub_tls(certs, "handshake_first: auto"), "remote": spoke_tls(certs)}
    with connected(tmp_path, kinds, host="localhost", **blocks) as pair:
        exchange(pair)


@KINDS
def test_the_hub_verifies(tmp_path: Path, kinds: tuple[Kind, Kind], certs: Certificates) -> None:
    own = spoke_tls(certs).replace("tls {", f"tls {{ {certs.node.tls_block},")
    blocks = {"hub_block": hub_tls(certs, "verify: true"), "remote": own}
    with connected(tmp_path, kinds, host="localhost", **blocks) as pair:
        exchange(pair)


@KINDS
def test_no_certificate_where_the_hub_verifies(
    tmp_path: Path, kinds: tuple[Kind, Kind], certs: Certificates
) -> None:
    blocks = {"hub_block": hub_tls(certs, "verify: true"), "remote": spoke_tls(certs)}
    with connected(tmp_path, kinds, host="localhost", wait=False, **blocks) as pair:
        pair.hub.wait_log(r"\[ERR\] .* - lid:\d+ - TLS leafnode handshake error: ")
        pair.hub.wait_log(r"Leafnode connection closed: TLS Handshake Failure\n")
        assert leafs(pair.hub) == []


@KINDS
@pytest.mark.parametrize("block", ["", "other"], ids=["no block", "other CA"])
def test_a_hub_that_is_not_trusted(
    tmp_path: Path, kinds: tuple[Kind, Kind], certs: Certificates, block: str
) -> None:
    """The spoke has no tls block, but the hub requires TLS; or the spoke trusts somebody else."""
    remote = f'tls {{ ca_file: "{certs.other_ca.cert_file}" }}' if block else ""
    blocks = {"hub_block": hub_tls(certs), "remote": remote}
    with connected(tmp_path, kinds, host="localhost", wait=False, **blocks) as pair:
        text = re.escape("TLS leafnode handshake error: tls: failed to verify certificate: x509: ")
        pair.spoke.wait_log(rf"\[ERR\] .* - lid:\d+ - {text}")
        pair.spoke.wait_log(r"Leafnode connection closed: TLS Handshake Failure\n")


@KINDS
def test_a_hub_that_need_not_be_trusted(
    tmp_path: Path, kinds: tuple[Kind, Kind], certs: Certificates
) -> None:
    blocks = {"hub_block": hub_tls(certs), "remote": "tls { insecure: true }"}
    with connected(tmp_path, kinds, **blocks) as pair:
        exchange(pair)


@KINDS
def test_compression_over_tls(tmp_path: Path, kinds: tuple[Kind, Kind], certs: Certificates) -> None:
    blocks = {
        "hub_block": hub_tls(certs) + "\ncompression: s2_fast",
        "remote": spoke_tls(certs) + "\ncompression: s2_fast",
    }
    with connected(tmp_path, kinds, host="localhost", **blocks) as pair:
        exchange(pair)
        assert {leafs(pair.hub)[0]["compression"], leafs(pair.spoke)[0]["compression"]} == {"s2_fast"}
