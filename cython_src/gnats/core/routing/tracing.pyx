"""Traces of messages whose headers ask for them; see tracing.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stddef cimport size_t
from libc.stdlib cimport malloc
from libc.string cimport memchr, memcpy, memset, strlen

from gnats.core.accounts.account cimport Account, TraceDest, account_trace_dest
from gnats.core.accounts.denials cimport refuse_publish
from gnats.core.accounts.guard cimport may_publish
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.headers cimport LINE_END, VERSION_TEXT, begin_header_without, header_line_end
from gnats.core.messages.message cimport Message, message_set_data
from gnats.core.messages.msgtrace cimport MsgTrace, TraceHead, trace_free, trace_ingress, trace_new
from gnats.core.messages.reserved cimport is_gateway_reply, is_raft_subject
from gnats.core.net.log_records cimport LOG_PUBLISH_VIOLATION, LOG_TRACE_BAD_DESTINATION, LOG_TRACE_ORIGIN
from gnats.core.net.pollstate cimport hand_over_first, poller_random
from gnats.core.routing.charges cimport charged_account
from gnats.core.runtime.inbox cimport EV_MSG_TRACE, Event
from gnats.core.runtime.const cimport MAX_CONTROL_LINE_SIZE
from gnats.core.runtime.kinds cimport CLIENT, GATEWAY, LEAF, ROUTER
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.subject cimport is_valid_publish_subject
from gnats.includes.text cimport goes_on_from_text, is_text, put, put_text, starts_with_text

cdef extern from "<strings.h>" nogil:
    int strncasecmp(const char *a, const char *b, size_t n)

cdef extern from * nogil:
    """
    #define GNATS_TRACE_DEST "Nats-Trace-Dest"
    #define GNATS_TRACE_PARENT "traceparent"
    #define GNATS_TRACE_DISABLED "trace disabled"
    #define GNATS_TRACE_HOP "Nats-Trace-Hop"
    """
    const char *HOP "GNATS_TRACE_HOP"
    const char *DEST "GNATS_TRACE_DEST"
    const char *PARENT "GNATS_TRACE_PARENT"
    const char *DISABLED "GNATS_TRACE_DISABLED"

cdef enum:
    ALLOWANCE = 64    # bytes of a new header besides its lines


# Fields of a header about tracing; n is 0 for one that it does not have.
cdef struct Asked:
    Slice dest
    Slice only
    Slice origin
    Slice hop
    bint parent       # a sampled traceparent


cdef bint may_be_traced(Subscriber publisher, const Message *m) noexcept nogil:
    cdef const char *p = m.data + strlen(VERSION_TEXT)
    cdef const char *end = m.data + m.hdr
    cdef bint external
    if publisher.kind not in (CLIENT, ROUTER, GATEWAY, LEAF) or m.hdr <= strlen(VERSION_TEXT) + strlen(DEST):
        return False
    external = account_trace_dest(<Account> m.account) != NULL
    while <size_t> (end - p) > strlen(PARENT):
        if p[0] == c'N':
            if goes_on_from_text(p, end - p, DEST):
                return True
        elif external and (p[0] | 32) == c't' and strncasecmp(p, PARENT, strlen(PARENT)) == 0:
            return True
        p = <const char *> memchr(p, c'\n', end - p)
        if p == NULL:
            break
        p += 1
    return False


cdef TraceOutcome init_msg_trace(Subscriber publisher, Message *m, bint *disable) noexcept nogil:
    cdef Asked asked
    cdef Slice dest
    cdef const TraceDest *own
    cdef bint external, only
    if not read_header(m.data, m.hdr, &asked):
        return TRACE_NOT
    external = asked.dest.n == 0
    only = not external and is_on(&asked.only)
    if asked.origin.n:
        publisher.log(LOG_TRACE_ORIGIN, 0, asked.origin.p, asked.origin.n)
        disable[0] = not only
        return TRACE_SKIP if only else TRACE_NOT
    dest = asked.dest
    if external:
        own = account_trace_dest(<Account> m.account)
        if own == NULL:
            return TRACE_NOT
        if publisher.kind == CLIENT and own.sampling < 100 and poller_random(m.ps) % 100 > own.sampling:
            disable[0] = True
            return TRACE_NOT
        dest.p = <char *> own.data
        dest.n = own.n
    # A longer one would be too long for the lines of other servers.
    if dest.n > MAX_CONTROL_LINE_SIZE or not is_valid_publish_subject(dest.p, dest.n):
        publisher.log(LOG_TRACE_BAD_DESTINATION, 0, dest.p, dest.n)
        return TRACE_SKIP if only else TRACE_NOT
    if is_reserved(&dest) or (
        publisher.kind != LEAF   # whose guard says what it is sent
        and publisher.guard.permissions != NULL and not may_publish(&publisher.guard, m.ps, &dest)
    ):
        if publisher.kind == CLIENT:
            refuse_publish(publisher, &dest)
        else:
            publisher.log(LOG_PUBLISH_VIOLATION, 0, dest.p, dest.n)
        return TRACE_SKIP
    m.trace = trace_new(m.data, m.hdr, &dest, m.n)
    if m.trace == NULL:
        return TRACE_SKIP if only else TRACE_NOT
    m.trace.only = only
    m.trace_dest = dest   # in the header, or the account's, which lives as long as the batch
    if publisher.kind != CLIENT:
        m.trace.hop = asked.hop
    trace_ingress(m.trace, publisher.kind, publisher.cid, &m.subject, &(<Account> m.account).info_name)
    return TRACE_ON


cdef void send_msg_trace(Subscriber publisher, const Message *m) noexcept nogil:
    cdef MsgTrace *t = m.trace
    cdef Event *ev = NULL
    if not t.failed:
        ev = publisher.inbox.new_event(EV_MSG_TRACE, <void *> publisher, &publisher.source, t.n)
    if ev != NULL:
        (<TraceHead *> t.data).hops = t.hops
        memcpy(ev.data, t.data, t.n)
        hand_over_first(publisher.ps)
        publisher.inbox.post_caused(ev, &publisher.source, charged_account(m))
    trace_free(t)


cdef inline bint is_reserved(const Slice *s) noexcept nogil:
    return is_gateway_reply(s) or is_raft_subject(s)


cdef inline bint is_text_in_any_case(const Slice *s, const char *text) noexcept nogil:
    return s.n == strlen(text) and strncasecmp(s.p, text, strlen(text)) == 0


cdef inline bint is_on(const Slice *s) noexcept nogil:
    return (
        (s.n == 1 and s.p[0] == c'1') or is_text_in_any_case(s, b"true") or is_text_in_any_case(s, b"on"))


cdef inline bint is_blank(char c) noexcept nogil:
    return c == c' ' or c == c'\t'


cdef inline int hex_digit(char c) noexcept nogil:
    if c'0' <= c <= c'9':
        return c - c'0'
    c |= 32
    return c - c'a' + 10 if c'a' <= c <= c'f' else -1


cdef bint is_sampled(const Slice *value) noexcept nogil:
    """Return whether the last of a traceparent's four fields, a signed byte in hex, has its lowest bit set."""
    cdef size_t i
    cdef int dashes = 0, high, low
    for i in range(value.n):
        dashes += value.p[i] == c'-'
    if dashes != 3 or value.n < 3 or value.p[value.n - 3] != c'-':
        return False
    low = hex_digit(value.p[value.n - 1])
    if value.p[value.n - 2] == c'+' or value.p[value.n - 2] == c'-':
        return low >= 0 and low & 1
    high = hex_digit(value.p[value.n - 2])
    return 0 <= high < 8 and low >= 0 and low & 1


cdef bint next_field(const char **at, const char *end, Slice *key, Slice *value) noexcept nogil:
    """Read the field at `at`, and move `at` behind it. False: there is no other.

    As nats-server does for traces: the key is all before the next colon, the value all behind it up to CR LF, without
    blanks around it.
    """
    cdef const char *p = at[0]
    cdef const char *colon = <const char *> memchr(p, c':', end - p) if p < end else NULL
    if colon == NULL:
        return False
    key.p = <char *> p
    key.n = colon - p
    p = colon + 1
    while p < end and is_blank(p[0]):
        p += 1
    value.p = <char *> p
    p += header_line_end(p, end - p, 0)
    if p == end:
        return False
    at[0] = p + LINE_END
    while p > value.p and is_blank((p - 1)[0]):
        p -= 1
    value.n = p - value.p
    return True


cdef bint read_header(const char *header, size_t n, Asked *asked) noexcept nogil:
    """Return whether a header asks for a trace; keep the first value of each field that matters."""
    cdef const char *p = header + strlen(VERSION_TEXT)
    cdef Slice key, value
    cdef Slice *known
    memset(asked, 0, sizeof(Asked))
    if not starts_with_text(header, n, VERSION_TEXT):
        return False
    while next_field(&p, header + n, &key, &value):
        if key.n == 0 or value.n == 0:
            continue
        known = NULL
        if is_text(key.p, key.n, DEST):
            if asked.dest.n == 0 and is_text(value.p, value.n, DISABLED):
                return False
            known = &asked.dest
        elif is_text(key.p, key.n, b"Nats-Trace-Only"):
            known = &asked.only
        elif is_text(key.p, key.n, b"Nats-Trace-Origin-Account"):
            known = &asked.origin
        elif is_text(key.p, key.n, HOP):
            known = &asked.hop
        elif is_text_in_any_case(&key, PARENT):
            asked.parent = asked.parent or is_sampled(&value)
        if known != NULL and known.n == 0:
            known[0] = value
    return asked.dest.n != 0 or asked.parent


def fields(bytes header not None) -> list:
    """Return the fields of a header block that have a value, in order, as traces show them.

    Keys and values alternate: a pair for each field would have the garbage collector look at all of them.
    """
    cdef Slice key, value
    cdef const char *start = PyBytes_AS_STRING(header)
    cdef const char *p = start + strlen(VERSION_TEXT)
    cdef list found = []
    if starts_with_text(start, len(header), VERSION_TEXT):
        while next_field(&p, start + len(header), &key, &value):
            if key.n and value.n:
                found.append(key.p[:key.n])
                found.append(value.p[:value.n])
    return found


cdef char *set_trace_dest(Message *m, const Slice *value, char *sizes) noexcept nogil:
    cdef Slice disabled
    if value == NULL:
        disabled.p = <char *> DISABLED
        disabled.n = strlen(DISABLED)
        value = &disabled
    return replace_header(m, DEST, value, sizes)


cdef char *set_trace_hop(Message *m, const Slice *value, char *sizes) noexcept nogil:
    return replace_header(m, HOP, value, sizes)


cdef char *replace_header(Message *m, const char *name, const Slice *value, char *sizes) noexcept nogil:
    cdef size_t hdr
    cdef char *p
    cdef char *out = <char *> malloc(m.n + value.n + ALLOWANCE)
    if out == NULL:
        return NULL
    p = put_text(begin_header_without(out, m.data, m.hdr, name, strlen(name)), name)
    p = put(put_text(p, b": "), value.p, value.n)
    p = put_text(p, b"\r\n\r\n")
    hdr = p - out
    p = put(p, m.data + m.hdr, m.n - m.hdr)
    message_set_data(m, out, hdr, p - out, sizes)
    return out
