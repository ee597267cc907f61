"""Reload the options of leaf nodes while their connections are up (leafNodeOption in reload.go)."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from gnats.connection.closed_state import ClosedState
from gnats.leafnodes.leaf import Leaf
from gnats.leafnodes.remote import Remote
from gnats.options.leafnode_changes import LeafNodeChanges
from gnats.options.values.cluster import NOT_SUPPORTED, OFF, S2_AUTO, Compression
from gnats.options.values.leafnodes import RemoteLeafOptions

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.log.logger import Logger


class ReloadedLeafNodes(Protocol):
    """The leaf nodes as a reload sees them."""

    remotes: list[Remote]
    open: dict[int, Leaf]

    def dial(self, remote: Remote) -> None: ...
    def add_remotes(self, remotes: Iterable[RemoteLeafOptions]) -> None: ...


def reload_leafnodes(leafnodes: ReloadedLeafNodes, changes: LeafNodeChanges, log: "Logger") -> None:
    """Apply changes of the options, which are those of the server already."""
    for notice in changes.notices():
        log.notice(notice)
    by_key = {remote.options.key: remote for remote in leafnodes.remotes}
    for options in changes.removed:
        remote = by_key[options.key]
        remote.valid = False
        leafnodes.remotes.remove(remote)
    for change in changes.changed:
        remote = by_key[change.new.key]
        remote.options = change.new
        remote.tls_required = change.new.tls is not None
        if change.disabled:
            remote.valid = not change.new.disabled
    _close(leafnodes, log, lambda leaf: leaf.remote is not None and not leaf.remote.valid, no_reconnect=True)
    compressions = {
        change.new.key: change.new.compression for change in changes.changed if change.compression
    }
    for leaf in list(leafnodes.open.values()):
        if leaf.remote is None:
            compression = changes.new.compression if changes.compression else None
        else:
            compression = compressions.get(leaf.remote.options.key)
        if compression and not _compresses_now(leaf, compression):
            leaf.close(log, ClosedState.CLIENT_CLOSED)
    for change in changes.changed:
        if change.disabled and not change.new.disabled:
            leafnodes.dial(by_key[change.new.key])
    leafnodes.add_remotes(changes.added)


def close_homeless(leafnodes: ReloadedLeafNodes, accounts: "dict[str, Account]", log: "Logger") -> None:
    """Close the connections for accounts that are no more."""
    _close(leafnodes, log, lambda leaf: accounts.get(leaf.account.name) is not leaf.account)


def _close(
    leafnodes: ReloadedLeafNodes,
    log: "Logger",
    condition: Callable[[Leaf], bool],
    *,
    no_reconnect: bool = False,
) -> None:
    for leaf in [leaf for leaf in leafnodes.open.values() if condition(leaf)]:
        leaf.no_reconnect |= no_reconnect
        leaf.close(log, ClosedState.CLIENT_CLOSED)


def _compresses_now(leaf: Leaf, new: Compression) -> bool:
    """Compress as configured now; return False if that has to be agreed on with the peer."""
    if leaf.compression in (NOT_SUPPORTED, new.mode):
        return True
    if leaf.compression == OFF or not new.mode.startswith("s2_"):
        return False
    if new.mode == S2_AUTO:
        leaf.follow_rtt(new)
    else:
        leaf.use_level(new.mode)
    return True
