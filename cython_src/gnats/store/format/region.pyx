"""Mappings whose unreadable pages do not end the process; see region.pxd.

Lock: one mutex guards the table of watched ranges (a leaf). The signal handler takes no lock.
"""
from libc.signal cimport SIGBUS
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset
from posix.mman cimport (
    MAP_ANONYMOUS,
    MAP_FAILED,
    MAP_FIXED,
    MAP_NORESERVE,
    MAP_PRIVATE,
    MAP_SHARED,
    PROT_READ,
    PROT_WRITE,
    mmap,
    munmap,
)
from posix.unistd cimport _SC_PAGESIZE, sysconf

from gnats.core.runtime.quiesce cimport qs_retire_with
from gnats.includes.atomics cimport (
    add64,
    load64,
    load64_acquire,
    load_ptr_acquire,
    store64,
    store64_release,
    store_ptr_release,
)
from gnats.includes.pthread cimport pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    ctypedef struct siginfo_t:
        void *si_addr
        int si_code
    cdef struct sigaction_s "sigaction":
        void (*sa_handler)(int) noexcept nogil
        void (*sa_sigaction)(int, siginfo_t *, void *) noexcept nogil
        sigset_t sa_mask
        int sa_flags
    int sigaction_set "sigaction"(int signum, const sigaction_s *act, sigaction_s *old)
    int sigemptyset(sigset_t *set)
    enum:
        SA_SIGINFO, SA_ONSTACK, SA_NODEFER

cdef enum:
    PAGES_OF_WATCHES = 512


cdef struct WatchPage:
    WatchPage *next     # atomic; pages are only ever added
    Watch at[PAGES_OF_WATCHES]


cdef pthread_mutex_t lock
cdef WatchPage *pages = NULL
cdef Watch *free_watches = NULL
cdef uint64_t faults = 0
cdef sigaction_s before
cdef size_t page_size = <size_t> sysconf(_SC_PAGESIZE)

pthread_mutex_init(&lock, NULL)


cdef void on_sigbus(int signum, siginfo_t *info, void *context) noexcept nogil:
    cdef uint64_t at = <uint64_t> <size_t> info.si_addr, start
    cdef WatchPage *page = <WatchPage *> load_ptr_acquire(<void **> &pages)
    cdef Watch *w
    cdef int i
    while page != NULL and info.si_code > 0:
        for i in range(PAGES_OF_WATCHES):
            w = &page.at[i]
            start = load64_acquire(&w.start)
            if start == 0 or at < start or at >= load64(&w.end):
                continue
            if mmap(<void *> <size_t> (at & ~(page_size - 1)), page_size, PROT_READ,
                    MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED:
                break
            add64(&w.hits, 1)
            add64(&faults, 1)
            return
        page = <WatchPage *> load_ptr_acquire(<void **> &page.next)
    # Not a page of a region: put the previous handler back. The access that failed is repeated and reaches it.
    sigaction_set(SIGBUS, &before, NULL)


cdef void install() noexcept nogil:
    global before
    # Checked for each mapping: other code (faulthandler, for one) may have replaced the handler since.
    cdef sigaction_s act, now
    sigaction_set(SIGBUS, NULL, &now)
    if now.sa_flags & SA_SIGINFO and now.sa_sigaction == on_sigbus:
        return
    before = now
    memset(&act, 0, sizeof(act))
    act.sa_sigaction = on_sigbus
    act.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER
    sigemptyset(&act.sa_mask)
    sigaction_set(SIGBUS, &act, NULL)


cdef Watch *watch(uint64_t start, uint64_t end) noexcept nogil:
    global pages, free_watches
    cdef WatchPage *page
    cdef Watch *w
    cdef int i
    pthread_mutex_lock(&lock)
    install()
    if free_watches == NULL:
        page = <WatchPage *> calloc(1, sizeof(WatchPage))
        if page == NULL:
            pthread_mutex_unlock(&lock)
            return NULL
        for i in range(PAGES_OF_WATCHES):
            page.at[i].next_free = free_watches
            free_watches = &page.at[i]
        page.next = pages
        store_ptr_release(<void **> &pages, page)
    w = free_watches
    free_watches = w.next_free
    store64(&w.hits, 0)
    store64(&w.end, end)
    store64_release(&w.start, start)
    pthread_mutex_unlock(&lock)
    return w


cdef void unwatch(Watch *w) noexcept nogil:
    global free_watches
    pthread_mutex_lock(&lock)
    store64_release(&w.start, 0)
    w.next_free = free_watches
    free_watches = w
    pthread_mutex_unlock(&lock)


cdef inline size_t whole_pages(size_t size) noexcept nogil:
    return (max(size, 1) + page_size - 1) & ~(page_size - 1)


cdef Region *region_of(int fd, size_t size) noexcept nogil:
    cdef Region *r = <Region *> malloc(sizeof(Region))
    if r == NULL:
        return NULL
    r.size = whole_pages(size)
    r.watch = NULL
    if fd < 0:
        r.base = <char *> mmap(
            NULL, r.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    else:
        r.base = <char *> mmap(NULL, r.size, PROT_READ, MAP_SHARED, fd, 0)
    if r.base == MAP_FAILED:
        free(r)
        return NULL
    if fd >= 0:
        r.watch = watch(<uint64_t> <size_t> r.base, <uint64_t> <size_t> (r.base + r.size))
        if r.watch == NULL:
            region_free(r)
            return NULL
    return r


cdef Region *region_map(int fd, size_t size) noexcept nogil:
    return region_of(fd, size)


cdef Region *region_memory(size_t size) noexcept nogil:
    return region_of(-1, size)


cdef uint64_t region_hits(const Region *r) noexcept nogil:
    return load64(&(<Region *> r).watch.hits) if r.watch != NULL else 0


cdef void region_free(Region *r) noexcept nogil:
    if r.watch != NULL:
        unwatch(r.watch)
    munmap(r.base, r.size)
    free(r)


cdef void release(void *block, size_t size) noexcept nogil:
    region_free(<Region *> block)


cdef void region_retire(Region *r) noexcept nogil:
    if r != NULL:
        qs_retire_with(r, r.size, release)


cdef uint64_t region_faults() noexcept nogil:
    return load64(&faults)


def faults_seen() -> int:
    """Return the number of pages of store files that could not be read since the process began."""
    return region_faults()
