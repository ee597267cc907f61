"""Units of time in ns. They are int64_t, so that products of them do not overflow an int."""
from libc.stdint cimport int64_t

cdef extern from * nogil:
    """
    #include <stdint.h>
    #define GNATS_MILLISECOND INT64_C(1000000)
    #define GNATS_SECOND (1000 * GNATS_MILLISECOND)
    """
    const int64_t MILLISECOND "GNATS_MILLISECOND"
    const int64_t SECOND "GNATS_SECOND"
