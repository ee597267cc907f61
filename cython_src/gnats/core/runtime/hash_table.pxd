"""Hash tables whose entries are chained in buckets.

Each table knows its own keys and looks them up itself; the code that all tables share is here. A table begins with
`slots`, `mask` and `n`, an entry with `next` and `hash`: as_chains and as_chained check that at compile time. Memory
behind such a pointer may be of any type (may_alias), so code may access it both as its own type and as this one.
"""
from libc.stdint cimport uint32_t

from gnats.includes.layout cimport static_assert

cdef extern from * nogil:
    """
    #include <stddef.h>
    #include <stdint.h>
    typedef struct gnats_chained gnats_chained;
    typedef gnats_chained *gnats_chain_link __attribute__((__may_alias__));
    struct gnats_chained {
        gnats_chain_link next;
        uint32_t hash;
    } __attribute__((__may_alias__));
    typedef struct {
        gnats_chain_link *slots;
        uint32_t mask;
        uint32_t n;
    } __attribute__((__may_alias__)) gnats_chains;
    #define gnats_same_place(p, type, name) \\
        (offsetof(__typeof__(*(p)), name) == offsetof(type, name) && sizeof((p)->name) == sizeof(((type *)0)->name))
    #define gnats_as_chained(e) (gnats_static_assert( \\
        gnats_same_place(e, gnats_chained, next) && gnats_same_place(e, gnats_chained, hash)), (gnats_chained *)(e))
    #define gnats_as_chains(t) (gnats_static_assert( \\
        gnats_same_place(t, gnats_chains, slots) && gnats_same_place(t, gnats_chains, mask) \\
        && gnats_same_place(t, gnats_chains, n)), (gnats_chains *)(t))
    """
    ctypedef struct Chained "gnats_chained"
    ctypedef Chained *Link "gnats_chain_link"  # number of buckets - 1
    ctypedef struct Chained "gnats_chained":
        Link next            # in its bucket
        uint32_t hash
    ctypedef struct Chains "gnats_chains":
        Link *slots          # NULL before the first entry
        uint32_t mask        # slots less one
        uint32_t n           # entries; atomic, one writer
    Chained *as_chained "gnats_as_chained"(const void *entry)
    Chains *as_chains "gnats_as_chains"(const void *table)


# Add an entry; False when out of memory. `first`: the number of buckets to begin with, a power of two.
cdef bint chains_add(Chains *t, Chained *e, uint32_t first) noexcept nogil
# Remove an entry without freeing it; the number of buckets shrinks when most are empty. False when it is not there.
cdef bint chains_remove(Chains *t, Chained *e) noexcept nogil
# Free the buckets; the entries are the caller's.
cdef void chains_clear(Chains *t) noexcept nogil
