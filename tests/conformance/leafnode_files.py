"""Configuration files about leaf nodes, good and bad: see config_files.py."""

from __future__ import annotations

from gnats.nkeys.nkeys import Prefix, encode_seed

from .config_files import ACCOUNT, OPERATOR_JWT, USER

SEED = encode_seed(Prefix.USER, b"s" * 32)
ACCOUNT_SEED = encode_seed(Prefix.ACCOUNT, b"s" * 32)


def _leafnodes(*bodies: str) -> list[str]:
    return [f"leafnodes {{ {body} }}" for body in bodies]


def _remotes(*bodies: str) -> list[str]:
    return _leafnodes(*(f"remotes: [ {{ {body} }} ]" for body in bodies))


GOOD = [
    *_leafnodes(
        "",
        "port: -1",
        "PORT: 7422, host: localhost",
        "listen: 'localhost:7422', net: 0.0.0.0",
        "listen: 7422",
        "advertise: 'a:1', no_advertise: true",
        "leafnode_advertise: x, no_advertise: false",
        "reconnect: 1s, dial_timeout: 1s",
        "reconnect_delay: '-1s', dial_timeout: '-1s'",
        "reconnect_interval: 0s",
        "min_version: 2.8.0",
        "minimum_version: '2.8.0-a.1+b'",
        "min_version: 10.0.0",
        "compression: zz",
        "compression: off",
        "compression: true",
        "compression { mode: s2_auto, rtt_thresholds: [1ms, 2ms] }",
        "compression { thresholds: [] }",
        "isolate_leafnode_interest: true",
        "isolate: false",
        "write_deadline: 2s, write_timeout: retry",
        "write_timeout: default",
        "authorization { user: a, password: b, account: A, timeout: 3 }",
        "authorization { username: a, pass: b, timeout: '3s' }",
        "authorization { timeout: 60 }",
        "authorization { timeout: 0.5, proxy_required: false }",
        f"authorization {{ nkey: {USER}, account: A }}",
        f"authorization {{ nkey: {USER}, user: a }}",
        "authorization { users: [] }",
        "authorization { users: [ {user: a, pass: b, account: A}, {username: b, password: c} ] }",
        "authorization { users: [ {pass: b, proxy_required: false} ], account: '' }",
        "authorization { users: [ {} ] }",
        "tls { cert_file: '%d/cert.pem', key_file: '%d/cert-key.pem', timeout: 3 }",
        "tls { ca_file: '%d/cert.pem', verify: true, handshake_first: auto }",
        "tls { verify_and_map: true, first: 100ms }",
        "tls { verify_cert_and_check_known_urls: false }",
        "remotes: []",
        "port: 1, remotes: [ {url: 'nats://a'}, {url: 'nats://a', account: A}, {url: 'nats://b'} ]",
    ),
    *_remotes(
        "url: 'nats://a:1'",
        "url: ' nats://a '",
        "url: 'nats-leaf://[::1]'",
        "url: 'tls://u:p@a:7422/x?y#z'",
        "urls: ['nats://a:1', '//b:2', 'x://c']",
        "URLS: ['nats://a:1'], account: A, hub: true",
        "url: 'nats://a', local: A, hub: false",
        "url: 'nats://a', creds: '~/c.creds'",
        "url: 'nats://a', credentials: '$NOWHERE/c.creds'",
        f"url: 'nats://a', nkey: {SEED}",
        f"url: 'nats://a', seed: {SEED}",
        "url: 'nats://a', deny_imports: a, deny_exports: [b.*, 'c.>']",
        "url: 'nats://a', deny_import: [], deny_export: 'b'",
        "url: 'nats://a', no_randomize: true",
        "url: 'nats://a', dont_randomize: false",
        "url: 'nats://a', ws_compress: true, ws_no_masking: true",
        "url: 'nats://a', ws_compression: true, websocket_no_masking: false",
        "url: 'nats://a', websocket_compress: true",
        "url: 'nats://a', websocket_compression: true",
        "url: 'nats://a', jetstream_cluster_migrate: false",
        "url: 'nats://a', js_cluster_migrate: false",
        "url: 'nats://a', isolate_leafnode_interest: true, request_isolation: true",
        "url: 'nats://a', isolate: true",
        "url: 'nats://a', compression: s2_best",
        "url: 'nats://a', compression { mode: auto, rtt: [5ms] }",
        "url: 'nats://a', first_info_timeout: 5s, dial_timeout: 5s",
        "url: 'nats://a', first_info_timeout: '-5s', dial_timeout: '-5s'",
        "url: 'nats://a', disabled: true, ignore_discovered_servers: true",
        "url: 'nats://a', proxy {}",
        "url: 'nats://a', proxy { url: '', timeout: 0s }",
        "url: 'nats://a', tls {}",
        "url: 'nats://a', tls { ca_file: '%d/cert.pem', insecure: true, handshake_first: true }",
        "url: 'nats://a', tls { cert_file: '%d/cert.pem', key_file: '%d/cert-key.pem', timeout: 0 }",
    ),
    "leaf { port: -1 }",
    "LeafNodes { port: -1 }",
    "default_js_domain { A: b, C: '' }",
    "default_js_domain {}",
]

BAD: list[tuple[str, int, str]] = [
    ("leafnodes: [1 ]", 1, "leafnodes"),
    *(
        (f"leafnodes {{\n{body}\n}}", 2, needle)
        for body, needle in [
            ("zz: 1", 'unknown field "zz"'),
            ("name: C", 'unknown field "name"'),
            ("listen: x", "listen"),
            ("port: x", "port"),
            ("port: 1.5", "port"),
            ("host: 1", "host"),
            ("advertise: 1", "advertise"),
            ("no_advertise: 1", "no_advertise"),
            ("reconnect: x", "error parsing reconnect: "),
            ("dial_timeout: true", "dial_timeout"),
            ("min_version: 2", "min_version"),
            ("min_version: '2.8'", "invalid leafnode's minimum version: invalid semver"),
            ("min_version: ''", "invalid leafnode's minimum version: invalid semver"),
            ("min_version: '02.8.0'", "invalid leafnode's minimum version: invalid semver"),
            ("min_version: '2.8.0-01'", "invalid leafnode's minimum version: invalid semver"),
            ("min_version: '2.7.99'", "the minimum version should be at least 2.8.0"),
            ("compression: 1", "compression"),
            ("compression { zz: 1 }", "zz"),
            ("isolate: 1", "isolate"),
            ("write_deadline: x", "write_deadline"),
            ("write_timeout: x", "write_timeout"),
            ("tls: 1", "tls"),
            ("tls { zz: 1 }", "zz"),
            ("tls { cert_file: c }", "missing 'key_file' in TLS configuration"),
            (
                "tls { verify_cert_and_check_known_urls: true }",
                "verify_cert_and_check_known_urls not supported in this context",
            ),
            ("authorization: x", "authorization"),
            ("authorization { zz: 1 }", 'unknown field "zz"'),
            ("authorization { token: t }", 'unknown field "token"'),
            ("authorization { permissions {} }", 'unknown field "permissions"'),
            ("authorization { nkey: x }", "Not a valid public nkey for leafnode authorization"),
            (f"authorization {{ nkey: {ACCOUNT} }}", "Not a valid public nkey for leafnode authorization"),
            ("authorization { timeout: true }", "timeout"),
            ("authorization { timeout: x }", "timeout"),
            ("authorization { account: 1 }", "account"),
            ("authorization { users: 1 }", "users"),
            ("authorization { users: [1 ] }", "a user"),
            ("authorization { users: [ {zz: 1} ] }", 'unknown field "zz"'),
            ("authorization { users: [ {user: a, permissions {}} ] }", 'unknown field "permissions"'),
            (f"authorization {{ users: [ {{nkey: {USER}}} ] }}", 'unknown field "nkey"'),
            ("authorization { users: [ {user: 1} ] }", "user"),
            (
                "authorization { user: a, users: [ {user: b} ] }",
                "can not have a single user/pass and a users array",
            ),
            (
                f"authorization {{ nkey: {USER}, users: [ {{user: b}} ] }}",
                "can not have a single nkey and a users array",
            ),
            (
                "authorization { users: [ {user: a}, {user: a, pass: b} ] }",
                'duplicate user "a" detected in leafnode authorization',
            ),
            ("remotes: x", "remotes"),
            ("remotes {}", "remotes"),
            ("remotes: [1 ]", "a remote"),
            *(
                (f"remotes: [ {{ url: 'nats://a', {body} }} ]", needle)
                for body, needle in [
                    ("zz: 1", 'unknown field "zz"'),
                    ("account: 1", "account"),
                    ("hub: 1", "hub"),
                    ("creds: 1", "creds"),
                    ("nkey: x", "Remote leafnode nkey is not a valid seed"),
                    (f"nkey: {USER}", "Remote leafnode nkey is not a valid seed"),
                    (f"seed: {ACCOUNT_SEED}", "Remote leafnode nkey is not a valid seed"),
                    (
                        f"creds: c, nkey: {SEED}",
                        "Remote leafnode can not have both creds and nkey defined",
                    ),
                    ("tls: 1", "tls"),
                    ("tls { key_file: k }", "missing 'cert_file' in TLS configuration"),
                    ("deny_imports: 'a b'", 'subject "a b" is not a valid subject'),
                    ("deny_exports: ['a', 'a.>.b']", 'subject "a.>.b" is not a valid subject'),
                    ("deny_exports: [1 ]", "deny_exports"),
                    ("deny_imports: 1", "deny_imports"),
                    ("no_randomize: 1", "no_randomize"),
                    ("first_info_timeout: x", "first_info_timeout"),
                    ("dial_timeout: x", "dial_timeout"),
                    ("compression: 1", "compression"),
                    ("ws_compression: 1", "ws_compression"),
                    ("ws_no_masking: 1", "ws_no_masking"),
                    ("jetstream_cluster_migrate: 1", "jetstream_cluster_migrate"),
                    ("isolate: 1", "isolate"),
                    ("request_isolation: 1", "request_isolation"),
                    ("disabled: 1", "disabled"),
                    ("ignore_discovered_servers: 1", "ignore_discovered_servers"),
                    ("proxy: 1", "proxy"),
                    ("proxy { zz: 1 }", 'unknown field "zz"'),
                    ("proxy { username: u }", "proxy URL must be specified when other proxy options are set"),
                    ("proxy { timeout: 1s }", "proxy URL must be specified when other proxy options are set"),
                    ("proxy { url: 'https://b', tls: 1 }", "tls"),
                    ("proxy { url: 'https://b', tls { zz: 1 } }", '"zz" is not supported for proxy TLS'),
                    (
                        "proxy { url: 'https://b', tls { verify: false } }",
                        '"verify" is not supported for proxy TLS',
                    ),
                    (
                        "proxy { url: 'https://b', tls { first: auto } }",
                        '"first" is not supported for proxy TLS',
                    ),
                    (
                        "proxy { url: 'http://b', tls {} }",
                        "proxy TLS configuration requires an https proxy URL, got: http",
                    ),
                    ("proxy { url: 'https://b', tls { timeout: '-1s' } }", "proxy TLS timeout must be >= 0"),
                    ("proxy { tls {} }", "proxy URL must be specified when other proxy options are set"),
                    ("proxy { url: 'a.b' }", "proxy URL scheme must be http or https, got: "),
                    ("proxy { url: 'ws://a' }", "proxy URL scheme must be http or https, got: ws"),
                    ("proxy { url: 'http:///a' }", "proxy URL must specify a host"),
                    ("proxy { url: 'http://a:b' }", "invalid proxy URL: "),
                    ("proxy { url: 'http://a', timeout: '-1s' }", "proxy timeout must be >= 0"),
                    ("proxy { url: 'http://a', timeout: x }", "error parsing proxy timeout"),
                    (
                        "proxy { url: 'http://a', username: u }",
                        "proxy username and password must both be specified or both be empty",
                    ),
                    (
                        "proxy { url: 'http://a', password: p }",
                        "proxy username and password must both be specified or both be empty",
                    ),
                ]
            ),
            *(
                (f"remotes: [ {{ {body} }} ]", needle)
                for body, needle in [
                    ("url: 1", "url"),
                    ("url {}", "url"),
                    ("urls: [1 ]", "urls"),
                    ("url: '127.0.0.1:7422'", 'error parsing leafnode url ["127.0.0.1:7422"]'),
                    ("urls: ['nats://a:b']", 'error parsing leafnode url ["nats://a:b"]'),
                    ("urls: ['nats://a', ':1']", 'error parsing leafnode url [":1"]'),
                ]
            ),
            (
                "remotes: [ {url: 'nats://u:p@a'}, {url: 'nats://u:p@a', hub: true} ]",
                'duplicate remote urls=["nats://u:xxxxx@a"], account="$G"',
            ),
            (
                "remotes: [ {url: 'nats://a', account: '$G'}, {url: 'nats://a'} ]",
                'duplicate remote urls=["nats://a"], account="$G"',
            ),
            (
                "remotes: [ {url: 'nats://a', creds: c}, {url: 'nats://a', creds: c} ]",
                'duplicate remote urls=["nats://a"], account="$G", credentials="c"',
            ),
            (
                f"remotes: [ {{url: 'nats://a', nkey: {SEED}}}, {{url: 'nats://a', nkey: {SEED}}} ]",
                'duplicate remote urls=["nats://a"], account="$G", nkey="[REDACTED]"',
            ),
        ]
    ),
    ("default_js_domain { A: 1 }", 1, "default_js_domain A"),
]

DOUBTFUL = {
    "leafnodes { reconnect_delay: 5 }": (
        'invalid use of field "reconnect": reconnect should be converted to a duration'
    ),
    "leafnodes { dial_timeout: 5 }": "dial_timeout should be converted to a duration",
    "leafnodes { write_deadline: 5 }": "write_deadline should be converted to a duration",
    "leafnodes { authorization { timeout: 61 } }": (
        'invalid use of field "timeout": timeout of 61 (61.000000 seconds) is high'
    ),
    "leafnodes { remotes: [ {urls: ['nats://a', 'nats://a']} ] }": "Duplicate leafnode entry detected",
    "leafnodes { remotes: [ {url: 'nats://a', first_info_timeout: 5} ] }": (
        "first_info_timeout should be converted to a duration"
    ),
}

# Intended differences: the reference accepts these, gnats does not have the feature yet.
NOT_YET = {
    "leafnodes { authorization { proxy_required: true } }": "trusted proxies",
    "leafnodes { authorization { users: [{user: a, proxy_required: true}] } }": "trusted proxies",
    "leafnodes { remotes: [{url: 'ws://a'}] }": "WebSocket",
    "leafnodes { remotes: [{urls: ['nats://a', 'wss://b']}] }": "WebSocket",
    "leafnodes { remotes: [{url: 'nats://a', jetstream_cluster_migrate: true}] }": "JetStream in clusters",
    "leafnodes { remotes: [{url: 'nats://a', js_cluster_migrate {leader_migrate_delay: 1s}}] }": (
        "JetStream in clusters"
    ),
}

# Intended differences: gnats warns of entries that the reference accepts and ignores.
IGNORED_BY_REFERENCE = {
    "leafnodes { remotes: [ {url: 'nats://a', proxy { url: 'https://b', tls { timeout: 0 } }} ] }": (
        "proxy configuration will be ignored"
    ),
    "leafnodes { remotes: [ {url: 'nats://a', proxy { url: 'http://b' }} ] }": (
        "proxy configuration will be ignored"
    ),
    "leafnodes { remotes: [ {} ] }": "a remote without URLs is not dialled",
    "leafnodes { remotes: [ {url: 'localhost:7422'} ] }": 'the URL "localhost:7422" has no host',
    "leafnodes { remotes: [ {url: a} ] }": 'the URL "a" has no host',
}

# Options that contradict each other: both servers find this at the start only, with the same text.
CONFLICTS = {
    "default_js_domain { A: hub }": (
        'in non operator mode, `default_js_domain` references non existing account "A"'
    ),
    "default_js_domain { A: hub }\naccounts { A { jetstream: true } }": (
        'default_js_domain contains account name "A" with enabled JetStream'
    ),
    "default_js_domain { A: '' }\naccounts { A {} }\nsystem_account: A": (
        'system account "A" can not be in default_js_domain'
    ),
    "default_js_domain { $G: 'a b' }": (
        'default_js_domain contains account "$G" with invalid domain name "a b"'
    ),
    f"operator: {OPERATOR_JWT}\nresolver: MEM\ndefault_js_domain {{ A: hub }}": (
        'default_js_domain contains account name "A", which is not a valid public account nkey'
    ),
    "leafnodes { port: -1, compression: zz }": 'unsupported compression mode "zz"',
    "leafnodes { compression { mode: auto, rtt: [2ms, 1ms] } }": (
        "RTT threshold values [2ms 1ms] should be in ascending order"
    ),
    "leafnodes { remotes: [ {url: 'nats://a', compression: zz} ] }": 'unsupported compression mode "zz"',
    "leafnodes { port: -1, authorization { account: X } }": (
        'cannot find local account "X" specified in leafnode authorization'
    ),
    "leafnodes { authorization { users: [ {user: a, account: X} ] } }": (
        'cannot find local account "X" specified in leafnode authorization'
    ),
    "leafnodes { remotes: [ {url: 'nats://a', account: X} ] }": (
        'cannot find local account "X" specified in leafnode remote'
    ),
    "no_system_account: true\nleafnodes { remotes: [ {url: 'nats://a', account: '$SYS'} ] }": (
        'cannot find local account "$SYS" specified in leafnode remote'
    ),
    "leafnodes { remotes: [ {url: 'nats://a'}, {url: 'nats://a:7422'} ] }": (
        'duplicate remote urls=["nats://a:7422"], account="$G"'
    ),
    f"operator: {OPERATOR_JWT}\nresolver: MEM\nleafnodes {{ remotes: [ {{url: 'nats://a'}} ] }}": (
        "operator mode requires account nkeys in remotes"
    ),
    f"operator: {OPERATOR_JWT}\nresolver: MEM\nleafnodes {{ authorization {{ users: [ {{user: a}} ] }} }}": (
        "operator mode does not allow specifying users in leafnode config"
    ),
    f"operator: {OPERATOR_JWT}\nresolver: MEM\nleafnodes {{ port: -1, authorization {{ account: A }} }}": (
        "operator mode and non account nkeys are incompatible"
    ),
}
