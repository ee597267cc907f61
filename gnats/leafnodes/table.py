"""The table of connected leaf nodes: who is there twice, and where there would be a loop.

It decides; it closes and sends nothing.
"""

from collections.abc import Iterator

from gnats.accounts.account import Account
from gnats.leafnodes.leaf import Leaf
from gnats.nkeys.identity import NuidSource

LOOP_PREFIX = "$LDS."
"""Begins the subjects by which servers see that their interest comes back to them."""


class LeafTable:
    """The connections that have joined an account."""

    def __init__(self) -> None:
        self._leafs: dict[int, Leaf] = {}
        self._nuids = NuidSource()

    def __iter__(self) -> Iterator[Leaf]:
        return iter(self._leafs.values())

    def __len__(self) -> int:
        return len(self._leafs)

    def add(self, leaf: Leaf) -> None:
        """Note that a connection has joined its account."""
        leaf.registered = True
        self._leafs[leaf.cid] = leaf

    def remove(self, leaf: Leaf) -> bool:
        """Forget a connection; return whether it was there."""
        leaf.registered = False
        return self._leafs.pop(leaf.cid, None) is not None

    def same_peer(self, leaf: Leaf) -> Leaf | None:
        """Return an accepted connection of the same server for the same two accounts (addLeafNodeConnection).

        It is a stale one, or the peer has two remotes for them.
        """
        if not leaf.peer_name:
            return None
        for other in self._leafs.values():
            same = other.peer_name == leaf.peer_name and other.peer_cluster == leaf.peer_cluster
            accounts = other.account is leaf.account and other.remote_account == leaf.remote_account
            if same and accounts and leaf.remote_account and not other.solicited:
                return other
        return None

    def other_way(self, leaf: Leaf) -> Leaf | None:
        """Return a connection of the same two servers and the same two accounts, dialled by the other one.

        With both, each message would come twice. Their clusters do not show it when this server is the spoke,
        and loop subjects do not cross between connections of one cluster.
        """
        for other in self._leafs.values():
            same = other.peer_id == leaf.peer_id and other.account is leaf.account
            if same and other.remote_account == leaf.remote_account and other.solicited != leaf.solicited:
                return other if leaf.peer_id and leaf.remote_account else None
        return None

    def loop_subject(self, account: Account) -> bytes:
        """Return the account's own subject for detecting loops."""
        if not account.loop_subject:
            account.loop_subject = f"{LOOP_PREFIX}{self._nuids.next()}".encode()
        return account.loop_subject
