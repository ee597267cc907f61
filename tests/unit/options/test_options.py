"""Options: defaults and refused values."""

import pytest
from support import jwts

from gnats.errors import OptionError
from gnats.go.hostport import parse_host_port, split_host_port
from gnats.options.options import Options
from gnats.options.values.accounts import Mapping
from gnats.options.values.auth import NkeyUser, Permissions, ResolverOptions, SubjectPermission, User
from gnats.options.values.tls import TLSOptions

pytestmark = pytest.mark.timeout(60)

MEMORY = ResolverOptions("mem")
OPERATOR = jwts.operator_jwt(jwts.operator())


def test_zero_and_empty_mean_the_default() -> None:
    opts = Options(
        host="",
        port=0,
        max_conn=0,
        max_control_line=0,
        max_payload=0,
        max_pending=0,
        write_deadline=0,
        ping_interval=0,
        ping_max=0,
        auth_timeout=0,
    ).baseline()
    assert opts == Options(http_host="127.0.0.1", https_host="127.0.0.1", auth_timeout=2.0)


def test_authentication_may_take_longer_with_tls() -> None:
    assert Options(tls=TLSOptions(timeout=5)).baseline().auth_timeout == 6.0
    assert Options(tls=TLSOptions(timeout=5), auth_timeout=1.0).baseline().auth_timeout == 1.0


def test_other_values_stay() -> None:
    opts = Options(port=-1, max_subs=0, max_conn=-1, max_payload=-1, http_host="::1").baseline()
    assert (opts.port, opts.max_subs, opts.max_conn, opts.max_payload) == (-1, 0, -1, -1)
    assert opts.http_host == "::1"


def test_monitoring_listens_where_clients_do_unless_told_otherwise() -> None:
    assert Options(host="127.0.0.2").baseline().http_host == "127.0.0.2"


def test_baseline_leaves_the_original_alone() -> None:
    opts = Options(port=0)
    opts.baseline()
    assert opts.port == 0


@pytest.mark.parametrize(
    ("opts", "reason"),
    [
        (
            Options(max_payload=2048, max_pending=1024),
            "max_payload (2048) cannot be higher than max_pending (1024)",
        ),
        (Options(max_payload=1 << 31, max_pending=1 << 40), "max_payload value is too big"),
        (Options(max_control_line=1 << 31), "max_control_line value is too big"),
        (Options(server_name="a b"), "server name cannot contain spaces"),
        (Options(port=65536), "port 65536 is not a port: -1 (a free one) to 65535"),
        (Options(http_port=-2), "http_port -2 is not a port: -1 (a free one) to 65535"),
        (Options(client_advertise="a:b:c"), "address a:b:c: too many colons in address"),
        (Options(client_advertise="a:b"), 'address a:b: "b" is not a port'),
        (Options(io_threads=-1), 'io_threads -1 is neither a number from 0 to 63 nor "auto"'),
        (Options(io_threads="many"), 'io_threads many is neither a number from 0 to 63 nor "auto"'),
        (Options(http_port=1, https_port=2), "can't specify both HTTP (1) and HTTPs (2) ports"),
        (Options(https_port=1), "TLS cert and key required for HTTPS"),
        (Options(max_sub_tokens=256), "max_sub_tokens 256 is not a number from 0 to 255"),
        (Options(no_auth_user="a"), 'no_auth_user: "a" present, but users/nkeys are not defined'),
        (
            Options(users=[User("a", permissions=Permissions(publish=SubjectPermission(("a..b",))))]),
            'invalid permissions for user "a": publish allow: subject "a..b" is not a valid subject',
        ),
        (
            Options(nkeys=[NkeyUser("U", Permissions(subscribe=SubjectPermission(deny=("a b c",))))]),
            'invalid permissions for nkey "U": subscribe deny: subject "a b c" is not a valid subject',
        ),
        (Options(system_account="A"), 'error resolving system account "A": account missing'),
        (Options(trusted_operators=("jwt",)), "error parsing operator JWT: expected 3 chunks"),
        (
            Options(trusted_keys=("O",)),
            'trusted Keys "O" are required to be a valid public operator nkey',
        ),
        (Options(default_sentinel="x"), "default sentinel requires operators and accounts"),
        (Options(resolver=ResolverOptions("url")), 'the account resolver has no address: URL("http://...")'),
        (
            Options(trusted_operators=(OPERATOR,)),
            "operators require an account resolver to be configured",
        ),
        (
            Options(trusted_operators=(OPERATOR,), resolver=MEMORY, mappings=[Mapping("a", ())]),
            "operators do not allow Accounts to be configured directly",
        ),
        (
            Options(trusted_operators=(OPERATOR,), resolver=MEMORY, users=[User("a")]),
            "operators do not allow users to be configured directly",
        ),
        (
            Options(trusted_operators=(OPERATOR,), resolver=MEMORY, trusted_keys=("O",)),
            "conflicting options for 'TrustedKeys' and 'TrustedOperators'",
        ),
        (
            Options(trusted_operators=(OPERATOR,), resolver=MEMORY, no_auth_user="a"),
            "no_auth_user not compatible with Trusted Operator",
        ),
        (
            Options(resolver=ResolverOptions("url", url="http://a"), resolver_preload={"a": "b"}),
            "resolver preloads only available for writeable resolver types MEM/DIR/CACHE_DIR",
        ),
        (
            Options(lame_duck_duration=5, lame_duck_grace_period=10),
            "lame duck grace period (10s) should be strictly lower than lame duck duration (5s)",
        ),
    ],
)
def test_what_cannot_work_is_refused(opts: Options, reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        opts.baseline()
    assert str(caught.value) == reason


def test_secrets_are_not_in_the_repr() -> None:
    assert "hunter2" not in repr(Options(username="u", password="hunter2", authorization="hunter2"))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("example.com", ("example.com", 4222)),
        ("example.com:1234", ("example.com", 1234)),
        ("example.com:0", ("example.com", 4222)),
        ("example.com:-1", ("example.com", 4222)),
        ("[::1]:1234", ("::1", 1234)),
        ("[::1]", ("::1", 4222)),
    ],
)
def test_an_advertised_address_may_leave_out_the_port(text: str, address: tuple[str, int]) -> None:
    assert parse_host_port(text, 4222) == address


@pytest.mark.parametrize(
    ("text", "parts"), [("a:1", ("a", "1")), (":1", ("", "1")), ("[::1]:2", ("::1", "2"))]
)
def test_host_and_port_are_split(text: str, parts: tuple[str, str]) -> None:
    assert split_host_port(text) == parts


@pytest.mark.parametrize("text", ["a", "", "::1:4222"])
def test_what_has_no_port_is_not_split(text: str) -> None:
    with pytest.raises(OptionError, match="address"):
        split_host_port(text)
