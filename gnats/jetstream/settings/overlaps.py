"""Subjects that must not overlap (stream.go), of a stream and of all streams of an account, however many.

What is found is what comparing each with each finds, in the time that it takes to look at each. Only
wildcards in the same places of very many subjects take longer: threads do that, and stop() ends it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gnats.core.subjects.subject import valid_subject
from gnats.core.subjects.subjecttrie import Stopped, SubjectTrie

if TYPE_CHECKING:
    from gnats.jetstream.settings.config import StreamConfig

MANY = 256
"""Subjects from which on a thread looks at them."""


class Overlaps:
    """Makes the comparisons of one server."""

    def __init__(self) -> None:
        self._tries: weakref.WeakSet[SubjectTrie] = weakref.WeakSet()
        self._stopped = False

    def trie(self, subjects: Iterable[str] = ()) -> SubjectTrie:
        """A set of subjects to compare."""
        trie = SubjectTrie(subjects)
        self._tries.add(trie)
        if self._stopped:
            trie.stop()
        return trie

    def stop(self) -> None:
        """End what is compared in threads; they raise gnats.core.subjects.subjecttrie.Stopped."""
        self._stopped = True
        for trie in list(self._tries):
            trie.stop()

    def check(self) -> None:
        """Raise Stopped after stop(): now and then, in what takes its time."""
        if self._stopped:
            raise Stopped

    def first_collision(self, subjects: Sequence[str]) -> tuple[int, int] | None:
        """The places of the first subject that collides with a later one, and of the first of those."""
        trie = self.trie(subjects)
        return trie.first_collision(subjects) if trie.has_collision() else None

    def has_collision(self, subjects: Sequence[str]) -> bool:
        """Is there a literal subject that two of them match?"""
        return self.trie(subjects).has_collision()

    def has_subset(self, subjects: Sequence[str]) -> bool:
        """Does one of them match all that another one matches?"""
        return self.trie(subjects).has_subset()


def subject_count(config: StreamConfig) -> int:
    """How many subjects there are to look at in a configuration."""
    sources = [config.mirror, *config.sources]
    return len(config.subjects) + sum(1 + len(each.subject_transforms) for each in sources if each)


def first_invalid(subjects: Sequence[str]) -> int:
    """The place of the first subject that is not valid, or how many there are."""
    return next((at for at, subject in enumerate(subjects) if not valid_subject(subject)), len(subjects))
