"""Account JWTs as the AccountConfig that a configuration would have."""

import pytest
from support import jwts

from gnats.auth.account_jwt import ClaimAccount, build_permissions
from gnats.jwt import account as acc
from gnats.jwt import claims as jwt
from gnats.options.values.accounts import (
    AccountLimits,
    MapDest,
    Mapping,
    ServiceExport,
    ServiceImport,
    ServiceLatency,
    StreamExport,
    StreamImport,
)
from gnats.options.values.auth import Permissions, ResponsePermission, SubjectPermission

pytestmark = pytest.mark.timeout(60)

KEY, OTHER = jwts.account().public_key, jwts.account().public_key


def build(*, strict: bool = False, **nats: object) -> ClaimAccount:
    claims = acc.AccountClaims.new(KEY)
    for name, value in nats.items():
        setattr(claims.nats, name, value)
    account = ClaimAccount(KEY, "O")
    account.update(claims, "token", strict=strict)
    return account


def test_exports() -> None:
    exports = (
        acc.Export(subject="a.*", type="stream", token_req=True, account_token_position=2),
        acc.Export(subject="b", type="stream"),
        acc.Export(
            subject="c",
            type="service",
            response_type="Chunked",
            response_threshold=1_500_000_000,
            service_latency=acc.ServiceLatency(sampling=0, results="r"),
            allow_trace=True,
        ),
        acc.Export(subject="d", type="service", response_type="Stream"),
        acc.Export(subject="e", type="service", response_type="Singleton"),
    )
    assert build(exports=exports).config().exports == [
        StreamExport("a.*", (), 2),
        StreamExport("b"),
        ServiceExport("c", None, 0, "chunked", 1.5, ServiceLatency("r", 0), True),
        ServiceExport("d", response_type="stream"),
        ServiceExport("e"),
    ]


def test_imports() -> None:
    imports = (
        acc.Import(subject="a", account=OTHER, type="stream", token="t", allow_trace=True),
        acc.Import(subject="b.*", account=OTHER, type="stream", local_subject="c.$1"),
        acc.Import(subject="d", account=OTHER, type="stream", to="pre"),
        acc.Import(subject="e", account=OTHER, type="service", share=True),
        acc.Import(subject="f", account=OTHER, type="service", local_subject="g"),
        acc.Import(subject="mine", account=OTHER, type="service", to="theirs", token="t"),
    )
    account = build(imports=imports)
    assert account.imported_accounts == [OTHER]
    assert account.config().imports == [
        StreamImport(OTHER, "a", allow_trace=True, token="t"),
        StreamImport(OTHER, "b.*", to="c.$1"),
        StreamImport(OTHER, "d", prefix="pre"),
        ServiceImport(OTHER, "e", share=True),
        ServiceImport(OTHER, "f", to="g"),
        ServiceImport(OTHER, "theirs", to="mine", token="t"),
    ]


def test_limits_mappings_and_traces() -> None:
    account = build(
        limits=acc.OperatorLimits(conn=1, leaf=2, subs=3, payload=1 << 40),
        mappings={
            "a": (acc.WeightedMapping(subject="b"), acc.WeightedMapping(subject="c", weight=5, cluster="x"))
        },
        trace=acc.MsgTrace(dest="t.x"),
    )
    config = account.config()
    assert config.limits == AccountLimits(1, 2, 3, (1 << 31) - 1)
    assert config.mappings == [Mapping("a", (MapDest("b", 100), MapDest("c", 5, "x")))]
    assert (config.trace_dest, config.trace_sampling) == ("t.x", 100)
    assert build(trace=acc.MsgTrace(dest="t.*", sampling=5)).config().trace_dest == ""
    assert build().config().limits == AccountLimits()


def test_without_its_jwt_an_account_has_no_limits_and_once_that_is_deleted_nothing() -> None:
    account = ClaimAccount(KEY, "O")
    assert account.config().limits == AccountLimits()
    assert not account.is_expired
    account = build()
    account.remove()
    assert account.is_expired
    assert account.config().limits == AccountLimits(0, 0, 0, 0)


def test_a_strict_operator_takes_the_key_of_the_account_out_of_use() -> None:
    assert build(signing_keys={OTHER: None}).signing_keys == {OTHER: None, KEY: None}
    assert build(strict=True, signing_keys={OTHER: None}).signing_keys == {OTHER: None}


def test_external_authorization() -> None:
    account = build(authorization=acc.ExternalAuthorization(auth_users=("U",), allowed_accounts=("A",)))
    assert account.external_auth
    assert account.is_external_auth_user("U")
    assert not account.is_external_auth_user("V")
    assert account.is_allowed_account("A")
    assert not account.is_allowed_account("B")
    assert build(
        authorization=acc.ExternalAuthorization(auth_users=("U",), allowed_accounts=("*",))
    ).is_allowed_account("B")
    assert not build().external_auth
    assert not build().is_allowed_account("A")


ALLOW, DENY = jwt.Permission(allow=("a",)), jwt.Permission(deny=("d",))
PERMISSIONS = [
    (jwt.Permissions(), None),
    (jwt.Permissions(pub=jwt.Permission(allow=(), deny=())), None),
    (jwt.Permissions(pub=ALLOW), Permissions(publish=SubjectPermission(("a",)))),
    (jwt.Permissions(sub=DENY), Permissions(subscribe=SubjectPermission(None, ("d",)))),
    (
        jwt.Permissions(pub=jwt.Permission(allow=(), deny=("d",))),
        Permissions(publish=SubjectPermission((), ("d",))),
    ),
    (
        jwt.Permissions(resp=jwt.ResponsePermission()),
        Permissions(publish=SubjectPermission(()), response=ResponsePermission(1, 120.0)),
    ),
    (
        jwt.Permissions(pub=DENY, resp=jwt.ResponsePermission(max=-1, ttl=2_500_000_000)),
        Permissions(publish=SubjectPermission((), ("d",)), response=ResponsePermission(-1, 2.5)),
    ),
    (
        jwt.Permissions(pub=ALLOW, resp=jwt.ResponsePermission(max=2, ttl=-1_000_000_000)),
        Permissions(publish=SubjectPermission(("a",)), response=ResponsePermission(2, -1.0)),
    ),
]


@pytest.mark.parametrize(("claims", "permissions"), PERMISSIONS)
def test_permissions(claims: jwt.Permissions, permissions: Permissions | None) -> None:
    assert build_permissions(claims) == permissions


def test_revocations() -> None:
    revoked = {"U": 10, "*": 5}
    for key, issued, expected in (("U", 10, True), ("U", 11, False), ("V", 5, True), ("V", 6, False)):
        assert build(revocations=revoked).is_user_revoked(key, issued) == expected
