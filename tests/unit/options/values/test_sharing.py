"""Exports and imports of accounts: authorization, duplicates, cycles, resolution."""

from __future__ import annotations

import pytest

from gnats.errors import OptionError
from gnats.options.values.accounts import (
    AccountConfig,
    ServiceExport,
    ServiceImport,
    ServiceLatency,
    StreamExport,
    StreamImport,
)
from gnats.options.values.sharing import Exchange

pytestmark = pytest.mark.timeout(60)

Item = StreamExport | ServiceExport | StreamImport | ServiceImport


def exchange(**accounts: list[Item]) -> Exchange:
    made = Exchange()
    made.add(
        AccountConfig(
            name,
            exports=[item for item in items if isinstance(item, StreamExport | ServiceExport)],
            imports=[item for item in items if isinstance(item, StreamImport | ServiceImport)],
        )
        for name, items in accounts.items()
    )
    return made


REFUSED = {
    "a stream nobody exports": (
        {"A": [], "B": [StreamImport("A", "s")]},
        'Error adding stream import "s": stream import not authorized',
    ),
    "a wider stream": (
        {"A": [StreamExport("s.*")], "B": [StreamImport("A", "s.>")]},
        "stream import not authorized",
    ),
    "a private stream": (
        {"A": [StreamExport("s", accounts=("C",))], "B": [StreamImport("A", "s")], "C": []},
        "stream import not authorized",
    ),
    "a stream that needs a token": (
        {"A": [StreamExport("s", accounts=())], "B": [StreamImport("A", "s")]},
        "stream import not authorized",
    ),
    "another account's stream": (
        {"A": [StreamExport("s.*", account_token_position=2)], "B": [StreamImport("A", "s.C")]},
        "stream import not authorized",
    ),
    "the same stream twice": (
        {"A": [StreamExport("s")], "B": [StreamImport("A", "s"), StreamImport("A", "s", to="t")]},
        "stream import already exists",
    ),
    "a prefix with wildcards": (
        {"A": [StreamExport("s")], "B": [StreamImport("A", "s", prefix="p.*")]},
        "stream import prefix can not contain wildcard tokens",
    ),
    "a stream by part of its wildcards": (
        {"A": [StreamExport("s.*.*")], "B": [StreamImport("A", "s.*.*", to="t.$1")]},
        'failed to create mapping transform for stream import subject from "s.*.*" to "t.$1":'
        " invalid mapping destination: not using all of the token wildcard(s) in t.$1",
    ),
    "a service nobody exports": (
        {"A": [], "B": [ServiceImport("A", "s")]},
        'Error adding service import "s": service import not authorized',
    ),
    "a private service": (
        {"A": [ServiceExport("s", accounts=("C",))], "B": [ServiceImport("A", "s")], "C": []},
        "service import not authorized",
    ),
    "the same service twice": (
        {
            "A": [ServiceExport("s.*")],
            "B": [ServiceImport("A", "s.a", to="x"), ServiceImport("A", "s.b", to="x")],
        },
        'duplicate service import subject "x", previously used in import for account "A", subject "s.a"',
    ),
    "an account that is not there": ({"B": [ServiceImport("A", "s")]}, "account missing"),
    "a token that is no wildcard": (
        {"A": [StreamExport("s.a", account_token_position=2)]},
        "invalid subject",
    ),
    "measurements of a streaming service": (
        {"A": [ServiceExport("s", response_type="stream", latency=ServiceLatency("m"))]},
        "bad service response type",
    ),
    "measurements into the service itself": (
        {"A": [ServiceExport("s"), ServiceExport("t", latency=ServiceLatency("s"))]},
        "invalid publish subject",
    ),
    "a service cycle": (
        {
            "A": [ServiceExport("a"), ServiceImport("B", "b", to="a")],
            "B": [ServiceExport("b"), ServiceImport("A", "a", to="b")],
        },
        "import forms a cycle",
    ),
    "a long service cycle": (
        {
            "A": [ServiceExport("help"), ServiceImport("B", "help")],
            "B": [ServiceExport("help"), ServiceImport("C", "help")],
            "C": [ServiceExport("help"), ServiceImport("A", "help")],
        },
        "import forms a cycle",
    ),
    "a stream cycle": (
        {
            "A": [StreamExport("s.>"), StreamImport("B", "s.b")],
            "B": [StreamExport("s.>"), StreamImport("A", "s.>")],
        },
        "import forms a cycle",
    ),
}


@pytest.mark.parametrize(("accounts", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused_to_import(accounts: dict[str, list[Item]], error: str) -> None:
    with pytest.raises(OptionError) as caught:
        exchange(**accounts)
    assert str(caught.value).endswith(error)


def test_streams_are_seen_under_a_prefix_or_another_subject() -> None:
    made = exchange(
        A=[StreamExport(">")],
        B=[
            StreamImport("A", "lit"),
            StreamImport("A", "one.*"),
            StreamImport("A", "two.*", prefix="p"),
            StreamImport("A", "three.*", to="x.$1.y"),
            StreamImport("A", "four", to="z"),
        ],
    )
    routes = made.parties["B"].stream_imports
    assert [(r.subject, r.to, r.use_published) for r in routes] == [
        ("lit", "lit", False),
        ("one.*", "one.*", True),
        ("two.*", "p.two.*", False),
        ("three.*", "x.*.y", False),
        ("four", "z", False),
    ]
    transforms = [r.transform for r in routes]
    assert [t and t.dest for t in transforms] == [None, None, b"p.two.$1", b"x.$1.y", None]


def test_services_are_asked_under_another_subject() -> None:
    made = exchange(
        A=[ServiceExport("s.*.*"), ServiceExport("t")],
        B=[
            ServiceImport("A", "t", to="x"),
            ServiceImport("A", "s.*.b"),
            ServiceImport("A", "s.*.a", to="y.$1"),
        ],
    )
    routes = made.parties["B"].service_imports
    assert [(r.subject, r.to, r.export, r.use_published) for r in routes] == [
        ("x", "t", "t", False),
        ("s.*.b", "s.*.b", "s.*.*", True),
        ("y.*", "s.*.a", "s.*.*", False),
    ]
    transform = routes[2].transform
    assert transform is not None
    assert transform.match("y.q") == b"s.q.a"


def test_the_account_in_the_subject_is_leave_enough() -> None:
    made = exchange(A=[StreamExport("s.*", account_token_position=2)], B=[StreamImport("A", "s.B")])
    assert [r.subject for r in made.parties["B"].stream_imports] == ["s.B"]


def test_a_token_is_leave_enough_when_it_is_good() -> None:
    asked = []

    def good(importer: str, exporter: str, item: StreamImport | ServiceImport, export: str) -> bool:
        asked.append((importer, exporter, item.token))
        return item.token == "good"

    made = Exchange(good)
    made.add_accounts("AB")
    made.add_stream_export("A", StreamExport("s", accounts=()))
    made.add_stream_import("B", StreamImport("A", "s", token="good"))
    with pytest.raises(ValueError, match="not authorized"):
        made.add_stream_import("B", StreamImport("A", "s", token="bad"))
    assert asked == [("B", "A", "good"), ("B", "A", "bad")]


def test_every_account_imports_the_services_of_the_system_account() -> None:
    made = Exchange()
    made.add_accounts(["$G", "$SYS"])
    made.add_system_exports("$SYS")
    assert set(made.parties["$SYS"].service_exports) == {
        "$SYS.REQ.ACCOUNT.*.CONNZ",
        "$SYS.REQ.ACCOUNT.*.STATZ",
        "$SYS.DEBUG.SUBSCRIBERS",
        "$SYS.REQ.USER.*.INFO",
    }
    assert [(r.subject, r.to, r.share) for r in made.parties["$G"].service_imports] == [
        ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.$G.CONNZ", False),
        ("$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.$G.CONNZ", False),
        ("$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.ACCOUNT.$G.STATZ", False),
        ("$SYS.REQ.USER.INFO", "$SYS.REQ.USER.$G.INFO", True),
    ]
    assert [r.subject for r in made.parties["$SYS"].service_imports] == ["$SYS.REQ.USER.INFO"]
