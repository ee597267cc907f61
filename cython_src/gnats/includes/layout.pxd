"""Compile-time facts and checks of structs: a size is written once, and all else is derived from it or checked."""
from libc.stddef cimport size_t

cdef extern from * nogil:
    """
    #include <stddef.h>
    /* No code at run time; a bit-field of negative width, which does not compile, when it does not hold. */
    #define gnats_static_assert(holds) ((void)sizeof(struct { int does_not_hold : (holds) ? 1 : -1; }))
    #define gnats_before_data(p) offsetof(__typeof__(*(p)), data)
    """
    void static_assert "gnats_static_assert"(bint holds)
    # Bytes of *p before its last member, which must be `data`; p may be NULL. A constant.
    size_t before_data "gnats_before_data"(const void *p)
