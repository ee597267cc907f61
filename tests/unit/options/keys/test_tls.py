"""The tls blocks of a configuration."""

import pytest
from support.certs import Certificates

from gnats.options.keys.tls import CIPHER_SUITES, CURVES, INSECURE_CIPHER_SUITES, tls_help
from gnats.options.values.tls import TLSOptions

from .reading import options

pytestmark = pytest.mark.timeout(60)

PIN = "0123456789abcdefABCDEF0123456789abcdefABCDEF0123456789abcdefABCD"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", TLSOptions()),
        ("verify: true", TLSOptions(verify=True)),
        ("verify_and_map: true", TLSOptions(verify=True, verify_and_map=True)),
        ("verify: true, verify_and_map: false", TLSOptions(verify=True)),
        ("insecure: true", TLSOptions(insecure=True)),
        ("timeout: 5", TLSOptions(timeout=5.0)),
        ("timeout: '500ms'", TLSOptions(timeout=0.5)),
        (
            "cipher_suites: [TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256]",
            TLSOptions(cipher_suites=("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256")),
        ),
        ("curve_preferences: [CurveP256, X25519]", TLSOptions(curve_preferences=("CurveP256", "X25519"))),
        ("min_version: '1.3'", TLSOptions(min_version="1.3")),
        ("connection_rate_limit: 9", TLSOptions(connection_rate_limit=9)),
        (f"pinned_certs: [{PIN!r}]", TLSOptions(pinned_certs=frozenset((PIN.lower(),)))),
        ("handshake_first: true", TLSOptions(handshake_first=True)),
        ("first: OFF", TLSOptions()),
        ("immediate: auto", TLSOptions(handshake_first=True, handshake_first_fallback=0.05)),
        ("handshake_first: 300ms", TLSOptions(handshake_first=True, handshake_first_fallback=0.3)),
    ],
)
def test_each_key_sets_its_option(text: str, expected: TLSOptions) -> None:
    assert options(f"tls {{ {text} }}").tls == expected
    assert options(f"resolver_tls {{ {text} }}").resolver_tls == expected


def test_files_are_named_as_written(certs: Certificates) -> None:
    cert, key, ca = str(certs.server.cert_file), str(certs.server.key_file), str(certs.ca.cert_file)
    block = certs.server.tls_block
    assert options(f"tls {{ {block}, ca_file: '{ca}' }}").tls == TLSOptions(
        cert_file=cert, key_file=key, ca_file=ca
    )
    assert options(f"tls {{ certs: [{{ {block} }}] }}").tls == TLSOptions(certificates=((cert, key),))


def test_the_help_names_all_that_can_be_asked_for() -> None:
    lines = [line.strip() for line in tls_help().splitlines()]
    for name in CIPHER_SUITES:
        assert (f"{name} *" if name in INSECURE_CIPHER_SUITES else name) in lines
    assert set(CURVES) <= set(lines)
