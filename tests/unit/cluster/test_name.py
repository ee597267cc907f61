"""Which of two names of a cluster stays."""

from __future__ import annotations

from itertools import permutations

import pytest

from gnats.cluster.name import ClusterName
from gnats.options.values.cluster import ClusterOptions

pytestmark = pytest.mark.timeout(60)


class Named:
    """A server with a name of the cluster."""

    def __init__(self, name: str, generated: bool) -> None:
        self.options = ClusterOptions(name=name, generated=generated)
        self.name = ClusterName(lambda: self.options, self._rename)

    def _rename(self, name: str, generated: bool) -> None:
        self.options = ClusterOptions(name=name, generated=generated)

    def hears(self, other: Named, *, info: bool) -> bool | None:
        return self.name.agrees(str(other.name), generated=other.name.generated, keep_generated=info)


@pytest.mark.parametrize(
    ("ours", "theirs", "agreed", "name"),
    [
        (("C", False), ("C", False), True, "C"),
        (("C", False), ("C", True), True, "C"),
        (("C", False), ("D", False), False, "C"),
        (("C", False), ("D", True), False, "C"),
        (("C", True), ("A", False), None, "A"),
        (("C", True), ("D", True), None, "D"),
        (("C", True), ("A", True), False, "C"),
        (("C", True), ("", False), False, "C"),
    ],
)
def test_pairs(ours: tuple[str, bool], theirs: tuple[str, bool], agreed: bool | None, name: str) -> None:
    here = Named(*ours)
    assert here.hears(Named(*theirs), info=False) is agreed
    assert str(here.name) == name


def test_a_name_taken_over_is_configured_after_a_connect() -> None:
    for info in (False, True):
        here = Named("C", True)
        assert here.hears(Named("A", False), info=info) is None
        assert here.name.generated is info


@pytest.mark.parametrize("configured", [None, 0, 1, 2])
def test_three_servers_agree_in_whatever_order_they_meet(configured: int | None) -> None:
    meetings = [(a, b) for a in range(3) for b in range(3) if a != b]
    for order in permutations(meetings):
        servers = [Named(name, index != configured) for index, name in enumerate("BAC")]
        for _ in range(2):  # a refused connection is dialled again
            for a, b in order:
                servers[a].hears(servers[b], info=False)
        expected = "C" if configured is None else "BAC"[configured]
        assert {str(server.name) for server in servers} == {expected}
