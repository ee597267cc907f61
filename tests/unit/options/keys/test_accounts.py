"""Accounts of a configuration: limits, exports, imports, mappings."""

import pytest

from gnats.errors import OptionError
from gnats.nkeys.nkeys import Prefix, encode
from gnats.options.values.accounts import (
    AccountConfig,
    AccountLimits,
    MapDest,
    Mapping,
    ServiceExport,
    ServiceImport,
    ServiceLatency,
    StreamExport,
    StreamImport,
)
from gnats.options.values.auth import Permissions, SubjectPermission

from .reading import options

pytestmark = pytest.mark.timeout(60)

ACCOUNT = encode(Prefix.ACCOUNT, b"a" * 32)


def account(text: str) -> AccountConfig:
    """Return account A with this block; there is an account B too."""
    found = options(f"accounts {{ A {{ {text} }}, B {{}} }}").accounts
    assert found[1] == AccountConfig("B")
    return found[0]


def test_accounts_may_be_names_only() -> None:
    assert options("accounts: [A, B]").accounts == [AccountConfig("A"), AccountConfig("B")]


def test_an_account_has_an_nkey_default_permissions_and_a_trace_destination() -> None:
    assert account(
        f"nkey: {ACCOUNT}, default_permissions {{ publish: a }}, msg_trace {{ dest: t, sampling: '25%' }}"
    ) == AccountConfig(
        "A",
        nkey=ACCOUNT,
        default_permissions=Permissions(publish=SubjectPermission(("a",))),
        trace_dest="t",
        trace_sampling=25,
    )
    assert account("trace_dest: t") == AccountConfig("A", trace_dest="t", trace_sampling=100)


@pytest.mark.parametrize(
    "text",
    [
        "limits { max_connections: 1, max_leafnodes: 2, max_subscriptions: 3, max_payload: 4 }",
        "limits { max_conn: 1, max_leafs: 2, max_subs: 3, max_pay: 4 }",
    ],
)
def test_limits(text: str) -> None:
    assert account(text).limits == AccountLimits(1, 2, 3, 4)


def test_limits_that_are_not_named_are_none() -> None:
    assert account("limits { max_conn: 1 }").limits == AccountLimits(max_connections=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{stream: a}", StreamExport("a")),
        ("{stream: a, accounts: []}", StreamExport("a")),
        ("{stream: a, accounts: [B]}", StreamExport("a", ("B",))),
        ("{stream: a.*, account_token_position: 2}", StreamExport("a.*", None, 2)),
        ("{service: a}", ServiceExport("a")),
        ("{response: chunk, service: a}", ServiceExport("a", response_type="chunked")),
        ("{service: a, response_type: Stream}", ServiceExport("a", response_type="stream")),
        ("{service: a, response: single}", ServiceExport("a")),
        ("{service: a, threshold: 1s}", ServiceExport("a", threshold=1.0)),
        ("{service: a, response_time: 1s}", ServiceExport("a", threshold=1.0)),
        ("{service: a, latency: l}", ServiceExport("a", latency=ServiceLatency("l", 100))),
        (
            "{service: a, latency: {subject: l, sampling: '7%'}}",
            ServiceExport("a", latency=ServiceLatency("l", 7)),
        ),
        (
            "{service: a, latency: {subject: l, sampling: Headers}}",
            ServiceExport("a", latency=ServiceLatency("l", 0)),
        ),
        ("{service: a, allow_trace: true}", ServiceExport("a", allow_trace=True)),
    ],
)
def test_exports(text: str, expected: StreamExport | ServiceExport) -> None:
    assert account(f"exports: [ {text} ]").exports == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{stream: {account: B, subject: s}}", StreamImport("B", "s")),
        ("{to: t, stream: {account: B, subject: s}}", StreamImport("B", "s", to="t")),
        ("{stream: {account: B, subject: s}, prefix: p}", StreamImport("B", "s", prefix="p")),
        ("{stream: {account: B, subject: s}, allow_trace: yes}", StreamImport("B", "s", allow_trace=True)),
        ("{service: {account: B, subject: s}}", ServiceImport("B", "s")),
        ("{service: {account: B, subject: s}, to: t, share: true}", ServiceImport("B", "s", "t", True)),
    ],
)
def test_imports(text: str, expected: StreamImport | ServiceImport) -> None:
    offer = "exports: [{stream: s}, {service: s}]"
    a, b = options(f"accounts {{ A {{ imports: [ {text} ] }}, B {{ {offer} }} }}").accounts
    assert (a.imports, b.exports) == ([expected], [StreamExport("s"), ServiceExport("s")])


@pytest.mark.parametrize(
    ("text", "dests"),
    [
        ("b", [MapDest("b")]),
        ("{dest: b, weight: 5%}", [MapDest("b", 5)]),
        ("{destination: b, weight: 5, cluster: C}", [MapDest("b", 5, "C")]),
        ("[{dest: b, weight: 20}, {dest: c, weight: '80'}]", [MapDest("b", 20), MapDest("c", 80)]),
        ("[]", []),
    ],
)
def test_mappings_of_an_account_and_of_the_global_one(text: str, dests: list[MapDest]) -> None:
    expected = [Mapping("a", tuple(dests))]
    assert account(f"mappings {{ a: {text} }}").mappings == expected
    assert options(f"maps {{ a: {text} }}").mappings == expected


@pytest.mark.parametrize("text", ['accounts { "": { users: [{user: a}] } }', 'accounts: [""]'])
def test_an_account_has_a_name(text: str) -> None:
    with pytest.raises(OptionError, match=r":1:\d+: an account needs a name"):
        options(text)


def test_a_threshold_is_for_services_only() -> None:
    """nats-server reports this error or not, by chance."""
    with pytest.raises(OptionError, match=r":1:\d+: Detected response directive on non-service"):
        options("accounts { A { exports: [{threshold: 1s, stream: a}] } }")


def test_entries_that_are_variables_are_no_accounts() -> None:
    opts = options("accounts { name: bob, A { users: [{user: $name}] } }")
    assert [each.name for each in opts.accounts] == ["A"]
    assert [user.username for user in opts.users] == ["bob"]
