"""A model of a link to another server: it takes changes of interest, and remembers the interest."""

from __future__ import annotations

from gnats.core.runtime.kinds import GATEWAY, LEAF, ROUTER
from gnats.core.subjects.interest_queue import QueueProbe
from gnats.core.subjects.sublist import Handle, Sublist

from .failing_server import Call, here

WANT_LOCAL, WANT_REMOTE, WANT_SERVICES, WANT_NUMBERS = 1, 2, 4, 8
Counts = tuple[int, int, int]
Key = tuple[int, bytes, bytes]
NOTHING: Counts = (0, 0, 0)
ENTRY = 200
"""Bytes that a change takes at most, in the tests."""


class Link:
    """Takes the changes of a queue. `told` is the interest by account, subject and queue group.

    A count is (local, remote, services).
    """

    def __init__(self, sublists: list[Sublist], wanted: int, limit: int = 1 << 40) -> None:
        self.queue = QueueProbe(sublists, wanted, limit)
        self.accounts = range(len(sublists))
        self.told: dict[Key, Counts] = {}
        self.lost = False
        """True if changes were lost and the link has not begun anew since."""
        self.unwalked: list[int] = []
        """The accounts whose interest the link has not walked to its end."""
        self.follow()

    def follow(self) -> None:
        """Forget the interest, and have the queue send all of it again."""
        self.told.clear()
        self.lost = False
        for number in self.accounts:
            self.queue.leave(number)
        for number in self.accounts:
            self.queue.follow(number)
        self.unwalked = list(self.accounts)

    def take(self, most: int = 1 << 31) -> bool:
        """Walk through about `most` nodes, or take up to `most` changes; return whether there were any."""
        if walks := bool(self.unwalked):
            done, incomplete, changes = self.queue.walk(self.unwalked[0], most)
            if done:
                del self.unwalked[0]
        else:
            incomplete, changes = self.queue.take(most)
        self.lost = self.lost or incomplete
        if not self.lost:
            for number, subject, group, before, now in changes:
                key = number, subject, group
                assert self.told.get(key, NOTHING) == before != now
                self.told[key] = now
                if now == NOTHING:
                    del self.told[key]
        return walks or bool(changes)

    def settle(self, most_rounds: int) -> None:
        """Take all changes; when some were lost, follow() again, at most `most_rounds` times."""
        for _ in range(most_rounds):
            while self.take():
                pass
            if not self.lost:
                return
            self.follow()
        while self.take():
            pass


def interest(held: list[list[tuple[Handle, int, int]]], wanted: int) -> dict[Key, Counts]:
    """Return the interest of a link, from the subscriptions (handle, kind, weight) of each account."""
    found: dict[Key, Counts] = {}
    for number, subs in enumerate(held):
        for handle, kind, weight in subs:
            key = number, handle.subject, handle.queue
            local, remote, _ = found.get(key, NOTHING)
            members = max(weight, 1) if handle.queue and kind in (ROUTER, GATEWAY, LEAF) else 1
            if kind in (ROUTER, GATEWAY, LEAF):
                remote += members if wanted & WANT_REMOTE else 0
            else:
                local += members if wanted & WANT_LOCAL else 0
            if not handle.queue and not wanted & WANT_NUMBERS:
                local, remote = min(local, 1), min(remote, 1)
            found[key] = local, remote, 0
    return {key: counts for key, counts in found.items() if counts != NOTHING}


def sizes(known: dict[Key, Counts]) -> int:
    """Return a number of bytes that suffices for the changes that announce this interest."""
    return len(known) * ENTRY


def main() -> None:
    """Let each allocation of a queue fail once; print their number. Runs in a process of its own."""
    failing = here(2)
    failed = 0
    where = "begin"
    while where:
        sublists = [Sublist()]
        held: list[list[tuple[Handle, int, int]]] = [[]]
        link = Link(sublists, WANT_LOCAL)
        for n in range(40):
            held[0].append((sublists[0].subscribe(b"before.%d" % n), 0, 0))
        link.settle(1)
        old = [sublists[0].subscribe(b"a"), sublists[0].subscribe(b"b", b"g")]
        failing.fail_next(Call.MEMORY)
        # Only the link allocates: nobody subscribes meanwhile.
        link.follow()
        while link.unwalked:
            link.take(64)
        sublists[0].unsubscribe(old.pop())
        where = failing.stop()
        failed += bool(where)
        held[0] += [(handle, 0, 0) for handle in old]
        link.settle(2)
        assert not link.lost
        assert link.told == interest(held, WANT_LOCAL), (where, link.told)
    print(failed)


if __name__ == "__main__":
    main()
