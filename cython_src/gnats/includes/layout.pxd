"""What the compiler knows of a struct, and what it is to check: sizes are said once and everything else follows."""
from libc.stddef cimport size_t

cdef extern from * nogil:
    """
    #include <stddef.h>
    /* Nothing at run time; a build that ends with a bit-field of negative width when it does not hold. */
    #define gnats_static_assert(holds) ((void)sizeof(struct { int does_not_hold : (holds) ? 1 : -1; }))
    #define gnats_before_data(p) offsetof(__typeof__(*(p)), data)
    """
    void static_assert "gnats_static_assert"(bint holds)
    # Bytes of the struct that p points to before its last member, `data`; p may be NULL. A constant.
    size_t before_data "gnats_before_data"(const void *p)
