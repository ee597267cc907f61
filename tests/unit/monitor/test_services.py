"""Pages as requests: every page that can be made is served."""

from __future__ import annotations

from gnats.monitor.services import PAGES, PAGES_IN_STEPS
from gnats.server.system_services import SERVER_PAGES


def test_the_pages_that_can_be_made_are_served() -> None:
    assert sorted(SERVER_PAGES) == sorted([*PAGES, *PAGES_IN_STEPS])
