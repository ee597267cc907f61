"""How permissions of one direction become permissions of the other."""

from __future__ import annotations

from gnats.leafnodes.info import at_least, denying
from gnats.leafnodes.permissions import as_publish, as_subscribe
from gnats.options.values.auth import SubjectPermission


def test_an_empty_list_keeps_its_meaning() -> None:
    """It allows nothing to be published, and everything to be subscribed to."""
    assert as_publish(SubjectPermission(allow=())) == SubjectPermission()
    assert as_subscribe(SubjectPermission(allow=())) == SubjectPermission(deny=(">",))
    assert as_publish(None) is as_subscribe(None) is None


def test_entries_with_a_queue_group_do_not_count_for_messages() -> None:
    assert as_publish(SubjectPermission(("a", "b q"), ("c q", "d"))) == SubjectPermission(("a",), ("d",))
    assert as_publish(SubjectPermission(("b q",))) == SubjectPermission(())


def test_denials_are_added() -> None:
    assert denying(None, ()) is None
    assert denying(None, ["a"]) == SubjectPermission(None, ("a",))
    assert denying(SubjectPermission(("x",), ("b",)), ["a"]) == SubjectPermission(("x",), ("b", "a"))


def test_versions() -> None:
    assert at_least("2.10.0", "2.10.0")
    assert at_least("2.10.1-rc.1", "2.10.0")
    assert at_least("10.0.0", "9.9.9")
    for older in "2.9.25", "", "x", "2.10":
        assert not at_least(older, "2.10.0")
