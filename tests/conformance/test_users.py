"""Users of the configuration: passwords, hashes, nkeys, certificates, and clients without credentials."""

from __future__ import annotations

import ssl
from typing import Any

import bcrypt
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from support import jwts
from support.certs import Certificates
from support.launch import Launch
from support.monitor import monitor
from support.natspy import joined
from support.servers import Server
from support.tlswire import TLSConnection, client_context
from support.trust import Refused, connect, user_info
from support.wire import PONG, Closed

from gnats.nkeys.nkeys import KeyPair

pytestmark = pytest.mark.timeout(120)

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
MINE, WEB, STRANGER = (jwts.user() for _ in range(3))

USERS = f"""
accounts {{
  A {{ users: [
    {{ user: ann, password: a }}
    {{ user: ben, password: "{HASH}", permissions: {{ publish: [ "$SYS.REQ.USER.INFO", "x" ] }} }}
    {{ user: wes, password: w, allowed_connection_types: [ WEBSOCKET ] }}
    {{ user: sid, password: s, allowed_connection_types: [ websocket, standard ] }}
  ] }}
  B {{ users: [
    {{ user: bob, password: b }}
    {{ user: none }}
    {{ nkey: {MINE.public_key} }}
    {{ nkey: {WEB.public_key}, allowed_connection_types: [ MQTT ] }}
  ] }}
}}
"""


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Server:
    return launch_shared("-D", "-m", "-1", config=USERS)


PASSWORDS: dict[str, tuple[dict[str, Any], tuple[str, str] | None]] = {
    "a user": ({"user": "ann", "pass": "a"}, ("ann", "A")),
    "a user of another account": ({"user": "bob", "pass": "b"}, ("bob", "B")),
    "a wrong password": ({"user": "ann", "pass": "b"}, None),
    "an unknown user": ({"user": "eve", "pass": "a"}, None),
    "a user in capitals": ({"user": "ANN", "pass": "a"}, None),
    "nothing": ({}, None),
    "a token": ({"auth_token": "a"}, None),
    "a user and a token": ({"user": "ann", "pass": "a", "auth_token": "x"}, ("ann", "A")),
    "a hashed password": ({"user": "ben", "pass": "secret"}, ("ben", "A")),
    "a wrong one for a hash": ({"user": "ben", "pass": "Secret"}, None),
    "the hash itself": ({"user": "ben", "pass": HASH}, None),
    "no password for a hash": ({"user": "ben"}, None),
    "a user without password": ({"user": "none"}, ("none", "B")),
    "a password for who has none": ({"user": "none", "pass": "x"}, None),
    "a connection type not allowed": ({"user": "wes", "pass": "w"}, None),
    "a connection type allowed": ({"user": "sid", "pass": "s"}, ("sid", "A")),
    "a JWT besides": ({"user": "ann", "pass": "a", "jwt": "eyJ"}, ("ann", "A")),
    "an account of its choice": ({"user": "ann", "pass": "a", "account": "B"}, None),
}


@pytest.mark.parametrize("case", PASSWORDS)
def test_passwords(server: Server, case: str) -> None:
    options, expected = PASSWORDS[case]
    assert admitted(server, **options) == expected


def admitted(server: Server, key: KeyPair | None = None, **options: Any) -> tuple[str, str] | None:
    """Connect with these members of CONNECT; return (user, account), or None when refused."""
    try:
        with connect(server, key, **options) as connection:
            info = user_info(connection)
    except Refused as refused:
        assert refused.args[0] == b"-ERR 'Authorization Violation'\r\n"
        return None
    return info["user"], info["account"]


def sig_over(text: bytes) -> str:
    return jwts.raw_base64(MINE.sign(text))


NKEYS: dict[str, tuple[KeyPair | None, dict[str, Any], bool]] = {
    "an nkey": (MINE, {"nkey": MINE.public_key}, True),
    "an nkey and a user": (MINE, {"nkey": MINE.public_key, "user": "ann", "pass": "a"}, True),
    "no signature": (None, {"nkey": MINE.public_key}, False),
    "an empty signature": (None, {"nkey": MINE.public_key, "sig": ""}, False),
    "a signature of another key": (STRANGER, {"nkey": MINE.public_key}, False),
    "a signature over something else": (None, {"nkey": MINE.public_key, "sig": sig_over(b"x")}, False),
    "a signature that is not base64": (None, {"nkey": MINE.public_key, "sig": "!"}, False),
    "a signature cut short": (None, {"nkey": MINE.public_key, "sig": "AAAA"}, False),
    "an unknown nkey": (STRANGER, {"nkey": STRANGER.public_key}, False),
    "an unknown nkey and a user": (
        STRANGER,
        {"nkey": STRANGER.public_key, "user": "ann", "pass": "a"},
        False,
    ),
    "what is no nkey": (MINE, {"nkey": "U"}, False),
    "a connection type not allowed": (WEB, {"nkey": WEB.public_key}, False),
}


@pytest.mark.parametrize("case", NKEYS)
def test_nkeys(server: Server, case: str) -> None:
    key, options, good = NKEYS[case]
    assert admitted(server, key, **options) == ((MINE.public_key, "B") if good else None)


def test_signatures_in_standard_base64(server: Server) -> None:
    import base64

    with connect(server, user="ann", **{"pass": "a"}) as connection:
        sig = base64.b64encode(MINE.sign(connection.info["nonce"].encode())).decode()
        connection.send(
            b'CONNECT {"verbose":false,"user":"","nkey":"%b","sig":"%b"}\r\n'
            % (MINE.public_key.encode(), sig.encode())
        )
        assert user_info(connection)["account"] == "B"


def test_permissions_of_a_user(server: Server) -> None:
    with connect(server, user="ben", **{"pass": "secret"}) as connection:
        connection.send(b"PUB x 0\r\n\r\nPUB y 0\r\n\r\n")
        assert connection.fence() == [b"-ERR 'Permissions Violation for Publish to \"y\"'\r\n"]


def test_monitoring_names_users(server: Server) -> None:
    with connect(server, MINE, nkey=MINE.public_key), connect(server, user="ann", **{"pass": "a"}):
        page = monitor(server, "/connz?auth=1")["connections"]
    seen = {each["authorized_user"]: (each["account"], each.get("issuer_key")) for each in page}
    assert seen == {MINE.public_key: ("B", "B"), "ann": ("A", None)}


def test_why_is_for_the_log_only(server: Server) -> None:
    logged = len(server.log)
    assert admitted(server, nkey=MINE.public_key) is None
    server.wait_log("Signature missing", logged)
    server.wait_log(f'authentication error - Nkey "{MINE.public_key}"', logged)


# -- clients without credentials -------------------------------------------------------------------------

NO_AUTH: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing": ({}, True),
    "only a name": ({"name": "x"}, True),
    "another user": ({"user": "bob", "pass": "b"}, False),
    "a wrong user": ({"user": "x"}, False),
    "a password": ({"pass": "x"}, False),
    "a token": ({"auth_token": "x"}, False),
}


@pytest.mark.parametrize("who", ["ann", MINE.public_key], ids=["user", "nkey"])
def test_no_auth_user(launch: Launch, who: str) -> None:
    server = launch(config=USERS + f"\nno_auth_user: {who}\n")
    expected = (who, "A" if who == "ann" else "B")
    for case, (options, good) in NO_AUTH.items():
        assert (admitted(server, **options) == expected) == good, case
    assert admitted(server, user="bob", **{"pass": "b"}) == ("bob", "B")
    assert admitted(server, nkey=MINE.public_key) == (expected if who == MINE.public_key else None)


async def test_nats_py_with_an_nkey(server: Server, tmp_path: Any) -> None:
    seed = tmp_path / "user.nk"
    seed.write_text(MINE.seed)
    async with joined(server.url, nkeys_seed=str(seed)) as client:
        await client.flush()


# -- users by certificates -------------------------------------------------------------------------------

COUNTRY, ORG, CN = NameOID.COUNTRY_NAME, NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME
UNIT, DC, EMAIL = NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.DOMAIN_COMPONENT, NameOID.EMAIL_ADDRESS
ACME = ((COUNTRY, "US"), (ORG, "Acme"))

MAPPED = [
    "ann@acme.test",
    "app.acme.test",
    "spiffe://acme.test/app",
    "CN=bob,O=Acme,C=US",
    "CN=carl, O=Acme, C=US",
    "C=US,CN=dora,O=Acme",
    "CN=ed,DC=acme,DC=test",
    "CN=fay,O=Acme",
    "CN=gus\\\\, the second,O=Acme,C=US",
    "CN=hal+OU=ops,O=Acme,C=US",
    "cn=ida,o=Acme,c=US",
    "CN=jon,OU=one,OU=two,O=Acme",
    "CN=Kim,O=Acme,C=US",
]
WEB_ONLY = "CN=web,O=Acme,C=US"
SECRET = "CN=sue,O=Acme,C=US"

CERTS: dict[str, tuple[tuple[Any, ...], tuple[x509.GeneralName, ...], str | None]] = {
    "an e-mail address": (ACME, (x509.RFC822Name("ann@acme.test"),), "ann@acme.test"),
    "a host": (ACME, (x509.DNSName("app.acme.test"),), "app.acme.test"),
    "a URI": (ACME, (x509.UniformResourceIdentifier("spiffe://acme.test/app"),), "spiffe://acme.test/app"),
    "an e-mail address before a host": (
        ACME,
        (x509.DNSName("app.acme.test"), x509.RFC822Name("ann@acme.test")),
        "ann@acme.test",
    ),
    "a host before a URI": (
        ACME,
        (x509.UniformResourceIdentifier("spiffe://acme.test/app"), x509.DNSName("app.acme.test")),
        "app.acme.test",
    ),
    "a host before the subject": (
        (*ACME, (CN, "bob")),
        (x509.DNSName("app.acme.test"),),
        "app.acme.test",
    ),
    "the subject": ((*ACME, (CN, "bob")), (), "CN=bob,O=Acme,C=US"),
    "the subject with blanks": ((*ACME, (CN, "carl")), (), "CN=carl, O=Acme, C=US"),
    "the subject in another order": ((*ACME, (CN, "dora")), (), "C=US,CN=dora,O=Acme"),
    "domain components": (((DC, "test"), (DC, "acme"), (CN, "ed")), (), "CN=ed,DC=acme,DC=test"),
    "an attribute that a name cannot have": (
        ((ORG, "Acme"), (CN, "fay"), (EMAIL, "f@x")),
        (),
        "CN=fay,O=Acme",
    ),
    "a comma": ((*ACME, (CN, "gus, the second")), (), "CN=gus\\, the second,O=Acme,C=US"),
    "two attributes in one": ((*ACME, ((CN, "hal"), (UNIT, "ops"))), (), "CN=hal+OU=ops,O=Acme,C=US"),
    "types in lower case": ((*ACME, (CN, "ida")), (), "cn=ida,o=Acme,c=US"),
    "two units": (
        ((ORG, "Acme"), (UNIT, "two"), (UNIT, "one"), (CN, "jon")),
        (),
        "CN=jon,OU=one,OU=two,O=Acme",
    ),
    "another case": ((*ACME, (CN, "kim")), (), None),
    "too little": (((CN, "bob"),), (), None),
    "too much": ((*ACME, (UNIT, "x"), (CN, "bob")), (), None),
    "nobody": ((*ACME, (CN, "zoe")), (x509.DNSName("zoe.test"),), None),
    "a connection type not allowed": ((*ACME, (CN, "web")), (), None),
    "a password that is not given": ((*ACME, (CN, "sue")), (), None),
}


def name(parts: tuple[Any, ...]) -> x509.Name:
    rdns = []
    for part in parts:
        pairs = part if isinstance(part[0], tuple) else (part,)
        rdns.append(x509.RelativeDistinguishedName([x509.NameAttribute(*pair) for pair in pairs]))
    return x509.Name(rdns)


@pytest.fixture(scope="module")
def mapping(launch_shared: Launch, certs: Certificates) -> Server:
    """A server that takes users from client certificates (verify_and_map)."""
    users = "\n".join(f'{{ user: "{user}" }}' for user in MAPPED)
    return launch_shared(
        "-D",
        config=f"""
        tls {{
          {certs.server.tls_block}, ca_file: "{certs.ca.cert_file}", verify_and_map: true, timeout: "10s"
        }}
        authorization {{ users: [
          {users}
          {{ user: "{WEB_ONLY}", allowed_connection_types: [ WEBSOCKET ] }}
          {{ user: "{SECRET}", password: s }}
        ] }}
        """,
    )


def come(server: Server, context: ssl.SSLContext, **options: str) -> str | None:
    """Connect with a certificate; return the user's name, or None when refused."""
    fields = "".join(f',"{key}":"{value}"' for key, value in options.items())
    with TLSConnection(server.address, context) as connection:
        connection.send(b'CONNECT {"verbose":false%b}\r\nPING\r\n' % fields.encode())
        try:
            connection.read_until(PONG)
        except Closed as closed:
            assert closed.args[0] == b"-ERR 'Authorization Violation'\r\n"
            return None
        user: str = user_info(connection)["user"]
        return user


def context_of(certs: Certificates, case: str) -> ssl.SSLContext:
    subject, more, _ = CERTS[case]
    made = certs.make(
        case,
        issuer=certs.ca,
        names=(),
        more=more,
        subject=name(subject),
        usage=ExtendedKeyUsageOID.CLIENT_AUTH,
    )
    return client_context(certs, made)


@pytest.mark.parametrize("case", CERTS)
def test_certificates(mapping: Server, certs: Certificates, case: str) -> None:
    assert come(mapping, context_of(certs, case)) == CERTS[case][2]


def test_a_certificate_counts_more_than_a_name(mapping: Server, certs: Certificates) -> None:
    logged = len(mapping.log)
    assert come(mapping, context_of(certs, "a host"), user="CN=bob,O=Acme,C=US") == "app.acme.test"
    mapping.wait_log('User "CN=bob,O=Acme,C=US" found in connect proto, but user required from cert', logged)


def test_a_mapped_user_may_need_a_password_too(mapping: Server, certs: Certificates) -> None:
    context = context_of(certs, "a password that is not given")
    assert come(mapping, context, **{"pass": "s"}) == SECRET


LOGGED = {
    "an e-mail address": 'Using email found in cert for auth \\["ann@acme.test"\\]',
    "a host": 'Using SAN found in cert for auth \\["app.acme.test"\\]',
    "a URI": 'Using URI found in cert for auth \\["spiffe://acme.test/app"\\]',
    "the subject": 'Using DistinguishedNameMatch for auth \\["CN=bob,O=Acme,C=US"\\]',
    "an attribute that a name cannot have": 'Using certificate subject for auth \\["CN=fay,O=Acme"\\]',
    "nobody": 'User in cert \\["CN=zoe,O=Acme,C=US"\\], not found',
}


@pytest.mark.parametrize("case", LOGGED)
def test_the_log_says_what_of_a_certificate_counts(mapping: Server, certs: Certificates, case: str) -> None:
    logged = len(mapping.log)
    come(mapping, context_of(certs, case))
    mapping.wait_log(LOGGED[case], logged)
