"""Shadows of a connection's subscriptions, and measurements of services; see imports.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.accounts.account cimport (
    Account,
    ImportSub,
    StreamImport,
    account_charge,
    import_source,
    import_sub,
    import_to,
    stream_import_release,
    stream_import_stays,
)
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.reserved cimport is_service_reply
from gnats.core.messages.responses cimport Expected, Measured, ServiceExport, expected_header, expected_release
from gnats.core.net.log_records cimport LOG_IMPORT_SUBSCRIPTION
from gnats.core.net.pollstate cimport hand_over_first
from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.runtime.inbox cimport EV_LATENCY, Event
from gnats.core.runtime.quiesce cimport qs_retire
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.overlap cimport ALL_OF_IT, CROSSING, NO_OVERLAP, PART_OF_IT, import_overlap
from gnats.core.subjects.sublist cimport SL_OK, SUB_SHADOW, Subscription, sub_new, sub_queue, sub_sid, sub_subject
from gnats.core.subjects.subtable cimport (
    SOME,
    subtable_add,
    subtable_find,
    subtable_remove,
    subtable_take,
    subtable_take_some,
)
from gnats.core.subjects.transform cimport Transform, transform_apply
from gnats.includes.atomics cimport load8, load64, store8
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock

cdef enum:
    OK = 200           # the status of a request that was answered
    ROOM = 512         # bytes of a subject that fit on the stack


cdef char *transformed(
    const Transform *t, const Slice *subject, uint64_t *rng, char *few, size_t room, size_t *n
) noexcept nogil:
    cdef char *out = few
    cdef size_t size = room
    n[0] = transform_apply(t, subject.p, subject.n, rng, True, out, size)
    while n[0] > size:
        if out != few:
            free(out)
        size = n[0]
        out = <char *> malloc(size)
        if out == NULL:
            return NULL
        n[0] = transform_apply(t, subject.p, subject.n, rng, True, out, size)
    return out


cdef void add_shadows(Subscriber c, Account account, const Subscription *s, bint some) noexcept nogil:
    cdef StreamImport *im
    cdef uint32_t i = 0
    cdef char *common
    cdef size_t n
    cdef int how
    while True:
        # Use one import at a time, with a reference to it: the imports may change meanwhile. CTL_IMPORTS follows then.
        im = NULL
        pthread_mutex_lock(&account.lock)
        while account.streams != NULL and i < account.streams.n and im == NULL:
            im = account.streams.imports[i]
            how = NO_OVERLAP
            if not some or not has_shadow(c, s, im):
                how = import_overlap(sub_subject(s), s.subject_len, import_to(im), im.to_n, &common, &n)
            if how == NO_OVERLAP:
                im = NULL
            else:
                im.refs += 1
            i += 1
        pthread_mutex_unlock(&account.lock)
        if im == NULL:
            return
        if not add_shadow(c, s, im, how, common, n):
            stream_import_release(im)
        free(common)


cdef bint has_shadow(Subscriber c, const Subscription *s, const StreamImport *im) noexcept nogil:
    cdef Subscription *shadow = subtable_find(&c.shadows, sub_sid(s), s.sid_len)
    while shadow != NULL:
        if (
            import_sub(shadow).what == <void *> im and shadow.sid_len == s.sid_len
            and memcmp(sub_sid(shadow), sub_sid(s), s.sid_len) == 0
        ):
            return True
        shadow = shadow.next
    return False


cdef bint add_shadow(
    Subscriber c, const Subscription *s, StreamImport *im, int how, const char *common, size_t n
) noexcept nogil:
    cdef char[ROOM] few
    cdef char *subject = NULL
    cdef Slice wanted
    cdef Subscription *shadow
    wanted.p = <char *> common if how == CROSSING else <char *> sub_subject(s)
    wanted.n = n if how == CROSSING else s.subject_len
    if how != ALL_OF_IT and im.back != NULL:
        subject = transformed(im.back, &wanted, &c.ps.rng, few, ROOM, &wanted.n)
        if subject == NULL:
            return False
        wanted.p = subject
    elif how == ALL_OF_IT or (how == PART_OF_IT and not im.use_published):
        wanted.p = <char *> import_source(im)
        wanted.n = im.source_n
    shadow = sub_new(
        <void *> c, c.kind, wanted.p, wanted.n, sub_queue(s), s.queue_len, sub_sid(s), s.sid_len,
        sizeof(ImportSub))
    if subject != NULL and subject != few:
        free(subject)
    if shadow == NULL:
        return False
    shadow.flags = SUB_SHADOW
    shadow.internal = s.internal
    shadow.qw = s.qw
    import_sub(shadow).what = im
    log_import(c, shadow, (<Account> im.exporter).info_name)
    if not subtable_add(&c.shadows, shadow):
        free(import_sub(shadow))
        return False
    if (<Account> im.exporter).insert(shadow) != SL_OK:
        subtable_remove(&c.shadows, shadow)
        free(import_sub(shadow))
        return False
    return True


cdef void log_import(Subscriber c, const Subscription *shadow, Slice account) noexcept nogil:
    cdef size_t n = shadow.subject_len + 1 + account.n
    cdef char *data
    if not load8(&c.server._debug):
        return
    data = <char *> malloc(n)
    if data == NULL:
        return
    memcpy(data, sub_subject(shadow), shadow.subject_len)
    data[shadow.subject_len] = 0
    memcpy(data + shadow.subject_len + 1, account.p, account.n)
    c.debugf(LOG_IMPORT_SUBSCRIPTION, 0, data, n)
    free(data)


cdef void weigh_shadows(Subscriber c, const Subscription *s, uint32_t weight) noexcept nogil:
    cdef Subscription *shadow = subtable_find(&c.shadows, sub_sid(s), s.sid_len)
    while shadow != NULL:
        if shadow.sid_len == s.sid_len and memcmp(sub_sid(shadow), sub_sid(s), s.sid_len) == 0:
            (<Account> import_sub(shadow).what.exporter).update_remote_qsub(shadow, weight)
        shadow = shadow.next


cdef void drop_shadows(Subscriber c, const Subscription *s) noexcept nogil:
    cdef Subscription *shadow = subtable_find(&c.shadows, sub_sid(s), s.sid_len)
    while shadow != NULL:
        subtable_remove(&c.shadows, shadow)
        close_shadow(shadow)
        shadow = subtable_find(&c.shadows, sub_sid(s), s.sid_len)


cdef void drop_all_shadows(Subscriber c) noexcept nogil:
    close_chain(subtable_take(&c.shadows))


cdef void drop_some_shadows(Subscriber c) noexcept nogil:
    cdef Subscription *some[SOME]
    cdef size_t i, n = subtable_take_some(&c.shadows, &c.leaving_at, some)
    for i in range(n):
        close_shadow(some[i])


cdef void renew_shadows(Subscriber c) noexcept nogil:
    """Remove the shadows of imports that have gone. Keep the others: no message is missed or delivered twice."""
    cdef Subscription *old = subtable_take(&c.shadows)
    cdef Subscription *gone = NULL
    cdef Subscription *s
    cdef uint32_t i
    while old != NULL:
        s = old
        old = old.next
        if not (
            stream_import_stays(<Account> c.account, <StreamImport *> import_sub(s).what)
            and subtable_add(&c.shadows, s)
        ):
            s.next = gone
            gone = s
    if c.subs.n:
        for i in range(c.subs.mask + 1):
            s = c.subs.slots[i]
            while s != NULL:
                add_shadows(c, <Account> c.account, s, True)
                s = s.next
    close_chain(gone)


cdef void forget_requests(Subscriber c, Account account, const Subscription *s) noexcept nogil:
    cdef Expected *lost
    cdef Expected *following
    if load64(&account.nreverse) == 0:
        return
    if s == NULL:
        lost = account.check_for_reverse_entries(NULL, 0)
    elif is_service_reply(sub_subject(s), s.subject_len):
        return
    else:
        lost = account.check_for_reverse_entries(sub_subject(s), s.subject_len)
    while lost != NULL:
        following = lost.newer
        if lost.tracked:
            report_latency(
                c, lost.se, 408, lost.requester, 0, c.ps.now - lost.ts, lost.share, expected_header(lost),
                lost.header_n)
        expected_release(lost)
        lost = following


cdef void report_latency(
    Subscriber c, ServiceExport *se, int status, uint64_t requester, uint64_t responder, int64_t elapsed, bint share,
    const char *header, size_t n
) noexcept nogil:
    cdef Slice none
    none.p = NULL
    none.n = 0
    report_measured(c, se, status, requester, responder, elapsed, share, header, n, &none)


cdef void report_first_half(
    Subscriber c, ServiceExport *se, uint64_t requester, int64_t elapsed, bint share, const char *header, size_t n,
    const Slice *reply
) noexcept nogil:
    report_measured(c, se, OK, requester, 0, elapsed, share, header, n, reply)


cdef void report_measured(
    Subscriber c, ServiceExport *se, int status, uint64_t requester, uint64_t responder, int64_t elapsed, bint share,
    const char *header, size_t n, const Slice *reply
) noexcept nogil:
    cdef Measured m
    cdef Event *ev
    cdef char *p
    hand_over_first(c.ps)
    ev = c.inbox.new_event(EV_LATENCY, NULL, &c.source, sizeof(Measured) + n + reply.n)
    if ev == NULL:
        return
    ev.a = <int64_t> se.id
    ev.b = status
    m.requester = requester
    m.responder = responder
    m.elapsed = elapsed
    m.when = realtime_ns()
    m.share = share
    m.reply_n = reply.n
    p = <char *> ev.data
    memcpy(p, &m, sizeof(Measured))   # event data is not aligned
    p += sizeof(Measured)
    if n:
        memcpy(p, header, n)
    if reply.n:
        memcpy(p + n, reply.p, reply.n)
    c.inbox.post_caused(ev, &c.source, account_charge(<Account> se.account))


cdef inline void end_shadow(Subscriber c, Subscription *shadow) noexcept nogil:
    # Under the lock: a delivery either sees it, or its message is queued before what the owner queues next.
    pthread_mutex_lock(&c.lock)
    store8(&shadow.closed, 1)
    pthread_mutex_unlock(&c.lock)


cdef void close_shadow(Subscription *shadow) noexcept nogil:
    cdef StreamImport *im = <StreamImport *> import_sub(shadow).what
    end_shadow(<Subscriber> shadow.client, shadow)
    (<Account> im.exporter).remove(shadow)
    qs_retire(import_sub(shadow))
    stream_import_release(im)


cdef void close_chain(Subscription *chain) noexcept nogil:
    cdef Subscription *shadow
    while chain != NULL:
        shadow = chain
        chain = chain.next
        close_shadow(shadow)
