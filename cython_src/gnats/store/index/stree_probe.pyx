"""A subject tree of numbers, for tests. (A store's tree has SimpleState values.)"""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc

from gnats.store.index.filter cimport match_filters, sort_filters
from gnats.store.index.stree cimport (
    MAX_TREE_SUBJECT,
    STree,
    STreeFilter,
    STreeIter,
    stree_clear,
    stree_delete,
    stree_end,
    stree_find,
    stree_init,
    stree_insert,
    stree_iter,
    stree_next,
)


cdef STreeFilter *sorted_filters(list filters) except NULL:
    """Make an array, which names the bytes of the list's items."""
    cdef STreeFilter *at = <STreeFilter *> malloc((len(filters) + 1) * sizeof(STreeFilter))
    if at == NULL:
        raise MemoryError
    for i in range(len(filters)):
        at[i].at = PyBytes_AS_STRING(filters[i])
        at[i].n = len(filters[i])
    sort_filters(at, len(filters))
    return at


def any_matches(list filters not None, bytes subject not None) -> bool:
    """Return whether one of the filters matches a literal subject."""
    cdef STreeFilter *at = sorted_filters(filters)
    cdef bint matches = match_filters(at, 0, len(filters), 0, PyBytes_AS_STRING(subject), len(subject))
    free(at)
    return matches


cdef class SubjectTree:
    """A map from subjects to numbers below 2**64."""
    cdef STree tree

    def __cinit__(self):
        stree_init(&self.tree, sizeof(uint64_t))

    def __dealloc__(self):
        stree_clear(&self.tree)

    def __len__(self) -> int:
        return self.tree.size

    def insert(self, bytes subject not None, uint64_t value) -> int | None:
        """Set the value of a subject; return the value that it had, or None."""
        cdef bint was_there
        cdef uint64_t *at = <uint64_t *> stree_insert(
            &self.tree, PyBytes_AS_STRING(subject), len(subject), &was_there)
        if at == NULL:
            if 0 < len(subject) <= MAX_TREE_SUBJECT:
                raise MemoryError
            raise ValueError(f"a subject of {len(subject)} bytes")
        before = at[0] if was_there else None
        at[0] = value
        return before

    def find(self, bytes subject not None) -> int | None:
        cdef uint64_t *at = <uint64_t *> stree_find(&self.tree, PyBytes_AS_STRING(subject), len(subject))
        return at[0] if at != NULL else None

    def delete(self, bytes subject not None) -> int | None:
        """Delete a subject; return the value that it had, or None."""
        cdef uint64_t value
        if stree_delete(&self.tree, PyBytes_AS_STRING(subject), len(subject), &value):
            return value
        return None

    def match(self, list filters not None) -> list[tuple[bytes, int]]:
        """Return (subject, value) of the subjects that match one of the filters (none: all), in order."""
        cdef STreeIter it
        cdef STreeFilter *at = sorted_filters(filters)
        matched = []
        try:
            stree_iter(&it, &self.tree, at, len(filters))
            while stree_next(&it):
                matched.append((it.subject[:it.subject_n], (<uint64_t *> it.value)[0]))
            failed = it.failed
            stree_end(&it)
        finally:
            free(at)
        if failed:
            raise MemoryError
        return matched

    def count(self, bytes filter not None) -> int:
        """Return the number of subjects that match a filter."""
        cdef STreeIter it
        cdef STreeFilter at
        cdef uint64_t n = 0
        at.at = PyBytes_AS_STRING(filter)
        at.n = len(filter)
        with nogil:
            stree_iter(&it, &self.tree, &at, 1)
            while stree_next(&it):
                n += 1
            stree_end(&it)
        return n

    def clear(self) -> None:
        stree_clear(&self.tree)

    @property
    def memory(self) -> int:
        """Bytes allocated by the tree."""
        return self.tree.arena.bytes

    @property
    def subject_bytes(self) -> int:
        """Sum of the lengths of all subjects, in bytes."""
        return self.tree.subject_bytes
