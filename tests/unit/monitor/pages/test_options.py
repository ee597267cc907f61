"""The query arguments of monitoring pages."""

from typing import Any

import pytest

from gnats.go.json import JSONError
from gnats.monitor.pages.options import (
    ALL,
    AccountStatzOptions,
    ConnzOptions,
    GatewayzOptions,
    HealthzOptions,
    IpqueueszOptions,
    JszOptions,
    LeafzOptions,
    PageOptions,
    Query,
    RaftzOptions,
    RoutezOptions,
    SubszOptions,
)

pytestmark = pytest.mark.timeout(10)


@pytest.mark.parametrize(
    ("kind", "query", "body"),
    [
        (ConnzOptions, "", "{}"),
        (
            ConnzOptions,
            "sort=subs auth=1 subs=1 offset=2 limit=3 cid=18446744073709551615 state=Any user=u acc=a"
            " mqtt_client=m",
            '{"sort":"subs","auth":true,"subscriptions":true,"offset":2,"limit":3,"cid":18446744073709551615,'
            '"state":2,"user":"u","acc":"a","mqtt_client":"m"}',
        ),
        (ConnzOptions, "subs=DETAIL", '{"subscriptions_detail":true}'),
        (RoutezOptions, "subs=detail", '{"subscriptions_detail":true}'),
        (
            GatewayzOptions,
            "gw_name=g acc_name=a subs=1",
            '{"name":"g","accounts":true,"account_name":"a","subscriptions":true}',
        ),
        (LeafzOptions, "subs=1 acc=a", '{"subscriptions":true,"account":"a"}'),
        (
            SubszOptions,
            "subs=1 offset=1 limit=2 acc=a test=t",
            '{"subscriptions":true,"offset":1,"limit":2,"account":"a","test":"t"}',
        ),
        (AccountStatzOptions, "unused=true", '{"include_unused":true}'),
        (
            JszOptions,
            "acc=a streams=1 consumers=1 config=1 direct-consumers=1 leader-only=1 raft=1"
            " stream-leader-only=1",
            '{"account":"a","streams":true,"consumer":true,"config":true,"direct_consumer":true,'
            '"leader_only":true,"raft":true,"stream_leader_only":true}',
        ),
        (
            HealthzOptions,
            "js-enabled=1 js-enabled-only=1 js-server-only=1 js-meta-only=1 account=a stream=s details=1",
            '{"js-enabled":true,"js-enabled-only":true,"js-server-only":true,"js-meta-only":true,'
            '"account":"a","stream":"s","details":true}',
        ),
        (IpqueueszOptions, "all=1 queues=q", '{"all":true,"filter":"q"}'),
        (RaftzOptions, "acc=a group=g", '{"account":"a","group":"g"}'),
    ],
)
def test_a_query_and_a_request_ask_for_the_same(kind: Any, query: str, body: str) -> None:
    asked = kind.from_query(Query(dict(pair.split("=") for pair in query.split())))
    assert asked == kind.from_json(body.encode())
    assert (asked == kind()) == (body == "{}")


def test_requests_have_options_that_queries_have_not() -> None:
    options = ConnzOptions.from_json(b'{"FILTER_SUBJECT":"a.>","acc":"A","unknown":1,"state":2}')
    assert options == ConnzOptions(filter_subject="a.>", acc="A", state=ALL)
    statz = AccountStatzOptions.from_json(b'{"accounts":["A","B"]}')
    assert statz == AccountStatzOptions(accounts=("A", "B"))


def test_an_empty_request_asks_for_nothing_special() -> None:
    assert ConnzOptions.from_json(b"") == ConnzOptions()


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"limit":"1"}', b'{"cid":-1}', b'{"auth":1}'])
def test_a_bad_request_is_refused(body: bytes) -> None:
    with pytest.raises(JSONError):
        ConnzOptions.from_json(body)


def test_every_option_can_come_from_a_request() -> None:
    kinds = PageOptions.__subclasses__()
    assert len(kinds) >= 11
    for kind in kinds:
        assert kind.from_json(b"{}") == kind()
