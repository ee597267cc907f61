"""Direct gets; see directget.pxd.

An answer that sends or searches many messages is made in slices: the first in place, the others in turn with other work
(gnats.jetstream.engine.longwork).
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from gnats.core.messages.message cimport Message
from gnats.core.net.connection cimport Connection
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.subject cimport is_valid_subject, subject_has_wildcard
from gnats.core.subjects.sublist cimport Subscription
from gnats.includes.atomics cimport add64_seq
from gnats.includes.linux cimport stopwatch_ns
from gnats.jetstream.engine.barrier cimport JsPoller, js_poller_of
from gnats.jetstream.engine.engine cimport queue_work
from gnats.jetstream.engine.jsonreq cimport (
    JSON_BOOL,
    JSON_INT,
    JSON_OK,
    JSON_STRING,
    JSON_STRINGS,
    JSON_UINT,
    JsonError,
    JsonField,
    JsonValue,
    json_field,
    json_next,
    json_object,
    json_unescape,
)
from gnats.jetstream.engine.longwork cimport Work, work_in_place, work_took
from gnats.jetstream.engine.outbox cimport publish_now
from gnats.jetstream.engine.shortage cimport report_shortage
from gnats.jetstream.state.headers cimport level_too_high, parse_time, put_time, with_header, with_number_header
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.base cimport STORE_AGAIN, STORE_OK, StoreMsg
from gnats.store.index.filter cimport Filter, sort_filters
from gnats.store.index.stree cimport STreeFilter
from gnats.store.queries cimport count_some, pending_known
from gnats.store.reading cimport search_next, search_prev

cdef enum:
    MOST_SUBJECTS = 1024     # subjects of one multi_last request (maxAllowedResponses)
    AT_ONCE = 64             # messages found under one hold of the lock
    SLICE_MSGS = 256         # messages sent in one slice
    SLICE_BYTES = 256 * 1024
    SLICE_SEARCH = 16384     # messages looked at in one slice

# The next step of an answer.
cdef enum Phase:
    BEGIN, COUNT, SEND, SEND_MULTI, RECOUNT, DONE

cdef enum:
    SEQ, LAST_FOR, NEXT_FOR, BATCH, MAX_BYTES, START_TIME, MULTI_LAST, UP_TO_SEQ, UP_TO_TIME, NO_HEADERS, MEMBERS

cdef JsonField FIELD[MEMBERS]


json_field(&FIELD[SEQ], b"seq", JSON_UINT)
json_field(&FIELD[LAST_FOR], b"last_by_subj", JSON_STRING)
json_field(&FIELD[NEXT_FOR], b"next_by_subj", JSON_STRING)
json_field(&FIELD[BATCH], b"batch", JSON_INT)
json_field(&FIELD[MAX_BYTES], b"max_bytes", JSON_INT)
json_field(&FIELD[START_TIME], b"start_time", JSON_STRING)
json_field(&FIELD[MULTI_LAST], b"multi_last", JSON_STRINGS)
json_field(&FIELD[UP_TO_SEQ], b"up_to_seq", JSON_UINT)
json_field(&FIELD[UP_TO_TIME], b"up_to_time", JSON_STRING)
json_field(&FIELD[NO_HEADERS], b"no_hdr", JSON_BOOL)


# A request (JSApiMsgGetRequest), and the progress of its answer.
cdef struct Get:
    PollState *ps
    const Slice *reply
    uint64_t seq
    Slice last_for, next_for
    int64_t batch, max_bytes
    bint has_start, has_up_to, no_headers
    int64_t start_time, up_to_time   # ns since 1970
    uint64_t up_to_seq
    uint32_t nmulti
    STreeFilter *multi
    uint8_t *wild
    bint all                 # one of `multi` is `>`
    char *text               # owns the strings and arrays above
    size_t text_n
    # progress
    uint64_t pending, last_seq
    int64_t sent_bytes


# A request that is being answered: on the stack for its first slice, then in memory of its own.
cdef struct Answer:
    Work work
    void *stream             # borrowed StreamCore; counted in its `refs` while this is not on the stack
    Get get
    Slice reply
    STreeFilter only         # next_by_subj
    uint8_t wild
    Filter f
    const Filter *next_for   # NULL: all
    uint8_t phase
    bint batched, any
    int64_t left             # the most messages that may still be sent
    uint64_t seq             # the sequence to go on from
    uint64_t valid_through   # the stream's last sequence when pending messages were counted
    uint64_t count_at, counted    # counting pending messages: the next sequence, the count of those before
    uint64_t back            # last_by_subj with a wildcard has searched down to here; 0: not begun
    uint64_t *seqs           # multi_last: the sequences to send, nseqs of them
    int64_t nseqs, next_of_seqs, multi_sent
    uint64_t up_to


cdef void answer(StreamCore s, PollState *ps, const Slice *reply, const char *hdr, size_t hn, const char *msg,
                 size_t n) noexcept nogil:
    publish_now(ps, s, reply.p, reply.n, NULL, 0, NULL, 0, hdr, hn, msg, n)


cdef void answer_status(StreamCore s, PollState *ps, const Slice *reply, const char *text) noexcept nogil:
    cdef char[96] hdr
    cdef size_t n = snprintf(hdr, sizeof(hdr), b"NATS/1.0 %s\r\n\r\n", text)
    answer(s, ps, reply, hdr, n, NULL, 0)


cdef bint process_direct_get(void *ctx, const Message *m, const Subscription *sub) noexcept nogil:
    cdef Get get
    cdef const char *msg = m.data + m.hdr
    cdef size_t n = m.n - m.hdr
    cdef const char *refusal = NULL
    if m.reply.n == 0:
        return True
    get.text = NULL
    if level_too_high(m.data, m.hdr):
        refusal = b"412 Required Api Level"
    elif n == 0:
        refusal = b"408 Empty Request"
    elif not read_get(msg, n, &get):
        refusal = b"408 Malformed Request"
    elif not (get.seq or get.last_for.n or get.next_for.n or get.nmulti or get.has_start):
        refusal = b"408 Empty Request"
    elif (
        (get.seq and (get.last_for.n or get.has_start)) or (get.has_start and get.last_for.n)
        or (get.last_for.n and (get.next_for.n or get.batch > 0 or get.nmulti))
        or (get.next_for.n and get.nmulti) or (get.up_to_seq and get.has_up_to)
    ):
        refusal = b"408 Bad Request"
    if refusal != NULL:
        answer_status(<StreamCore> ctx, m.ps, &m.reply, refusal)
        free(get.text)
    else:
        begin_answer(<StreamCore> ctx, m, &get)
    return True


cdef bint process_direct_get_last(void *ctx, const Message *m, const Subscription *sub) noexcept nogil:
    cdef Get get
    cdef Slice key = m.subject
    cdef const char *msg = m.data + m.hdr
    cdef size_t n = m.n - m.hdr
    cdef const char *refusal = NULL
    cdef size_t i, dots = 0
    if m.reply.n == 0:
        return True
    # $JS.API.DIRECT.GET.<stream>.<subject>
    for i in range(key.n):
        dots += key.p[i] == c'.'
        if dots == 5:
            break
    key.p += i + 1 if dots == 5 else key.n
    key.n -= i + 1 if dots == 5 else key.n
    get.text = NULL
    clear_get(&get)
    if level_too_high(m.data, m.hdr):
        refusal = b"412 Required Api Level"
    elif n and not read_get(msg, n, &get):
        refusal = b"408 Malformed Request"
    elif key.n == 0 or get.seq or get.last_for.n or get.next_for.n or get.nmulti or get.has_start or get.batch or (
            get.up_to_seq or get.has_up_to):
        refusal = b"408 Bad Request"
    get.last_for = key
    if refusal != NULL:
        answer_status(<StreamCore> ctx, m.ps, &m.reply, refusal)
        free(get.text)
    else:
        begin_answer(<StreamCore> ctx, m, &get)
    return True


# -- requests ----------------------------------------------------------------------------------------------------------

cdef void clear_get(Get *get) noexcept nogil:
    get.text = NULL
    get.text_n = 0
    get.multi = NULL
    get.seq = get.up_to_seq = get.pending = get.last_seq = 0
    get.last_for.p = get.next_for.p = NULL
    get.last_for.n = get.next_for.n = 0
    get.batch = get.max_bytes = get.sent_bytes = get.start_time = get.up_to_time = 0
    get.has_start = get.has_up_to = get.no_headers = get.all = False
    get.nmulti = 0


cdef bint read_get(const char *text, size_t n, Get *get) noexcept nogil:
    """Parse a request. False when it is not JSON, has values of wrong types, or out of memory."""
    cdef JsonValue[MEMBERS] v
    cdef JsonValue item
    cdef JsonError err
    cdef size_t at = 0
    cdef uint32_t count = 0, i
    cdef char *p
    clear_get(get)
    if json_object(text, n, FIELD, MEMBERS, v, &err) != JSON_OK:
        return False
    while json_next(&v[MULTI_LAST], &at, &item):
        count += 1
    get.text_n = count * (sizeof(STreeFilter) + 1) + 3 * n + 8
    get.text = <char *> malloc(get.text_n)
    if get.text == NULL:
        return False
    get.multi = <STreeFilter *> get.text
    get.wild = <uint8_t *> (get.multi + count)
    p = <char *> (get.wild + count)
    if v[START_TIME].set:
        get.has_start = True
        if not parse_time(v[START_TIME].p, v[START_TIME].n, &get.start_time):
            return False
    if v[UP_TO_TIME].set:
        get.has_up_to = True
        if not parse_time(v[UP_TO_TIME].p, v[UP_TO_TIME].n, &get.up_to_time):
            return False
    p = take_string(p, &v[LAST_FOR], &get.last_for)
    p = take_string(p, &v[NEXT_FOR], &get.next_for)
    at = 0
    while json_next(&v[MULTI_LAST], &at, &item):
        get.multi[get.nmulti].at = p
        get.multi[get.nmulti].n = json_unescape(item.p, item.n, p)
        p += get.multi[get.nmulti].n
        if get.multi[get.nmulti].n == 1 and get.multi[get.nmulti].at[0] == c'>':
            get.all = True
        get.nmulti += 1
    sort_filters(get.multi, get.nmulti)
    for i in range(get.nmulti):
        get.wild[i] = subject_has_wildcard(get.multi[i].at, get.multi[i].n)
    get.seq = v[SEQ].u
    get.up_to_seq = v[UP_TO_SEQ].u
    get.batch = v[BATCH].i
    get.max_bytes = v[MAX_BYTES].i
    get.no_headers = v[NO_HEADERS].i != 0
    return True


cdef char *take_string(char *p, const JsonValue *v, Slice *out) noexcept nogil:
    out.p = p
    out.n = json_unescape(v.p, v.n, p) if v.set else 0
    return p + out.n


# -- answers -----------------------------------------------------------------------------------------------------------

cdef bint send_msg(StreamCore s, Get *get, const StoreMsg *sm, bint batched) noexcept nogil:
    """Send a message. False when the limit of bytes is reached, or out of memory: send no further one."""
    cdef char[40] when
    cdef size_t at
    cdef char *out
    if get.no_headers and not get.nmulti:
        answer(s, get.ps, get.reply, NULL, 0, sm.hdr + sm.hdr_n, sm.msg_n)
    else:
        out = <char *> malloc(sm.hdr_n + s.name_n + sm.subject_n + sm.msg_n + 256)
        if out == NULL:
            report_shortage(get.ps)
            return False
        at = with_header(out, sm.hdr, sm.hdr_n, b"Nats-Stream", s.name_p, s.name_n)
        at = with_header(out, out, at, b"Nats-Subject", sm.subject, sm.subject_n)
        at = with_number_header(out, out, at, b"Nats-Sequence", sm.seq)
        at = with_header(out, out, at, b"Nats-Time-Stamp", when, put_time(when, sm.ts))
        if batched:
            at = with_number_header(out, out, at, b"Nats-Num-Pending", get.pending)
            at = with_number_header(out, out, at, b"Nats-Last-Sequence", get.last_seq)
        memcpy(out + at, sm.hdr + sm.hdr_n, sm.msg_n)
        answer(s, get.ps, get.reply, out, at, out + at, sm.msg_n)
        free(out)
    get.last_seq = sm.seq
    get.sent_bytes += <int64_t> sm.subject_n + sm.hdr_n + sm.msg_n
    return get.sent_bytes < (get.max_bytes if get.max_bytes else s.max_direct)


cdef void send_end(StreamCore s, Get *get, uint64_t up_to) noexcept nogil:
    cdef char[160] hdr
    cdef size_t n
    if up_to:
        n = snprintf(
            hdr, sizeof(hdr),
            b"NATS/1.0 204 EOB\r\nNats-Num-Pending: %llu\r\nNats-Last-Sequence: %llu\r\n"
            b"Nats-UpTo-Sequence: %llu\r\n\r\n",
            <unsigned long long> get.pending, <unsigned long long> get.last_seq, <unsigned long long> up_to)
    else:
        n = snprintf(
            hdr, sizeof(hdr), b"NATS/1.0 204 EOB\r\nNats-Num-Pending: %llu\r\nNats-Last-Sequence: %llu\r\n\r\n",
            <unsigned long long> get.pending, <unsigned long long> get.last_seq)
    answer(s, get.ps, get.reply, hdr, n, NULL, 0)


cdef void begin_answer(StreamCore s, const Message *m, const Get *get) noexcept nogil:
    """Make the first slice in place, unless such work has used up its time in this batch; queue the rest."""
    cdef JsPoller *jp = js_poller_of(m.ps)
    cdef Answer a
    cdef bint more = True
    cdef int64_t begin
    memset(&a, 0, sizeof(a))
    a.stream = <void *> s
    a.get = get[0]
    a.reply = m.reply
    a.batched = get.batch != 0
    a.left = get.batch if a.batched else 1
    a.seq = get.seq
    point(&a)
    if work_in_place(&jp.work, m.ps):
        begin = stopwatch_ns()
        more = answer_slice(&a.work, m.ps)
        work_took(&jp.work, stopwatch_ns() - begin)
    if more:
        if later(jp, m, &a):
            return
        answer_status(s, m.ps, &a.reply, b"503 Too Many Requests")
    free(a.seqs)
    free(a.get.text)


cdef void point(Answer *a) noexcept nogil:
    """Set the answer's pointers into itself, after it was made or copied."""
    cdef Get *get = &a.get
    get.reply = &a.reply
    if get.nmulti:
        a.f.subjects = get.multi
        a.f.wild = get.wild
        a.f.n = get.nmulti
        a.f.all = get.all
    elif get.next_for.n:
        a.only.at = get.next_for.p
        a.only.n = get.next_for.n
        a.wild = subject_has_wildcard(get.next_for.p, get.next_for.n)
        a.f.subjects = &a.only
        a.f.wild = &a.wild
        a.f.n = 1
        a.f.all = get.next_for.n == 1 and get.next_for.p[0] == c'>'
        a.next_for = &a.f


cdef bint later(JsPoller *jp, const Message *m, Answer *a) noexcept nogil:
    """Queue a copy of the answer as Work. False when out of memory, or the requester has asked for too much."""
    cdef size_t room = sizeof(Answer) + a.reply.n + a.get.last_for.n
    cdef Answer *copy = <Answer *> malloc(room)
    cdef char *p = <char *> (copy + 1)
    if copy == NULL:
        return False
    copy[0] = a[0]
    memcpy(p, a.reply.p, a.reply.n)
    copy.reply.p = p
    if a.get.last_for.n:
        memcpy(p + a.reply.n, a.get.last_for.p, a.get.last_for.n)
        copy.get.last_for.p = p + a.reply.n
    point(copy)
    copy.work.size = room + a.get.text_n
    copy.work.step = answer_slice
    copy.work.end = end_answer
    add64_seq(&(<StreamCore> a.stream).refs, 1)
    if queue_work(jp, &copy.work, &(<Connection> m.origin).source):
        return True
    add64_seq(&(<StreamCore> a.stream).refs, <uint64_t> -1)
    free(copy)
    return False


cdef void end_answer(Work *w) noexcept nogil:
    cdef Answer *a = <Answer *> w
    free(a.seqs)
    free(a.get.text)
    add64_seq(&(<StreamCore> a.stream).refs, <uint64_t> -1)
    free(a)


cdef bint answer_slice(Work *w, PollState *ps) noexcept nogil:
    """Make a slice (Work.step)."""
    cdef Answer *a = <Answer *> w
    a.get.ps = ps
    if a.phase == BEGIN:
        if a.get.nmulti:
            begin_multi(<StreamCore> a.stream, a)
        else:
            begin_messages(<StreamCore> a.stream, a)
    if a.phase == COUNT or a.phase == RECOUNT:
        count_slice(<StreamCore> a.stream, a)
    elif a.phase == SEND:
        send_slice(<StreamCore> a.stream, a)
    elif a.phase == SEND_MULTI:
        send_multi_slice(<StreamCore> a.stream, a)
    return a.phase != DONE


cdef void begin_messages(StreamCore s, Answer *a) noexcept nogil:
    s.enter()
    if a.get.has_start:
        a.seq = s.store.seq_from_time(a.get.start_time)
    a.phase = SEND
    if a.batched:
        begin_count(s, a, SEND, COUNT)
    s.leave(a.get.ps)


cdef void begin_count(StreamCore s, Answer *a, uint8_t known, uint8_t unknown) noexcept nogil:
    """Begin to count the pending messages from a.seq on; the lock is held. Goes on in phase `known` or `unknown`."""
    a.valid_through = s.store.last_seq
    a.count_at = a.seq
    a.counted = 0
    a.phase = known if pending_known(s.store, a.seq, a.next_for, &a.get.pending) else unknown


cdef void count_slice(StreamCore s, Answer *a) noexcept nogil:
    s.enter()
    a.counted += count_some(s.store, a.next_for, &a.count_at, a.valid_through, SLICE_SEARCH)
    s.leave(a.get.ps)
    if a.count_at > a.valid_through:
        a.get.pending = a.counted
        if a.phase == COUNT:
            a.phase = SEND
        else:
            end_batch_of(s, a)


cdef void send_slice(StreamCore s, Answer *a) noexcept nogil:
    """Send the one message of a request, or a slice of its batch."""
    cdef StoreMsg[AT_ONCE] found
    cdef int64_t search = SLICE_SEARCH, sent = 0, bytes = a.get.sent_bytes
    cdef uint32_t i, n = 0
    cdef bint more = True, again = False
    while a.left > 0 and more and not again:
        if sent >= SLICE_MSGS or a.get.sent_bytes - bytes >= SLICE_BYTES:
            return
        n = find_some(s, a, <uint32_t> min(a.left, AT_ONCE), found, &search, &again)
        if n == 0:
            break
        a.any = True
        a.left -= n
        sent += n
        for i in range(n):
            if a.batched and a.get.pending:
                a.get.pending -= 1
            if not send_msg(s, &a.get, &found[i], a.batched):
                more = False
                break
            if a.get.sent_bytes - bytes >= SLICE_BYTES and i + 1 < n:
                a.seq = found[i].seq + 1
                a.left += n - (i + 1)
                return
    if again and more and a.left > 0:
        return
    if not a.any and (not a.batched or a.get.batch > 0):
        answer_status(s, a.get.ps, a.get.reply, b"404 Message Not Found")
    elif a.batched:
        s.enter()
        a.phase = DONE
        if s.store.last_seq > a.valid_through:
            begin_count(s, a, DONE, RECOUNT)
        s.leave(a.get.ps)
        if a.phase == RECOUNT:
            return
        end_batch_of(s, a)
    a.phase = DONE


cdef void end_batch_of(StreamCore s, Answer *a) noexcept nogil:
    send_end(s, &a.get, 0)
    a.phase = DONE


cdef uint32_t find_some(
    StreamCore s, Answer *a, uint32_t most, StoreMsg *found, int64_t *search, bint *again
) noexcept nogil:
    """Find the next messages. Set again[0] when the slice has searched enough and there may be more."""
    cdef uint32_t n = 0
    cdef uint64_t at = 0
    cdef int rc = STORE_OK
    s.enter()
    if a.get.last_for.n:
        n = find_last(s, a, found, search, again)
    elif a.next_for == NULL and not a.batched:
        n = s.store.load(a.seq, found) == STORE_OK
    else:
        while n < most:
            rc = search_next(s.store, a.next_for, a.seq, &found[n], &at, search)
            if rc == STORE_AGAIN:
                a.seq = at + 1
                again[0] = True
            if rc != STORE_OK:
                break
            a.seq = found[n].seq + 1
            n += 1
    s.leave(a.get.ps)
    return n


cdef uint32_t find_last(StreamCore s, Answer *a, StoreMsg *found, int64_t *search, bint *again) noexcept nogil:
    """Find the last message of a subject, which may have wildcards; the lock is held."""
    cdef Slice *subject = &a.get.last_for
    cdef STreeFilter one
    cdef Filter f
    cdef uint8_t wild = 1
    cdef int rc
    if (
        not subject_has_wildcard(subject.p, subject.n) or (subject.n == 1 and subject.p[0] == c'>')
        or not is_valid_subject(subject.p, subject.n)
    ):
        return s.store.load_last(subject.p, <uint32_t> subject.n, found) == STORE_OK
    one.at = subject.p
    one.n = subject.n
    f.subjects = &one
    f.wild = &wild
    f.n = 1
    f.all = False
    if a.back == 0:
        a.back = s.store.last_seq + 1
    rc = search_prev(s.store, &f, a.back - 1, found, &a.back, search)
    again[0] = rc == STORE_AGAIN
    return rc == STORE_OK


cdef void begin_multi(StreamCore s, Answer *a) noexcept nogil:
    """Look up the last message of each subject of a multi_last request."""
    cdef Get *get = &a.get
    cdef uint64_t up_to = get.up_to_seq
    cdef int64_t n
    a.phase = DONE
    s.enter()
    if get.has_up_to:
        up_to = s.store.seq_from_time(get.up_to_time)
        if up_to <= s.store.first_seq:
            s.leave(get.ps)
            answer_status(s, get.ps, get.reply, b"404 No Results")
            return
        up_to -= 1
    if up_to == 0:
        up_to = s.store.last_seq
    n = s.store.multi_last_seqs(&a.f, up_to, MOST_SUBJECTS, &a.seqs)
    s.leave(get.ps)
    if n <= 0:
        if n == 0:
            answer_status(s, get.ps, get.reply, b"404 No Results")
        elif n == -2:
            answer_status(s, get.ps, get.reply, b"413 Too Many Results")
        else:
            answer_status(s, get.ps, get.reply, b"500 out of memory")
        return
    get.pending = <uint64_t> n
    a.nseqs = n
    a.up_to = up_to
    a.phase = SEND_MULTI


cdef void send_multi_slice(StreamCore s, Answer *a) noexcept nogil:
    cdef Get *get = &a.get
    cdef StoreMsg sm
    cdef int64_t bytes = get.sent_bytes
    cdef uint64_t seq
    cdef int rc
    while a.next_of_seqs < a.nseqs:
        if get.sent_bytes - bytes >= SLICE_BYTES:
            return
        seq = a.seqs[a.next_of_seqs]
        a.next_of_seqs += 1
        get.pending -= 1
        if seq < get.seq:
            continue
        s.enter()
        rc = s.store.load(seq, &sm)
        s.leave(get.ps)
        if rc != STORE_OK:
            answer_status(s, get.ps, get.reply, b"404 Message Not Found")
            a.phase = DONE
            return
        if not send_msg(s, get, &sm, True):
            break
        a.multi_sent += 1
        if 0 < get.batch <= a.multi_sent:
            break
    send_end(s, get, a.up_to)
    a.phase = DONE
