"""The compiler's atomic builtins, by width and by memory order.

Relaxed where only the value matters (counters); acquire and release where a value publishes other memory; seq_cst where
two threads each store one variable and read the other's.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from * nogil:
    """
    #define gnats_load_rlx(p) __atomic_load_n((p), __ATOMIC_RELAXED)
    #define gnats_load_acq(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    #define gnats_load_sc(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
    #define gnats_store_rlx(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
    #define gnats_store_rel(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
    #define gnats_store_sc(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
    #define gnats_add_rlx(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
    #define gnats_add_sc(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
    #define gnats_xchg(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)
    #define gnats_or(p, v) __atomic_fetch_or((p), (v), __ATOMIC_ACQ_REL)
    #define gnats_and(p, v) __atomic_fetch_and((p), (v), __ATOMIC_ACQ_REL)
    #define gnats_bump(p, v) \
        __atomic_store_n((p), __atomic_load_n((p), __ATOMIC_RELAXED) + (v), __ATOMIC_RELAXED)
    #define gnats_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
    #define gnats_likely(x) __builtin_expect(!!(x), 1)
    #define gnats_unlikely(x) __builtin_expect(!!(x), 0)
    """
    uint8_t load8 "gnats_load_rlx"(uint8_t *p)
    uint8_t load8_acquire "gnats_load_acq"(uint8_t *p)
    void store8 "gnats_store_rlx"(uint8_t *p, uint8_t v)
    void store8_release "gnats_store_rel"(uint8_t *p, uint8_t v)
    uint8_t exchange8 "gnats_xchg"(uint8_t *p, uint8_t v)

    uint32_t load32 "gnats_load_rlx"(uint32_t *p)
    uint32_t load32_acquire "gnats_load_acq"(uint32_t *p)
    void store32 "gnats_store_rlx"(uint32_t *p, uint32_t v)
    void store32_release "gnats_store_rel"(uint32_t *p, uint32_t v)
    uint32_t add32 "gnats_add_rlx"(uint32_t *p, uint32_t v)
    uint32_t exchange32 "gnats_xchg"(uint32_t *p, uint32_t v)
    uint32_t or32 "gnats_or"(uint32_t *p, uint32_t v)
    uint32_t and32 "gnats_and"(uint32_t *p, uint32_t v)

    uint64_t load64 "gnats_load_rlx"(uint64_t *p)
    uint64_t load64_acquire "gnats_load_acq"(uint64_t *p)
    uint64_t load64_seq "gnats_load_sc"(uint64_t *p)
    void store64 "gnats_store_rlx"(uint64_t *p, uint64_t v)
    void store64_release "gnats_store_rel"(uint64_t *p, uint64_t v)
    void store64_seq "gnats_store_sc"(uint64_t *p, uint64_t v)
    uint64_t add64 "gnats_add_rlx"(uint64_t *p, uint64_t v)
    uint64_t add64_seq "gnats_add_sc"(uint64_t *p, uint64_t v)
    uint64_t exchange64 "gnats_xchg"(uint64_t *p, uint64_t v)
    uint64_t or64 "gnats_or"(uint64_t *p, uint64_t v)
    uint64_t and64 "gnats_and"(uint64_t *p, uint64_t v)
    # For a counter with one writer and other readers: no locked instruction.
    void bump32 "gnats_bump"(uint32_t *p, uint32_t v)
    void bump64 "gnats_bump"(uint64_t *p, uint64_t v)

    void *load_ptr_acquire "gnats_load_acq"(void **p)
    void store_ptr_release "gnats_store_rel"(void **p, void *v)

    int64_t loadi64 "gnats_load_rlx"(int64_t *p)
    int64_t loadi64_seq "gnats_load_sc"(int64_t *p)
    void storei64 "gnats_store_rlx"(int64_t *p, int64_t v)
    void storei64_seq "gnats_store_sc"(int64_t *p, int64_t v)
    int64_t addi64 "gnats_add_rlx"(int64_t *p, int64_t v)
    int64_t addi64_seq "gnats_add_sc"(int64_t *p, int64_t v)

    void fence "gnats_fence"()
    bint likely "gnats_likely"(bint x)
    bint unlikely "gnats_unlikely"(bint x)
