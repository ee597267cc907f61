"""Measure a store without Python between two messages, in ns of CPU for each (python -m perf.store)."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf

from gnats.bench.sys cimport thread_cpu_ns
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.store.base cimport STORE_OK, StoreMsg
from gnats.store.index.filter cimport Filter, filter_free, filter_make
from gnats.store.store cimport MsgStore
from gnats.store.writing cimport store_msg


def append(
    MsgStore store not None, uint64_t n, bytes payload not None, uint64_t subjects=1, uint32_t batch=64,
) -> float:
    """Store n messages on `subjects` subjects in turn, with a flush after each `batch`; return ns for each."""
    cdef const char *msg = PyBytes_AS_STRING(payload)
    cdef uint32_t size = <uint32_t> PyBytes_GET_SIZE(payload), length
    cdef char subject[48]
    cdef uint64_t i
    cdef int64_t start, took
    cdef int code = STORE_OK
    length = <uint32_t> snprintf(subject, sizeof(subject), "perf.store.0000000000")
    with nogil:
        start = thread_cpu_ns()
        i = 0
        while i < n and code == STORE_OK:
            pthread_mutex_lock(&store.lock)
            while i < n and code == STORE_OK:
                if subjects > 1:
                    length = <uint32_t> snprintf(
                        subject, sizeof(subject), "perf.store.%010llu", <unsigned long long> (i % subjects))
                code = store_msg(
                    store, subject, length, NULL, 0, msg, size, 0, start + <int64_t> i, 0, True, False)
                i += 1
                if i % batch == 0:
                    break
            store.flush()
            pthread_mutex_unlock(&store.lock)
        took = thread_cpu_ns() - start
    store.check(code)
    return took / <double> n


def scan(MsgStore store not None, filters=()) -> tuple[int, float]:
    """Load every message that the filters match, in order; return (number, ns for each)."""
    cdef Filter *f = filter_make(filters)
    cdef StoreMsg msg
    cdef uint64_t seq = 0, n = 0
    cdef int64_t start, took
    with nogil:
        pthread_mutex_lock(&store.lock)
        start = thread_cpu_ns()
        while store.load_next(f, seq, &msg, NULL) == STORE_OK:
            seq = msg.seq + 1
            n += 1
        took = thread_cpu_ns() - start
        pthread_mutex_unlock(&store.lock)
        filter_free(f)
    return n, took / <double> max(n, 1)


def lookup(MsgStore store not None, uint64_t n, uint64_t subjects) -> float:
    """Load the last message of `subjects` subjects in turn, n times; return ns for each."""
    cdef StoreMsg msg
    cdef char subject[48]
    cdef uint32_t length
    cdef uint64_t i
    cdef int64_t start, took
    with nogil:
        pthread_mutex_lock(&store.lock)
        start = thread_cpu_ns()
        for i in range(n):
            length = <uint32_t> snprintf(
                subject, sizeof(subject), "perf.store.%010llu", <unsigned long long> (i * 7919 % subjects))
            store.load_last(subject, length, &msg)
        took = thread_cpu_ns() - start
        pthread_mutex_unlock(&store.lock)
    return took / <double> n
