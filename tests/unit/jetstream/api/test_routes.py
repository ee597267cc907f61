"""The routes of the API's requests: their scopes and limits."""

from __future__ import annotations

import inspect

import pytest

from gnats.jetstream.api import consumer_requests, stream_requests
from gnats.jetstream.api.request import Route

ROUTES = (*stream_requests.ROUTES, *consumer_requests.ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=[route.verb for route in ROUTES])
def test_the_number_of_requests_that_wait_for_files_is_limited(route: Route) -> None:
    assert route.limited == inspect.iscoroutinefunction(route.handle)


def test_requests_for_information_change_nothing() -> None:
    assert not [
        route.verb for route in ROUTES if route.is_info and (route.limited or "CHANGE" in route.scope.name)
    ]
