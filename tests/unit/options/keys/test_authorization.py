"""Users, permissions and the callout of a configuration."""

import pytest

from gnats.nkeys.nkeys import Prefix, encode
from gnats.options.values.auth import (
    AuthCallout,
    NkeyUser,
    Permissions,
    ResponsePermission,
    SubjectPermission,
    User,
)

from .reading import options, read

pytestmark = pytest.mark.timeout(60)

USER = encode(Prefix.USER, b"u" * 32)
ACCOUNT = encode(Prefix.ACCOUNT, b"a" * 32)
CURVE = encode(Prefix.CURVE, b"x" * 32)

ONLY_A = Permissions(publish=SubjectPermission(("a",)))
ONLY_B = Permissions(publish=SubjectPermission(("b",)))


def permissions(text: str) -> Permissions | None:
    return options(f"authorization {{ permissions {{ {text} }} }}").permissions


def test_a_single_user() -> None:
    opts = options("authorization { username: a, pass: 'p w', timeout: 0.5, permissions { pub: a } }")
    assert (opts.username, opts.password, opts.auth_timeout) == ("a", "p w", 0.5)
    assert opts.permissions == ONLY_A


def test_a_token() -> None:
    opts = options("authorization { token: t, timeout: '3s' }")
    assert (opts.authorization, opts.auth_timeout) == ("t", 3.0)


def test_users_without_permissions_get_the_default_ones() -> None:
    opts = options(
        f"""authorization {{
            users: [ {{user: u, password: p}}, {{nkey: {USER}}}, {{user: v, permissions {{ publish: b }}}} ]
            default_permissions {{ publish: a }}
        }}"""
    )
    assert opts.users == [User("u", "p", ONLY_A), User("v", "", ONLY_B)]
    assert opts.nkeys == [NkeyUser(USER, ONLY_A)]


def test_users_of_accounts_come_after_those_of_no_account() -> None:
    opts = options(
        """
        accounts {
            A { users: [{user: a}, {user: b, permissions: {pub: b}}], default_permissions { publish: a } }
            B { users: [{user: c}] }
        }
        authorization { users: [{user: d}] }
        """
    )
    assert opts.users == [
        User("d"),
        User("a", permissions=ONLY_A, account="A"),
        User("b", permissions=ONLY_B, account="A"),
        User("c", account="B"),
    ]


def test_users_may_be_for_some_kinds_of_connections() -> None:
    (user,) = options("authorization { users: [{user: a, clients: [standard, MQTT]}] }").users
    assert user.allowed_connection_types == {"STANDARD", "MQTT"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Permissions()),
        ("publish: a", ONLY_A),
        ("publish: [a]", ONLY_A),
        ("publish: []", Permissions(publish=SubjectPermission())),
        ("publish: {}", Permissions()),
        ("import: {allow: a}", ONLY_A),
        ("publish: {allow: []}", Permissions(publish=SubjectPermission())),
        ("publish: {deny: [a, b]}", Permissions(publish=SubjectPermission(None, ("a", "b")))),
        ("export: 'a q.*'", Permissions(subscribe=SubjectPermission(("a q.*",)))),
        (
            "sub: {allow: a, deny: 'b q'}",
            Permissions(subscribe=SubjectPermission(("a",), ("b q",))),
        ),
        ("allow_responses: false", Permissions()),
        (
            "allow_responses: true",
            Permissions(publish=SubjectPermission(()), response=ResponsePermission(1, 120.0)),
        ),
        (
            "allow_responses: {max: 5, expires: '1m'}, publish: a",
            Permissions(publish=SubjectPermission(("a",)), response=ResponsePermission(5, 60.0)),
        ),
        (
            "allow_responses: {max: 0, ttl: '-1s'}, publish: {deny: x}",
            Permissions(publish=SubjectPermission((), ("x",)), response=ResponsePermission(1, -1.0)),
        ),
    ],
)
def test_permissions_have_several_forms(text: str, expected: Permissions) -> None:
    assert permissions(text) == expected


def test_a_callout() -> None:
    opts = options(
        f"""
        accounts {{ A {{}} }}
        authorization {{
            users: [{{user: auth}}]
            auth_callout {{
                issuer: {ACCOUNT}, auth_users: [auth], account: A, xkey: {CURVE}, allowed_accounts: [A]
            }}
        }}
        """
    )
    assert opts.auth_callout == AuthCallout(ACCOUNT, "A", ("auth",), CURVE, ("A",))


def test_a_callout_is_of_the_global_account_unless_told_otherwise() -> None:
    opts = options(f"authorization {{ auth_callout {{ issuer: {ACCOUNT}, auth_users: [a] }} }}")
    assert opts.auth_callout == AuthCallout(ACCOUNT, "$G", ("a",))


def test_a_high_timeout_is_a_warning() -> None:
    opts, (warning,) = read("authorization { timeout: 100 }")
    assert opts.auth_timeout == 100.0
    assert "timeout of 100 (100.000000 seconds) is high" in warning
