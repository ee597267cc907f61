"""Find overlapping subjects (stream.go), of a stream or of all streams of an account, however many there are.

The results are those of comparing each subject with each, usually in time linear in their number. Very many
subjects with wildcards in the same places take longer: threads compare them, and stop() ends that.
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
"""From this number of subjects on, a thread compares them."""


class Overlaps:
    """The comparisons of one server."""

    def __init__(self) -> None:
        self._tries: weakref.WeakSet[SubjectTrie] = weakref.WeakSet()
        self._stopped = False

    def trie(self, subjects: Iterable[str] = ()) -> SubjectTrie:
        """Return a set of subjects to compare."""
        trie = SubjectTrie(subjects)
        self._tries.add(trie)
        if self._stopped:
            trie.stop()
        return trie

    def stop(self) -> None:
        """Make comparisons in threads end with gnats.core.subjects.subjecttrie.Stopped."""
        self._stopped = True
        for trie in list(self._tries):
            trie.stop()

    def check(self) -> None:
        """Raise Stopped after stop(). Long loops call this now and then."""
        if self._stopped:
            raise Stopped

    def first_collision(self, subjects: Sequence[str]) -> tuple[int, int] | None:
        """Return (i, j): the first subject that collides with a later one, and the first such later one."""
        trie = self.trie(subjects)
        return trie.first_collision(subjects) if trie.has_collision() else None

    def has_collision(self, subjects: Sequence[str]) -> bool:
        """Whether a literal subject exists that two of the subjects match."""
        return self.trie(subjects).has_collision()

    def has_subset(self, subjects: Sequence[str]) -> bool:
        """Whether one of the subjects matches everything that another one matches."""
        return self.trie(subjects).has_subset()


def subject_count(config: StreamConfig) -> int:
    """Return the number of subjects to compare in a configuration, with those of its sources."""
    sources = [config.mirror, *config.sources]
    return len(config.subjects) + sum(1 + len(each.subject_transforms) for each in sources if each)


def first_invalid(subjects: Sequence[str]) -> int:
    """Return the index of the first invalid subject, or the number of subjects."""
    return next((at for at, subject in enumerate(subjects) if not valid_subject(subject)), len(subjects))
