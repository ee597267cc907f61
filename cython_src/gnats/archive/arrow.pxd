"""Columns of messages in Arrow's memory layout, and their export (the Arrow C data interface).

One thread fills a batch, without the GIL. The batch owns its buffers until they are exported. Then the importer owns
them: its call of `release`, from any thread, frees them or keeps the large ones for other batches (archive.spare).
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
    ROW_SIZE = 48       # bytes that a message counts in Batch.bytes beside its subject, headers and payload


# Set the limits of a zeroed batch.
cdef void batch_init(Batch *b, uint32_t most_rows, size_t most_bytes) noexcept nogil
cdef void batch_free(Batch *b) noexcept nogil
# Whether the text of a subject and headers of these sizes might not fit into their columns.
cdef bint batch_text_full(const Batch *b, size_t subject_n, size_t hdr_n) noexcept nogil
# Add a message. 0; BATCH_FULL: it was not added, export the batch first; BATCH_NO_MEMORY.
cdef int batch_add(
    Batch *b, uint64_t seq, int64_t ts, uint32_t block, const char *subject, size_t subject_n,
    const char *hdr, size_t hdr_n, const char *msg, size_t msg_n,
) noexcept nogil
# Export the messages as a struct array and empty the batch. 0 or BATCH_NO_MEMORY.
cdef int batch_export(Batch *b, ArrowArray *out) noexcept nogil
# batch_export() into a PyCapsule "arrow_array". Raises MemoryError.
cdef object batch_capsule(Batch *b)
