"""The part of an imported stream that a subscription overlaps (addShadowSubscriptions)."""
from libc.stddef cimport size_t

cdef enum:
    NO_OVERLAP = 0
    ALL_OF_IT = 1      # the subscription covers the import
    PART_OF_IT = 2     # the import covers the subscription
    CROSSING = 3       # each matches subjects that the other does not; `common` is the intersection


# Compare a subscription with an import's `to`. For CROSSING, common[0] is malloc'ed. NO_OVERLAP when memory runs out.
cdef int import_overlap(
    const char *subject, size_t n, const char *to, size_t tn, char **common, size_t *common_n) noexcept nogil
