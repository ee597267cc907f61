"""Reuse of large buffers; see spare.pxd."""
from libc.stddef cimport size_t
from libc.stdlib cimport free, malloc
from libc.string cimport memmove
from posix.mman cimport (
    MAP_ANONYMOUS,
    MAP_FAILED,
    MAP_NORESERVE,
    MAP_PRIVATE,
    PROT_READ,
    PROT_WRITE,
    madvise,
    mmap,
    munmap,
)

from gnats.includes.pthread cimport pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock

cdef extern from "<sys/mman.h>" nogil:
    enum:
        MADV_HUGEPAGE

cdef enum:
    HUGE_PAGE = 2 << 20


cdef struct Spare:
    void *at
    size_t size


cdef pthread_mutex_t lock
cdef Spare[KEPT] kept
cdef int n_kept = 0
cdef int scanners = 0

pthread_mutex_init(&lock, NULL)


cdef void spare_enter() noexcept nogil:
    global scanners
    pthread_mutex_lock(&lock)
    scanners += 1
    pthread_mutex_unlock(&lock)


cdef void spare_leave() noexcept nogil:
    global scanners, n_kept
    pthread_mutex_lock(&lock)
    scanners -= 1
    while scanners == 0 and n_kept:
        n_kept -= 1
        munmap(kept[n_kept].at, kept[n_kept].size)
    pthread_mutex_unlock(&lock)


cdef void *spare_take(size_t *size) noexcept nogil:
    global n_kept
    cdef void *at = NULL
    cdef int i
    if size[0] < LARGE:
        return malloc(size[0])
    size[0] = (size[0] + HUGE_PAGE - 1) & ~<size_t> (HUGE_PAGE - 1)
    pthread_mutex_lock(&lock)
    for i in range(n_kept):
        if kept[i].size == size[0]:
            at = kept[i].at
            n_kept -= 1
            memmove(&kept[i], &kept[i + 1], (n_kept - i) * sizeof(Spare))
            break
    pthread_mutex_unlock(&lock)
    if at != NULL:
        return at
    at = mmap(NULL, size[0], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if at == MAP_FAILED:
        return NULL
    madvise(at, size[0], MADV_HUGEPAGE)     # may fail: huge pages are only faster
    return at


cdef void spare_give(void *at, size_t size) noexcept nogil:
    global n_kept
    cdef Spare gone
    if size < LARGE:
        free(at)
        return
    gone.at = at
    gone.size = size
    pthread_mutex_lock(&lock)
    if scanners:
        if n_kept < KEPT:
            n_kept += 1
            gone.at = NULL
        else:
            # free the oldest: it may have a size that no scanner asks for any more
            gone = kept[n_kept - 1]
        memmove(&kept[1], &kept[0], (n_kept - 1) * sizeof(Spare))
        kept[0].at = at
        kept[0].size = size
    pthread_mutex_unlock(&lock)
    if gone.at != NULL:
        munmap(gone.at, gone.size)
