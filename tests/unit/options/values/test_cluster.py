"""The options of a cluster: defaults and checks."""

import pytest

from gnats.errors import OptionError
from gnats.options.values.auth import SubjectPermission
from gnats.options.values.cluster import ClusterOptions, Compression, RoutePermissions
from gnats.options.values.tls import TLSOptions

pytestmark = pytest.mark.timeout(60)


def test_defaults_of_a_cluster_with_routes() -> None:
    found = ClusterOptions(port=-1).baseline("$SYS")
    assert (found.host, found.pool_size, found.accounts) == ("127.0.0.1", 3, ("$SYS",))
    assert (found.auth_timeout, found.compression) == (2.0, Compression("accept"))


def test_a_cluster_without_routes_has_no_defaults() -> None:
    assert ClusterOptions(name="C").baseline("$SYS") == ClusterOptions(name="C")


@pytest.mark.parametrize("mode", ["accept", "off", "not_supported", "on", "auto", "fast", "better", "best"])
def test_modes_of_compression(mode: str) -> None:
    ClusterOptions(port=1, compression=Compression(mode)).baseline("")


def test_without_routes_there_is_no_tls_to_refuse() -> None:
    ClusterOptions(compression=Compression("best"), tls=TLSOptions()).baseline("")


@pytest.mark.parametrize(
    ("given", "system", "accounts"),
    [
        ({"accounts": ("A",)}, "S", ("A", "S")),
        ({"accounts": ("S", "A")}, "S", ("S", "A")),
        ({"accounts": ("A",)}, "", ("A",)),
        ({"pool_size": -1}, "S", ()),
    ],
)
def test_the_system_account_has_routes_of_its_own(
    given: dict[str, object], system: str, accounts: tuple[str, ...]
) -> None:
    found = ClusterOptions(port=1, **given).baseline(system)  # type: ignore[arg-type]
    assert found.accounts == accounts


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": "a b"}, "cluster name cannot contain spaces"),
        ({"name": "_"}, "cluster name is reserved"),
        ({"port": 65536}, "cluster port 65536 is not a port"),
        ({"port": -2}, "cluster port -2 is not a port"),
        (
            {"permissions": RoutePermissions(SubjectPermission(("a",), ("a b",)))},
            'cluster import deny: subject "a b" is not a valid subject',
        ),
        ({"pool_size": -1, "accounts": ("A",)}, "pool_size cannot be negative if pinned accounts"),
        (
            {"accounts": ("A", "B", "A")},
            'found duplicate account name "A" in pinned accounts list ["A" "B" "A"]',
        ),
        ({"advertise": "a:x"}, 'address a:x: "x" is not a port'),
        ({"compression": Compression("s3")}, 'unsupported compression mode "s3"'),
    ],
)
def test_checks(given: dict[str, object], error: str) -> None:
    with pytest.raises(OptionError) as raised:
        ClusterOptions(**given).baseline("")  # type: ignore[arg-type]
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("mode", "normalized"),
    [
        ("ON", "s2_fast"),
        ("true", "s2_fast"),
        ("disabled", "off"),
        ("Accept", "accept"),
        ("not_supported", "not supported"),
        ("best", "s2_best"),
        ("S2_Better", "s2_better"),
    ],
)
def test_words_for_modes(mode: str, normalized: str) -> None:
    assert Compression(mode).normalized("s2_fast") == Compression(normalized)


@pytest.mark.parametrize(
    ("given", "thresholds"),
    [
        ((), (0.010, 0.050, 0.100)),
        ((0.001, 0.002), (0.001, 0.002)),
        ((-1.0, 0.002, 0.0), (0.0, 0.002)),
        ((0.001, 0.0, 0.002, 0.002), (0.001, 0.0, 0.002, 0.002)),
    ],
)
def test_thresholds(given: tuple[float, ...], thresholds: tuple[float, ...]) -> None:
    assert Compression("auto", given).normalized("s2_fast") == Compression("s2_auto", thresholds)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ((0.002, 0.001), "RTT threshold values [2ms 1ms] should be in ascending order"),
        ((0.002, 0.0, 0.001), "RTT threshold values [2ms 0s 1ms] should be in ascending order"),
        ((1.0,) * 5, 'compression mode "auto" should have no more than 4 RTT thresholds'),
        ((0.0,), 'compression mode "auto" requires at least one RTT threshold'),
    ],
)
def test_thresholds_that_are_refused(given: tuple[float, ...], error: str) -> None:
    with pytest.raises(OptionError) as raised:
        Compression("auto", given).normalized("s2_fast")
    assert error in str(raised.value)
