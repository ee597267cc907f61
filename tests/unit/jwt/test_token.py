"""Encoding and decoding JWTs: all kinds, both versions, malformed ones."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import jwts

from gnats.jwt import account as acc
from gnats.jwt import claims as jwt
from gnats.jwt.decorated import format_user_config, parse_decorated_jwt, parse_decorated_seed
from gnats.jwt.token import JWTError, decode, decode_as, decode_generic, encode
from gnats.nkeys.nkeys import CurveKeyPair, KeyPair, NkeyError, Prefix

pytestmark = pytest.mark.timeout(60)

OPERATOR, ACCOUNT, USER = jwts.operator(), jwts.account(), jwts.user()
SERVER = KeyPair.create(Prefix.SERVER)

V1_OPERATOR = (
    "eyJ0eXAiOiJqd3QiLCJhbGciOiJlZDI1NTE5In0."
    "eyJhdWQiOiJURVNUUyIsImV4cCI6MTg1OTEyMTI3NSwianRpIjoiWE5MWjZYWVBIVE1ESlFSTlFPSFVPSlFHV0NVN01JNVc1SlhDWk5Y"
    "QllVS0VRVzY3STI1USIsImlhdCI6MTU0Mzc2MTI3NSwiaXNzIjoiT0NBVDMzTVRWVTJWVU9JTUdOR1VOWEo2NkFIMlJMU0RBRjNNVUJD"
    "WUFZNVFNSUw2NU5RTTZYUUciLCJuYW1lIjoiU3luYWRpYSBDb21tdW5pY2F0aW9ucyBJbmMuIiwibmJmIjoxNTQzNzYxMjc1LCJzdWIi"
    "OiJPQ0FUMzNNVFZVMlZVT0lNR05HVU5YSjY2QUgyUkxTREFGM01VQkNZQVk1UU1JTDY1TlFNNlhRRyIsInR5cGUiOiJvcGVyYXRvciIs"
    "Im5hdHMiOnsic2lnbmluZ19rZXlzIjpbIk9EU0tSN01ZRlFaNU1NQUo2RlBNRUVUQ1RFM1JJSE9GTFRZUEpSTUFWVk40T0xWMllZQU1I"
    "Q0FDIiwiT0RTS0FDU1JCV1A1MzdEWkRSVko2NTdKT0lHT1BPUTZLRzdUNEhONk9LNEY2SUVDR1hEQUhOUDIiLCJPRFNLSTM2TFpCNDRP"
    "WTVJVkNSNlA1MkZaSlpZTVlXWlZXTlVEVExFWjVUSzJQTjNPRU1SVEFCUiJdfX0."
    "hyfz6E39BMUh0GLzovFfk3wT4OfualftjdJ_eYkLfPvu5tZubYQ_Pn9oFYGCV_6yKy3KMGhWGUCyCdHaPhalBw"
)
"""From nats-server's tests."""


def full_account() -> acc.AccountClaims:
    claims = acc.AccountClaims.new(ACCOUNT.public_key)
    claims.name, claims.exp = "Ünïcode <&>", 4_000_000_000
    nats = claims.nats
    nats.tags = ("a:b",)
    nats.description, nats.info_url = "about", "https://localhost/x"
    nats.exports = (
        acc.Export(
            name="s",
            subject="svc.*.>",
            type="service",
            token_req=True,
            revocations={"*": 7},
            response_type="Stream",
            response_threshold=5_000_000_000,
            service_latency=acc.ServiceLatency(sampling=50, results="lat"),
            account_token_position=2,
            allow_trace=True,
        ),
        acc.Export(subject="sampled", type="service", service_latency=acc.ServiceLatency(results="lat")),
    )
    nats.imports = (
        acc.Import(
            subject="st.>",
            account=jwts.account().public_key,
            local_subject="mine.>",
            type="stream",
            token="t",
        ),
    )
    scope = acc.UserScope(key=jwts.account().public_key, role="r", description="d")
    scope.template.pub.allow = ("x.{{name()}}",)
    scope.template.resp = jwt.ResponsePermission(max=-1, ttl=1)
    nats.signing_keys = {scope.key: scope, USER.public_key: None}
    nats.revocations = {USER.public_key: 12}
    nats.default_permissions.sub.deny = ("d",)
    nats.mappings = {"m": (acc.WeightedMapping(subject="n", weight=20, cluster="c"),)}
    nats.authorization = acc.ExternalAuthorization(auth_users=(USER.public_key,), allowed_accounts=("*",))
    nats.trace = acc.MsgTrace(dest="t", sampling=3)
    nats.limits.tiered_limits = {"R1": acc.JetStreamLimits(mem_storage=5, max_bytes_required=True)}
    nats.cluster_traffic = "owner"
    return claims


def full_user() -> jwt.UserClaims:
    claims = jwt.UserClaims.new(USER.public_key)
    nats = claims.nats
    nats.pub = jwt.Permission(allow=("a",), deny=("b",))
    nats.resp = jwt.ResponsePermission(max=0, ttl=0)
    nats.src = ("10.0.0.0/8",)
    nats.times = (jwt.TimeRange(start="01:02:03", end="04:05:06"),)
    nats.times_location, nats.bearer_token, nats.proxy_required = "UTC", True, True
    nats.allowed_connection_types, nats.issuer_account = ("MQTT",), ACCOUNT.public_key
    return claims


def full_request() -> jwt.AuthorizationRequestClaims:
    return jwt.AuthorizationRequestClaims(
        sub=SERVER.public_key,
        aud="nats-authorization-request",
        nats=jwt.AuthorizationRequest(
            server_id=jwt.ServerID(name="n", id=SERVER.public_key, xkey=CurveKeyPair.create().public_key),
            user_nkey=USER.public_key,
            client_info=jwt.ClientInformation(host="::1", id=(1 << 64) - 1, type="nats", tags=("t",)),
            connect_opts=jwt.ConnectOptions(user="u", password="p", protocol=1),
            client_tls=jwt.ClientTLS(version="1.3", verified_chains=(("a", "b"), ("c",))),
            request_nonce="x",
        ),
    )


CLAIMS: list[tuple[jwt.Claims, KeyPair]] = [
    (jwt.OperatorClaims(sub=OPERATOR.public_key, nats=jwt.Operator(signing_keys=("O",))), OPERATOR),
    (full_account(), OPERATOR),
    (acc.AccountClaims(sub=ACCOUNT.public_key), ACCOUNT),
    (full_user(), ACCOUNT),
    (jwt.UserClaims(sub=USER.public_key), ACCOUNT),
    (jwt.ActivationClaims(sub=ACCOUNT.public_key, nats=jwt.Activation(subject="s", kind="stream")), ACCOUNT),
    (full_request(), SERVER),
    (jwt.AuthorizationResponseClaims(sub=USER.public_key, aud=SERVER.public_key), ACCOUNT),
]


@pytest.mark.parametrize(("claims", "signer"), CLAIMS, ids=lambda each: type(each).__name__)
def test_what_is_written_is_read(claims: jwt.Claims, signer: KeyPair) -> None:
    token = encode(claims, signer)
    assert decode(token) == claims
    assert decode_as(type(claims), token) == claims
    assert claims.iss == signer.public_key
    assert decode_generic(token).jti == claims.jti != ""


def test_other_claims_are_read_as_generic_ones() -> None:
    claims = jwt.GenericClaims(sub="anything", nats={"accounts": ["x", {"y": None}]})
    token = encode(claims, OPERATOR)
    assert decode_generic(token) == claims
    with pytest.raises(JWTError, match="V1"):  # as in the jwt library
        decode(token)


def test_a_password_is_called_pass_in_json() -> None:
    options = jwts.payload(encode(full_request(), SERVER))["nats"]["connect_opts"]
    assert options == {"user": "u", "pass": "p", "protocol": 1}


def test_what_is_zero_is_not_written() -> None:
    members = jwts.payload(encode(jwt.UserClaims.new(USER.public_key), ACCOUNT))
    assert members.keys() == {"iat", "iss", "jti", "sub", "nats"}
    limits = {"subs": -1, "data": -1, "payload": -1}
    assert members["nats"] == {"type": "user", "version": 2, "pub": {}, "sub": {}} | limits


def test_an_operator_of_version_1_is_read() -> None:
    claims = decode_as(jwt.OperatorClaims, V1_OPERATOR)
    assert claims.name == "Synadia Communications Inc."
    assert claims.nats.version == 1
    assert len(claims.keys) == 4


def test_an_activation_of_version_1_is_read() -> None:
    members = {
        "iss": ACCOUNT.public_key,
        "sub": ACCOUNT.public_key,
        "type": "activation",
        "issuer_account": OPERATOR.public_key,
        "tags": ["x"],
        "nats": {"subject": "s", "type": "service", "max": 3},
    }
    claims = decode_as(jwt.ActivationClaims, jwts.sign(members, ACCOUNT, version=1))
    assert (claims.nats.subject, claims.nats.kind) == ("s", "service")
    assert claims.nats.issuer_account == OPERATOR.public_key
    assert (claims.nats.tags, claims.nats.type) == (("x",), "activation")


def test_version_1_knows_nothing_of_what_came_later() -> None:
    nats = {
        "limits": {"mem_storage": 5, "tiered_limits": {"R1": {"mem_storage": 5}}, "subs": 7},
        "mappings": {"a": [{"subject": "b"}]},
        "signing_keys": [USER.public_key],
    }
    members = {"iss": OPERATOR.public_key, "sub": ACCOUNT.public_key, "type": "account", "nats": nats}
    account = decode_as(acc.AccountClaims, jwts.sign(members, OPERATOR, version=1)).nats
    assert not account.limits.jetstream_enabled()
    assert account.limits.subs == 7
    assert not account.mappings
    assert account.signing_keys == {USER.public_key: None}


def test_tiers_replace_the_limits_without_one() -> None:
    claims = full_account()
    claims.nats.limits.mem_storage = claims.nats.limits.streams = 9
    limits = decode_as(acc.AccountClaims, encode(claims, OPERATOR)).nats.limits
    assert (limits.mem_storage, limits.streams) == (0, 0)
    assert limits.jetstream_enabled()


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "number for a name": ({"name": 5}, "json:"),
    "fraction for a time": ({"exp": 1.5}, "json:"),
    "another issuer": ({"iss": jwts.account().public_key}, "claim failed V2 signature verification"),
    "no issuer": ({"iss": None}, "claim failed V2 signature verification"),
    "cluster": ({"nats": {"type": "cluster", "version": 2}}, "ClusterClaims are not supported"),
    "newer": ({"nats": {"type": "user", "version": 3}}, "JWT was generated by a newer version"),
    "version 0": ({"nats": {"type": "user"}}, "library supports version 2 or less - received 0"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_said(name: str) -> None:
    changes, reason = BROKEN[name]
    with pytest.raises(JWTError, match=reason):
        decode(jwts.resign(encode(full_user(), ACCOUNT), ACCOUNT, **changes))


def test_an_issuer_of_the_wrong_kind_is_refused() -> None:
    members = {"iss": USER.public_key, "sub": USER.public_key, "nats": {"type": "user", "version": 2}}
    with pytest.raises(JWTError, match=r"unable to validate expected prefixes - \[account\]"):
        decode(jwts.sign(members, USER))
    with pytest.raises(JWTError, match="expected prefixes"):
        encode(full_user(), USER)


@pytest.mark.parametrize(
    ("sub", "claims"),
    [("", full_user()), (ACCOUNT.public_key, full_user()), (USER.public_key, full_account())],
)
def test_a_subject_of_the_wrong_kind_is_not_signed(sub: str, claims: jwt.Claims) -> None:
    with pytest.raises(JWTError):
        encode(dataclasses.replace(claims, sub=sub), ACCOUNT)


def test_other_claims_are_not_what_was_asked_for() -> None:
    with pytest.raises(JWTError, match="not user claim"):
        decode_as(jwt.UserClaims, encode(full_account(), OPERATOR))


@pytest.mark.parametrize(
    "key", [{"kind": "role_scope", "key": "A"}, {"key": "A"}, {"kind": "user_scope", "key": 5}]
)
def test_a_scope_of_another_kind_is_refused(key: object) -> None:
    nats = {"type": "account", "version": 2, "signing_keys": [key]}
    members = {"iss": OPERATOR.public_key, "sub": ACCOUNT.public_key, "nats": nats}
    with pytest.raises(JWTError):
        decode(jwts.sign(members, OPERATOR))


tokens = st.from_regex(r"[A-Za-z0-9_\-]{0,30}(\.[A-Za-z0-9_\-=+]{0,30}){0,4}", fullmatch=True) | st.text()
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["pub", "sub", "resp", "src", "times", "limits", "signing_keys", "exports", "tags", "TYPE"]
)


@given(tokens)
def test_any_text_is_a_jwt_or_not(token: str) -> None:
    for read in (decode, decode_generic):
        with pytest.raises(JWTError):
            read(token)


@settings(max_examples=200)
@given(
    st.sampled_from(["user", "account", "operator", "activation", "authorization_request", "other"]),
    st.sampled_from([1, 2]),
    st.dictionaries(names | st.text(max_size=5), values, max_size=4),
)
def test_any_claims_are_read_or_refused(kind: str, version: int, nats: dict[str, Any]) -> None:
    members: dict[str, Any] = {"iss": ACCOUNT.public_key, "sub": ACCOUNT.public_key, "nats": nats}
    if version == 1:
        members["type"] = kind
    else:
        members["nats"] = {**nats, "type": kind, "version": 2}
    try:
        assert decode(jwts.sign(members, ACCOUNT, version=version)).iss == ACCOUNT.public_key
    except JWTError as exc:
        assert str(exc)


def test_credentials_hold_the_jwt_and_the_seed() -> None:
    token = encode(full_user(), ACCOUNT)
    text = format_user_config(token, USER)
    assert parse_decorated_jwt(text) == token
    assert parse_decorated_jwt(text.replace("\n", "\r\n")) == token
    assert parse_decorated_seed(text).public_key == USER.public_key
    assert parse_decorated_jwt(token) == token
    assert parse_decorated_seed(f"# mine\n  {USER.seed}\n").public_key == USER.public_key
    with pytest.raises(NkeyError):
        parse_decorated_seed("nothing here")
    with pytest.raises(JWTError):
        format_user_config(token, jwts.user())
