"""Validation of claims."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import jwts

from gnats.core.subjects.subject import subset_match
from gnats.jwt import account as acc
from gnats.jwt import claims as jwt
from gnats.jwt.token import encode
from gnats.jwt.validation import is_contained_in, parse_server_version, to_subject, validate
from gnats.nkeys.nkeys import CurveKeyPair, KeyPair, Prefix

pytestmark = pytest.mark.timeout(60)

KEY = jwts.account()
OTHER = jwts.account()
USER = jwts.user().public_key


def account(**nats: Any) -> acc.AccountClaims:
    claims = acc.AccountClaims.new(KEY.public_key)
    for name, value in nats.items():
        setattr(claims.nats, name, value)
    return claims


def export(subject: str = "a", kind: str = "stream", **more: Any) -> acc.Export:
    return acc.Export(subject=subject, type=kind, **more)


def imported(subject: str = "a", kind: str = "stream", **more: Any) -> acc.Import:
    return acc.Import(subject=subject, type=kind, **{"account": OTHER.public_key} | more)


def service(subject: str, **more: Any) -> acc.Import:
    return imported(subject, "service", **more)


def activation(
    subject: str = "a.>", kind: str = "stream", *, to: KeyPair = KEY, signer: KeyPair = OTHER
) -> str:
    claims = jwt.ActivationClaims(sub=to.public_key, nats=jwt.Activation(subject=subject, kind=kind))
    return encode(claims, signer)


GOOD_ACCOUNTS = [
    account(),
    account(exports=(export(), export(kind="service"), export("b.*", account_token_position=2))),
    account(exports=(export(kind="service", response_type="Chunked", response_threshold=5),)),
    account(imports=(imported(), imported("b.>", local_subject="c.>"), imported("a", local_subject="b"))),
    account(imports=(service("x.*", local_subject="y.$1"), service("z.*", to="w.*"))),
    account(imports=(service("x"), service("x", account=jwts.account().public_key))),
    account(imports=(imported("a.b", token=activation()),)),
    account(imports=(service("q", to="a.x", token=activation(kind="service")),)),
    account(mappings={"a": (acc.WeightedMapping(subject="b"),)}),
    account(trace=acc.MsgTrace(dest="t", sampling=5)),
    account(authorization=acc.ExternalAuthorization(auth_users=(USER,), allowed_accounts=("*",))),
    account(cluster_traffic="system"),
]

BAD_ACCOUNTS: list[tuple[acc.AccountClaims, str]] = [
    (account(exports=(export(kind=""),)), "invalid export type"),
    (account(exports=(export(""),)), "subject cannot be empty"),
    (account(exports=(export("a b"),)), "cannot have spaces"),
    (account(exports=(export(".a"),)), "cannot start or end"),
    (account(exports=(export("a."),)), "cannot start or end"),
    (account(exports=(export("a.*"), export("a.b"))), 'stream export subject "a.*" already exports "a.b"'),
    (account(exports=(export(response_type="Stream"),)), "invalid response type for stream"),
    (account(exports=(export(kind="service", response_type="Many"),)), "invalid response type for service"),
    (account(exports=(export(allow_trace=True),)), "AllowTrace only valid for service export"),
    (account(exports=(export(response_threshold=1),)), "response threshold only valid for services"),
    (account(exports=(export(kind="service", response_threshold=-1),)), "negative response threshold"),
    (
        account(exports=(export(service_latency=acc.ServiceLatency(results="r")),)),
        "only permitted for services",
    ),
    (
        account(exports=(export(kind="service", service_latency=acc.ServiceLatency(results="r.*")),)),
        "results subject can not contain wildcards",
    ),
    (
        account(
            exports=(export(kind="service", service_latency=acc.ServiceLatency(results="r", sampling=101)),)
        ),
        "sampling percentage",
    ),
    (account(exports=(export(account_token_position=1),)), "can only be used with wildcard subjects"),
    (account(exports=(export("a.*", account_token_position=3),)), "exceeds length of subject"),
    (account(exports=(export("a.*", account_token_position=1),)), "matches 'a' but must match a *"),
    (account(exports=(export(info_url="nowhere"),)), "error parsing info url"),
    (account(description="x" * 8193), "Description is too long"),
    (account(imports=(imported(kind=""),)), "invalid import type"),
    (account(imports=(imported(account=""),)), "account to import from is not specified"),
    (account(imports=(imported(share=True),)), "only valid for services"),
    (account(imports=(service("a", allow_trace=True),)), "AllowTrace only valid for stream import"),
    (account(imports=(imported("a.*", local_subject="b"),)), "does not contain enough"),
    (account(imports=(imported("a.*", local_subject="b.$2"),)), "that do not exist"),
    (account(imports=(imported("a.*", local_subject="b.$" + "1" * 5000),)), "does not contain enough"),
    (account(imports=(imported("a.>", local_subject="b"),)), "need to end or not end in >"),
    (account(imports=(imported(local_subject="b", to="c"),)), "Local Subject replaces To"),
    (account(imports=(service("x.*"), service("x.y"))), "overlapping subject namespace"),
    (account(imports=(service("x"), service("x"))), "overlapping subject namespace"),
    (account(imports=(imported(token="no"),)), "contains an invalid activation token"),
    (account(imports=(imported("b", token=activation()),)), "doesn't match import"),
    (
        account(imports=(imported("a.b", token=activation(kind="service")),)),
        "mismatch between token import type",
    ),
    (account(imports=(imported("a.b", token=activation(to=OTHER)),)), "account it is being included in"),
    (account(imports=(imported("a.b", token=activation(signer=KEY)),)), "doesn't match account for import"),
    (account(mappings={"a": (acc.WeightedMapping(subject="b", weight=101),)}), "exceeds 100"),
    (account(mappings={"a": (acc.WeightedMapping(subject=""),)}), "subject cannot be empty"),
    (
        account(mappings={"a": tuple(acc.WeightedMapping(subject=s, weight=51, cluster="c") for s in "bc")}),
        'in cluster "c" exceeds 100%',
    ),
    (account(trace=acc.MsgTrace(dest="t.*")), "is not a valid publish subject"),
    (account(trace=acc.MsgTrace()), "Trace.Destination subject cannot be empty"),
    (account(trace=acc.MsgTrace(dest="t", sampling=101)), "should be in the range"),
    (account(authorization=acc.ExternalAuthorization(allowed_accounts=("*",))), "accounts without users"),
    (account(authorization=acc.ExternalAuthorization(auth_users=("U",))), "is not a valid user public key"),
    (
        account(authorization=acc.ExternalAuthorization(auth_users=(USER,), allowed_accounts=("*", USER))),
        "AllowedAccounts can only be a list of accounts or",
    ),
    (account(authorization=acc.ExternalAuthorization(auth_users=(USER,), xkey=USER)), "valid public xkey"),
    (account(signing_keys={USER: None}), "is not a valid account signing key"),
    (account(signing_keys={USER: acc.UserScope(key=USER)}), "is not an account public key"),
    (account(cluster_traffic="mine"), "unknown cluster traffic option"),
    (account(limits=acc.OperatorLimits(tiered_limits={"": acc.JetStreamLimits()})), "blank"),
    (account(limits=acc.OperatorLimits(), imports=(imported(),)), "more imports than allowed"),
    (account(limits=acc.OperatorLimits(), exports=(export(),)), "more exports than allowed"),
    (
        account(limits=acc.OperatorLimits(exports=1), exports=(export(">"),)),
        "wildcard exports that are not allowed",
    ),
]


@pytest.mark.parametrize("claims", GOOD_ACCOUNTS)
def test_good_accounts_have_no_errors(claims: acc.AccountClaims) -> None:
    assert validate(claims).errors == []


@pytest.mark.parametrize(("claims", "reason"), BAD_ACCOUNTS, ids=[reason for _, reason in BAD_ACCOUNTS])
def test_bad_accounts_have(claims: acc.AccountClaims, reason: str) -> None:
    issues = validate(claims)
    assert issues.is_blocking(time_checks=False)
    assert any(reason in error for error in issues.errors), issues.errors


def test_time_blocks_only_where_it_is_asked_for() -> None:
    now = int(time.time())
    for claims in (jwt.UserClaims.new(USER), account()):
        for name, at in (("exp", now - 60), ("nbf", now + 60)):
            setattr(claims, name, at)
            issues = validate(claims)
            assert issues.is_blocking(time_checks=True)
            assert not issues.is_blocking(time_checks=False)
            setattr(claims, name, 0)
        assert not validate(claims).is_blocking(time_checks=True)


def test_a_warning_never_blocks() -> None:
    issues = validate(account(imports=(imported(to="old"),)))
    assert issues.issues
    assert not issues.is_blocking(time_checks=True)


OPERATORS: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"account_server_url": "https://localhost/jwt/v1"}, True),
    ({"account_server_url": "localhost"}, False),
    ({"operator_service_urls": ("nats://localhost:4222", "TLS://localhost", "")}, True),
    ({"operator_service_urls": ("http://localhost",)}, False),
    ({"operator_service_urls": ("nats://me:pw@localhost",)}, False),
    ({"operator_service_urls": ("nats://localhost/x",)}, False),
    ({"signing_keys": (USER,)}, False),
    ({"system_account": KEY.public_key}, True),
    ({"system_account": USER}, False),
    ({"assert_server_version": "2.10.1"}, True),
    ({"assert_server_version": "2.10"}, False),
    ({"assert_server_version": "2.10.x"}, False),
    ({"assert_server_version": "2.10.-1"}, False),
]


@pytest.mark.parametrize(("nats", "good"), OPERATORS)
def test_operators(nats: dict[str, Any], good: bool) -> None:
    claims = jwt.OperatorClaims(sub=jwts.operator().public_key, nats=jwt.Operator(**nats))
    assert validate(claims).is_blocking(time_checks=True) != good


def test_responses_say_one_thing_to_one_server_about_one_user() -> None:
    server = KeyPair.create(Prefix.SERVER).public_key

    def response(sub: str = USER, aud: str = server, **nats: str) -> bool:
        claims = jwt.AuthorizationResponseClaims(sub=sub, aud=aud, nats=jwt.AuthorizationResponse(**nats))
        return not validate(claims).is_blocking(time_checks=True)

    assert response(jwt="x")
    assert response(error="x", issuer_account=KEY.public_key)
    assert not response()
    assert not response(jwt="x", error="x")
    assert not response(sub=KEY.public_key, jwt="x")
    assert not response(aud=USER, jwt="x")
    assert not response(jwt="x", issuer_account=USER)


def test_requests_name_a_user() -> None:
    for key, good in ((USER, True), ("", False), (CurveKeyPair.create().public_key, False)):
        claims = jwt.AuthorizationRequestClaims(sub=USER, nats=jwt.AuthorizationRequest(user_nkey=key))
        assert validate(claims).is_blocking(time_checks=True) != good


def test_versions() -> None:
    assert parse_server_version("") == (0, 0, 0)
    assert parse_server_version("2.15.1") == (2, 15, 1)


def test_references_become_wildcards() -> None:
    assert to_subject("a.$1.b.$2") == "a.*.b.*"
    assert to_subject("a.$x.$") == "a.$x.$"


subjects = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=4).map(".".join)


@given(subjects, subjects, st.booleans())
def test_containment_is_that_of_the_data_plane(subject: str, other: str, full: bool) -> None:
    other += ".>" * full
    assert is_contained_in(subject, other) == subset_match(subject, other)


@given(subjects)
def test_what_ends_in_a_full_wildcard_is_contained_in_what_does(subject: str) -> None:
    assert is_contained_in(f"{subject}.>", f"{subject}.>")
    assert is_contained_in(f"{subject}.>", ">")
    assert not is_contained_in(f"{subject}.>", f"{subject}.x")
    assert not is_contained_in(f"{subject}.>", subject)
    assert is_contained_in(f"{subject}.>", f"{subject}.*")  # the jwt library is that simple
