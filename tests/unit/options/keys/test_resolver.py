"""Operator mode in a configuration: operators, keys, resolvers."""

from pathlib import Path

import pytest

from gnats.jwt.account import AccountClaims
from gnats.jwt.claims import Operator, OperatorClaims
from gnats.jwt.token import encode
from gnats.nkeys.nkeys import KeyPair, Prefix
from gnats.options.values.auth import ResolverOptions

from .reading import options

pytestmark = pytest.mark.timeout(60)

OPERATOR = KeyPair.create(Prefix.OPERATOR)
ACCOUNT = KeyPair.create(Prefix.ACCOUNT)


def operator_jwt(**fields: str) -> str:
    claims = OperatorClaims(name="O", sub=OPERATOR.public_key, nats=Operator(**fields))
    return encode(claims, OPERATOR)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MEM", ResolverOptions("mem")),
        ("memory", ResolverOptions("mem")),
        ("{ type: MEM }", ResolverOptions("mem")),
        ("'URL(http://a/b/)'", ResolverOptions("url", url="http://a/b/")),
        ("'url( \"http://a/b/\" )'", ResolverOptions("url", url="http://a/b/")),
        (
            "{ type: full, dir: d, limit: 5, interval: 10s, allow_delete: true, hard_delete: true }",
            ResolverOptions(
                "full", directory="d", limit=5, interval=10.0, allow_delete=True, hard_delete=True
            ),
        ),
        (
            "{ type: CACHE, dir: d, ttl: 10s, timeout: 1s }",
            ResolverOptions("cache", directory="d", ttl=10.0, timeout=1.0),
        ),
    ],
)
def test_resolvers(text: str, expected: ResolverOptions) -> None:
    for key in "resolver", "account_resolver", "accounts_resolver":
        assert options(f"{key}: {text}").resolver == expected


def test_an_operator_is_given_as_it_is_or_in_a_file(tmp_path: Path) -> None:
    jwt = operator_jwt()
    path = tmp_path / "operator.jwt"
    path.write_text(f"-----BEGIN NATS OPERATOR JWT-----\n{jwt}\n------END NATS OPERATOR JWT------\n")
    for value in jwt, f"[{jwt}]", f"'{path}'":
        opts = options(f"operator: {value}")
        assert opts.trusted_operators == (jwt,)
        assert (opts.resolver, opts.system_account) == (None, "")


def test_an_operator_names_its_resolver_and_system_account() -> None:
    jwt = operator_jwt(account_server_url="http://a/jwt/v1", system_account=ACCOUNT.public_key)
    opts = options(f"operator: {jwt}")
    assert opts.resolver == ResolverOptions("url", url="http://a/jwt/v1/accounts")
    assert opts.system_account == ACCOUNT.public_key
    opts = options(f"operator: {jwt}\nresolver: MEM\nsystem_account: S")
    assert opts.resolver == ResolverOptions("mem")
    assert opts.system_account == "S"


def test_accounts_may_be_preloaded() -> None:
    jwt = encode(AccountClaims.new(ACCOUNT.public_key), OPERATOR)
    opts = options(f"resolver: MEM\nresolver_preload {{ {ACCOUNT.public_key}: {jwt} }}")
    assert opts.resolver_preload == {ACCOUNT.public_key: jwt}


def test_keys_and_pinned_accounts_are_lists_or_one() -> None:
    for value in OPERATOR.public_key, f"[{OPERATOR.public_key}]":
        assert options(f"trusted_keys: {value}").trusted_keys == (OPERATOR.public_key,)
        assert options(f"resolver_pinned_accounts: {value}").resolver_pinned_accounts == {OPERATOR.public_key}
