"""Columns of messages in Arrow's memory layout, and how they are given away (the Arrow C data interface).

A batch is filled by one thread, without the GIL. Its buffers belong to it until they are exported; from then on they
belong to whoever imported them, and are freed, or filled again, when that lets go of them.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.archive.columns cimport Batch

cdef extern from *:
    """
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    struct ArrowArray {
        int64_t length;
        int64_t null_count;
        int64_t offset;
        int64_t n_buffers;
        int64_t n_children;
        const void **buffers;
        struct ArrowArray **children;
        struct ArrowArray *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    #endif
    """
    cdef struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void **buffers
        ArrowArray **children
        ArrowArray *dictionary
        void (*release)(ArrowArray *) noexcept nogil
        void *private_data

cdef enum:
    ROW_SIZE = 48       # what a message takes beside its subject, headers and payload


cdef void batch_init(Batch *b, uint32_t most_rows, size_t most_bytes) noexcept nogil    # of zeroes
cdef void batch_free(Batch *b) noexcept nogil
# Whether the text of a subject and of headers of so many bytes may be more than a column can hold.
cdef bint batch_text_full(const Batch *b, size_t subject_n, size_t hdr_n) noexcept nogil
# A message: 0, BATCH_FULL (it is not in it), or BATCH_NO_MEMORY.
cdef int batch_add(
    Batch *b, uint64_t seq, int64_t ts, uint32_t block, const char *subject, size_t subject_n,
    const char *hdr, size_t hdr_n, const char *msg, size_t msg_n,
) noexcept nogil
# What is in it becomes a struct array, and the batch is empty again: 0 or BATCH_NO_MEMORY.
cdef int batch_export(Batch *b, ArrowArray *out) noexcept nogil
cdef object batch_capsule(Batch *b)      # the same, in a PyCapsule "arrow_array"
