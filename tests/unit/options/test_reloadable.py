"""A reload applies a change of any option, or refuses it by the option's name."""

from dataclasses import fields, replace

import pytest

from gnats.errors import OptionError
from gnats.options import reloadable
from gnats.options.options import Options
from gnats.options.reloadable import diff_options
from gnats.options.values.accounts import AccountConfig
from gnats.options.values.auth import AuthCallout, NkeyUser, Permissions, ResolverOptions, User
from gnats.options.values.cluster import ClusterOptions
from gnats.options.values.gateway import GatewayOptions, RemoteGatewayOptions
from gnats.options.values.jetstream import JetStreamOptions
from gnats.options.values.leafnodes import LeafNodeOptions
from gnats.options.values.tls import TLSOptions

pytestmark = pytest.mark.timeout(60)

OTHER: dict[str, object] = {
    "tls": TLSOptions(),
    "permissions": Permissions(),
    "users": [User("a")],
    "nkeys": [NkeyUser("U")],
    "auth_callout": AuthCallout("A"),
    "accounts": [AccountConfig("A")],
    "mappings": ["any"],
    "server_metadata": {"a": "b"},
    "resolver": ResolverOptions("mem"),
    "resolver_preload": {"A": "jwt"},
    "resolver_pinned_accounts": frozenset("A"),
    "resolver_tls": TLSOptions(),
    "jetstream": JetStreamOptions(enabled=True),
    "cluster": ClusterOptions(no_advertise=True),
    "gateway": GatewayOptions(reject_unknown=True),
    "leafnodes": LeafNodeOptions(no_advertise=True),
    "default_js_domain": {"A": "D"},
}
ABOUT_THE_FILE = {"config_file", "config_digest"}


def another(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}x" if isinstance(value, str) else ("x",)


@pytest.mark.parametrize(
    "name", [field.name for field in fields(Options) if field.name not in ABOUT_THE_FILE]
)
def test_a_change_of_each_option_is_seen(name: str) -> None:
    old = Options(https_port=1) if name == "https_host" else Options()
    new = replace(old, **{name: OTHER.get(name, another(getattr(old, name)))})
    try:
        changed = diff_options(old, new)
    except OptionError as exc:
        assert str(exc).startswith("config reload not supported for ")
    else:
        assert len(changed) == 1


def test_where_options_come_from_is_no_change() -> None:
    assert diff_options(Options(), Options(config_file="x", config_digest="y")) == {}


def test_no_name_is_reloadable_that_is_none() -> None:
    assert reloadable._RELOADABLE.keys() <= reloadable.fields(Options()).keys()


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        ("$SYS", "", True),
        ("", "$SYS", False),
        ("A", "", False),
        ("", "A", False),
    ],
)
def test_the_system_account_only_loses_the_name_it_has_anyway(old: str, new: str, allowed: bool) -> None:
    before, after = Options(system_account=old), Options(system_account=new)
    if allowed:
        assert diff_options(before, after) == {"SystemAccount": ""}
    else:
        with pytest.raises(OptionError, match=f"SystemAccount: old={old}, new={new}".replace("$", r"\$")):
            diff_options(before, after)


def test_an_account_of_that_name_is_the_system_account() -> None:
    accounts = [AccountConfig("$SYS")]
    old, new = Options(accounts=accounts), Options(accounts=accounts, system_account="$SYS")
    assert diff_options(old, new) == {}
    assert diff_options(old, old) == {"SystemAccount": ""}


def test_trusted_keys_have_no_order() -> None:
    assert diff_options(Options(trusted_keys=("A", "B")), Options(trusted_keys=("B", "A"))) == {}
    with pytest.raises(OptionError, match=r"TrustedKeys: old=\[A B\], new=\[\]"):
        diff_options(Options(trusted_keys=("B", "A")), Options())


def test_what_is_secret_is_not_logged() -> None:
    old = Options(
        authorization="secret1", username="secret2", password="secret3", resolver_preload={"A": "s"}
    )
    new = Options(
        authorization="secret4", username="secret5", password="secret6", resolver_preload={"A": "t"}
    )
    assert "secret" not in str(diff_options(old, new))


def test_a_gateway_may_only_change_its_tls() -> None:
    remotes = RemoteGatewayOptions("A"), RemoteGatewayOptions("B")
    gateway = GatewayOptions("G", port=1, gateways=remotes)
    for new in (
        replace(gateway, gateways=remotes[::-1]),
        replace(gateway, tls=TLSOptions(cert_file="c")),
        replace(gateway, tls=TLSOptions(pinned_certs=frozenset("a" * 64))),
        replace(gateway, gateways=(replace(remotes[0], tls=TLSOptions(timeout=0.0)), remotes[1])),
    ):
        assert diff_options(Options(gateway=gateway), Options(gateway=new)) == {}
    for new in (
        replace(gateway, gateways=remotes[:1]),
        replace(gateway, tls=TLSOptions(timeout=1.0)),
        replace(gateway, tls=TLSOptions(verify_and_map=True)),
        replace(gateway, gateways=(replace(remotes[0], tls=TLSOptions(timeout=1.0)), remotes[1])),
        replace(gateway, password="secret"),
    ):
        with pytest.raises(OptionError) as raised:
            diff_options(Options(gateway=gateway), Options(gateway=new))
        assert str(raised.value) == "config reload not supported for Gateway: old=..., new=..."
