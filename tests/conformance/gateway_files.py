"""Configuration files about gateways, good and bad: see config_files.py."""

from __future__ import annotations


def _gateway(*bodies: str) -> list[str]:
    return [f"gateway {{ {body} }}" for body in bodies]


def _gateways(*bodies: str) -> list[str]:
    return _gateway(*(f"name: G, port: -1, gateways: [ {{ {body} }} ]" for body in bodies))


GOOD = [
    *_gateway(
        "",
        "name: G",
        "name: ''",
        "NAME: G, PORT: -1",
        "name: G, port: 7522, host: localhost",
        "listen: 'localhost:7522', net: 0.0.0.0",
        "listen: 7522",
        "authorization { user: a, password: b, timeout: 3 }",
        "authorization { username: a, pass: b, timeout: '3s' }",
        "authorization { timeout: 0.5 }",
        "tls {}",
        "tls { cert_file: '%d/cert.pem', key_file: '%d/cert-key.pem', timeout: 3 }",
        "tls { ca_file: '%d/cert.pem', verify_cert_and_check_known_urls: true, handshake_first: true }",
        "tls { ca_file: '%d/cert.pem', verify_and_map: true, insecure: true }",
        "advertise: 'a:1', connect_retries: 5, connect_backoff: true",
        "advertise: x, connect_retries: -1, connect_backoff: false",
        "reject_unknown: true",
        "reject_unknown_cluster: false",
        "write_deadline: 2s, write_timeout: retry",
        "write_timeout: default",
        "write_timeout: close",
        "gateways: []",
    ),
    *_gateways(
        "",
        "name: A",
        "name: 'a b'",
        "url: 'nats://a:1'",
        "NAME: A, URL: ' nats://a '",
        "name: A, urls: ['nats://a:1', '//b:2', 'x://c', 'tls://u:p@[::1]:7522/x?y#z']",
        "name: A, urls: []",
        "name: A, urls: ['nats://a'], tls {}",
        "name: A, tls { cert_file: '%d/cert.pem', key_file: '%d/cert-key.pem', timeout: 0 }",
        "name: A, urls: ['nats://a']}, {name: A, url: 'nats://a'",
        "name: G, urls: ['nats://a']",
    ),
    "Gateway { name: G, port: -1 }",
]

BAD: list[tuple[str, int, str]] = [
    ("gateway: [1 ]", 1, "gateway"),
    *(
        (f"gateway {{\n{body}\n}}", 2, needle)
        for body, needle in [
            ("zz: 1", 'unknown field "zz"'),
            ("no_advertise: true", 'unknown field "no_advertise"'),
            ("compression: true", 'unknown field "compression"'),
            ("permissions {}", 'unknown field "permissions"'),
            ("name: 1", "name"),
            ("name: 'a b'", "gateway name cannot contain spaces"),
            ("name: _", "cluster name is reserved"),
            ("listen: x", "listen"),
            ("port: x", "port"),
            ("port: 1.5", "port"),
            ("host: 1", "host"),
            ("authorization: x", "authorization"),
            ("authorization { zz: 1 }", "zz"),
            ("authorization { token: t }", "Gateway authorization does not support tokens"),
            ("authorization { users: [] }", "Gateway authorization does not allow multiple users"),
            ("authorization { users: [{user: a}] }", "Gateway authorization does not allow multiple users"),
            ("authorization { timeout: x }", "timeout"),
            ("tls: 1", "tls"),
            ("tls { zz: 1 }", "zz"),
            ("tls { cert_file: c }", "missing 'key_file' in TLS configuration"),
            ("advertise: 1", "advertise"),
            ("connect_retries: x", "connect_retries"),
            ("connect_backoff: 1", "connect_backoff"),
            ("reject_unknown: 1", "reject_unknown"),
            ("reject_unknown_cluster: x", "reject_unknown_cluster"),
            ("write_deadline: x", "write_deadline"),
            ("write_timeout: x", "write_timeout must be 'default', 'close' or 'retry'"),
            ("write_timeout: 1", "write_timeout"),
            ("gateways: [1 ]", "gateway"),
            ("gateways: ['a']", "gateway"),
            *(
                (f"gateways: [ {{ {body} }} ]", needle)
                for body, needle in [
                    ("zz: 1", 'unknown field "zz"'),
                    ("name: 1", "name"),
                    ("url: 1", "url"),
                    ("url: ['nats://a']", "url"),
                    ("url: '127.0.0.1:1'", 'error parsing gateway url ["127.0.0.1:1"]'),
                    ("urls: 'nats://a'", "urls"),
                    ("urls: [1 ]", "urls"),
                    ("urls: ['nats://a', ':1']", 'error parsing gateway url [":1"]'),
                    ("tls: 1", "tls"),
                    ("tls { timeout: x }", "timeout"),
                    ("tls { key_file: k }", "missing 'cert_file' in TLS configuration"),
                ]
            ),
        ]
    ),
]

UNPLACED = ("gateway { gateways: x }", "gateway { gateways {} }")
"""Refused; the reference does not say where."""

DOUBTFUL = {
    "gateway { write_deadline: 5 }": "write_deadline should be converted to a duration",
    "gateway { authorization { timeout: 61 } }": (
        'invalid use of field "timeout": timeout of 61 (61.000000 seconds) is high'
    ),
    "gateway { name: G, gateways: [ {urls: ['nats://a', 'nats://a']} ] }": (
        "Duplicate gateway entry detected"
    ),
}

# Intended differences: gnats warns of entries that the reference accepts and ignores.
IGNORED_BY_REFERENCE = {
    "gateway { gateways: [ {name: A, url: 'nats://a'} ] }": (
        "gateways without a name and a port to listen on are not dialled"
    ),
    "gateway { authorization { user: a, pass: b, permissions { publish: x } } }": (
        "a gateway has no permissions"
    ),
}

# Options that contradict each other: both servers find this at the start only, with the same text.
CONFLICTS = {
    "gateway { port: -1 }": "gateway has no name",
    "gateway { name: G }": 'gateway "G" has no port specified (select -1 for random port)',
    "gateway { name: G, port: -1, gateways: [ {name: A} ] }": 'gateway "A" has no URL',
    "gateway { name: G, port: -1, gateways: [ {name: A, url: 'nats://a'}, {url: 'nats://a'} ] }": (
        "gateway in the list 1 has no name"
    ),
    "gateway { name: G, port: -1 }\ncluster { name: C }": (
        "cluster name conflicts between cluster and gateway definitions"
    ),
    "gateway { name: G, port: -1 }\nleafnodes { port: -1 }": (
        "leaf nodes and gateways (both being defined) require a system account to also be configured"
    ),
    "gateway { name: G }\nleafnodes { port: -1 }\nno_system_account: true": (
        "leaf nodes and gateways (both being defined) require a system account to also be configured"
    ),
}

JETSTREAM = "server_name: S\ngateway { name: G, port: -1 }\njetstream { store_dir: js }"
