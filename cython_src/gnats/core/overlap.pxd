"""What a subscription has in common with an import: which part of an imported stream it is about
(addShadowSubscriptions)."""
from libc.stddef cimport size_t

cdef enum:
    NO_OVERLAP = 0
    ALL_OF_IT = 1      # the subscription takes all that is imported
    PART_OF_IT = 2     # it takes a part: its own subject says which
    CROSSING = 3       # each has what the other has not: `common` is what both have


# `common` is malloc'ed for CROSSING, which becomes NO_OVERLAP when memory runs out.
cdef int import_overlap(
    const char *subject, size_t n, const char *to, size_t tn, char **common, size_t *common_n) noexcept nogil
