"""An INFO of a hub that comes after the first: what a leaf node does with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gnats.leafnodes.info import PeerInfo
from gnats.leafnodes.leafnodes import LeafNodes
from gnats.options.values.auth import SubjectPermission
from gnats.options.values.leafnodes import RemoteLeafOptions

ONE, OTHER = SubjectPermission(("a.>",), ("a.no",)), SubjectPermission(("b.>",))


class Session:
    """Counts how often it is given permissions."""

    def __init__(self) -> None:
        self.changes = 0

    def set_permissions(self, *permissions: object) -> None:
        self.changes += 1


def inform(leaf: Any, *infos: PeerInfo) -> int:
    """Give INFOs to a leaf node; return how often its session has been given permissions."""
    nodes: Any = SimpleNamespace(_hooks=SimpleNamespace(linked=lambda account: None), _log=None)
    before = leaf.session.changes
    for info in infos:
        LeafNodes.informed(nodes, leaf, info)
    return int(leaf.session.changes - before)


def test_unchanged_permissions_are_not_applied_again() -> None:
    """To apply them compares all interest, as often as a hub likes."""
    remote = SimpleNamespace(options=RemoteLeafOptions(urls=(), ignore_discovered_servers=True))
    leaf: Any = SimpleNamespace(remote=remote, session=Session(), has_joined=True, account=None)
    leaf.imports = leaf.exports = None
    leaf.spoke = leaf.solicited = True
    leaf.js_denials = (), ()
    first = PeerInfo(imports=ONE, exports=OTHER)
    assert inform(leaf, first) == 1
    assert inform(leaf, first, PeerInfo(imports=ONE, exports=OTHER), PeerInfo()) == 0
    assert inform(leaf, PeerInfo(imports=ONE)) == 1
    assert (leaf.imports, leaf.exports) == (ONE, None)
    assert inform(leaf, PeerInfo(imports=ONE), first) == 1
