"""The arguments of a message that another server sends; see remote_args.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint32_t
from libc.stdlib cimport realloc

from gnats.core.messages.message cimport Message, RemoteArgs
from gnats.core.protocol.words cimport parse_size
from gnats.core.runtime.slice cimport Slice


cdef bint split_args(RemoteArgs *r, char *arg, size_t n) noexcept nogil:
    """Split a line into r.argv, which grows. False: no memory."""
    cdef size_t i
    cdef bint inside = False
    cdef uint32_t cap
    cdef Slice *grown
    r.argc = 0
    for i in range(n):
        if arg[i] == c' ' or arg[i] == c'\t' or arg[i] == c'\r' or arg[i] == c'\n':
            if inside:
                r.argv[r.argc - 1].n = arg + i - r.argv[r.argc - 1].p
                inside = False
        elif not inside:
            if r.argc == r.argv_cap:
                cap = r.argv_cap * 2 if r.argv_cap else 8
                grown = <Slice *> realloc(r.argv, cap * sizeof(Slice))
                if grown == NULL:
                    return False
                r.argv = grown
                r.argv_cap = cap
            r.argv[r.argc].p = arg + i
            r.argc += 1
            inside = True
    if inside:
        r.argv[r.argc - 1].n = arg + n - r.argv[r.argc - 1].p
    return True


cdef int read_remote_msg(
    RemoteArgs *r, const RemoteForm *form, char *arg, size_t n, Message *m, int32_t *size, int32_t *hdr
) noexcept nogil:
    cdef uint32_t at = 0, sizes = 2 if form.header else 1
    cdef Slice none
    cdef char indicator
    none.p = NULL
    none.n = 0
    if not split_args(r, arg, n):
        return REMOTE_NO_MEMORY
    r.origin = r.account = m.reply = m.hdr_text = none
    r.queues = NULL
    r.nqueues = r.all_groups = r.passed = 0
    hdr[0] = -1
    if r.argc < form.origin + form.account + 1 + sizes:
        return REMOTE_BAD_ARGS
    if form.origin:
        r.origin = r.argv[at]
        at += 1
    if form.account:
        r.account = r.argv[at]
        at += 1
    m.subject = r.argv[at]
    m.n_text = r.argv[r.argc - 1]
    size[0] = parse_size(m.n_text.p, m.n_text.n)
    if form.header:
        m.hdr_text = r.argv[r.argc - 2]
        hdr[0] = parse_size(m.hdr_text.p, m.hdr_text.n)
    at += 1
    if r.argc == at + 1 + sizes:
        m.reply = r.argv[at]
    elif r.argc > at + 1 + sizes:
        r.queues = r.argv + at
        indicator = r.argv[at].p[0]
        r.passed = indicator == PASSED_WITH_REPLY or indicator == PASSED
        if r.argv[at].n != 1 or not (r.passed or indicator == WITH_REPLY or indicator == WITHOUT):
            return REMOTE_BAD_INDICATOR
        if indicator == WITH_REPLY or indicator == PASSED_WITH_REPLY:
            at += 1
            m.reply = r.argv[at]
        r.queues = r.argv + at + 1
        r.nqueues = r.argc - sizes - at - 1
    if form.header and hdr[0] < 0:
        return REMOTE_BAD_HEADER_SIZE
    if size[0] < 0:
        return REMOTE_BAD_SIZE
    return REMOTE_HEADER_OVER_SIZE if hdr[0] > size[0] else REMOTE_OK
