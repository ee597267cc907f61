"""Direct gets; see directget.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.delivery cimport Deliverer
from gnats.core.headers cimport add_header
from gnats.core.parser cimport Slice
from gnats.core.pollstate cimport PollState
from gnats.core.subject cimport subject_has_wildcard
from gnats.core.sublist cimport Subscription
from gnats.jetstream.engine cimport publish_now
from gnats.jetstream.headers cimport add_number_header, level_too_high, parse_time, put_time
from gnats.jetstream.jsonreq cimport (
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
from gnats.jetstream.streamcore cimport StreamCore
from gnats.store.base cimport STORE_OK, StoreMsg
from gnats.store.filter cimport Filter
from gnats.store.stree cimport STreeFilter

cdef enum:
    MOST_SUBJECTS = 1024     # of one multiple request (maxAllowedResponses)
    AT_ONCE = 64             # messages that are found under one lock

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


# A request (JSApiMsgGetRequest), and what its answers need.
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
    bint all                 # one of them is `>`
    char *text               # the strings, to be freed with all else
    # how far it has got
    uint64_t pending, last_seq
    int64_t sent_bytes


cdef void answer(StreamCore s, PollState *ps, const Slice *reply, const char *hdr, size_t hn, const char *msg,
                 size_t n) noexcept nogil:
    publish_now(ps, s, reply.p, reply.n, NULL, 0, NULL, 0, hdr, hn, msg, n)


cdef void answer_status(StreamCore s, PollState *ps, const Slice *reply, const char *text) noexcept nogil:
    cdef char[96] hdr
    cdef size_t n = snprintf(hdr, sizeof(hdr), b"NATS/1.0 %s\r\n\r\n", text)
    answer(s, ps, reply, hdr, n, NULL, 0)


cdef bint process_direct_get(
    void *ctx, Deliverer producer, const Subscription *sub, char *msg, size_t n
) noexcept nogil:
    cdef Get get
    cdef Slice reply = producer.pa.reply
    cdef size_t hn = <size_t> producer.pa.hdr if producer.pa.hdr > 0 else 0
    cdef const char *refusal = NULL
    if reply.p == NULL or reply.n == 0:
        return True
    n -= 2 + hn
    get.text = NULL
    if level_too_high(msg, hn):
        refusal = b"412 Required Api Level"
    elif n == 0:
        refusal = b"408 Empty Request"
    elif not read_get(msg + hn, n, &get):
        refusal = b"408 Malformed Request"
    elif not (get.seq or get.last_for.n or get.next_for.n or get.nmulti or get.has_start):
        refusal = b"408 Empty Request"
    elif (
        (get.seq and (get.last_for.n or get.has_start)) or (get.has_start and get.last_for.n)
        or (get.last_for.n and (get.next_for.n or get.batch > 0 or get.nmulti))
        or (get.next_for.n and get.nmulti) or (get.up_to_seq and get.has_up_to)
    ):
        refusal = b"408 Bad Request"
    get.ps = producer.ps
    get.reply = &reply
    if refusal != NULL:
        answer_status(<StreamCore> ctx, producer.ps, &reply, refusal)
    elif get.nmulti:
        get_direct_multi(<StreamCore> ctx, &get)
    else:
        get_direct(<StreamCore> ctx, &get)
    free(get.text)
    return True


cdef bint process_direct_get_last(
    void *ctx, Deliverer producer, const Subscription *sub, char *msg, size_t n
) noexcept nogil:
    cdef Get get
    cdef Slice reply = producer.pa.reply
    cdef Slice key = producer.pa.subject
    cdef size_t hn = <size_t> producer.pa.hdr if producer.pa.hdr > 0 else 0
    cdef const char *refusal = NULL
    cdef size_t i, dots = 0
    if reply.p == NULL or reply.n == 0:
        return True
    n -= 2 + hn
    # $JS.API.DIRECT.GET.<stream>.<subject>
    for i in range(key.n):
        dots += key.p[i] == c'.'
        if dots == 5:
            break
    key.p += i + 1 if dots == 5 else key.n
    key.n -= i + 1 if dots == 5 else key.n
    get.text = NULL
    clear_get(&get)
    if level_too_high(msg, hn):
        refusal = b"412 Required Api Level"
    elif n and not read_get(msg + hn, n, &get):
        refusal = b"408 Malformed Request"
    elif key.n == 0 or get.seq or get.last_for.n or get.next_for.n or get.nmulti or get.has_start or get.batch or (
            get.up_to_seq or get.has_up_to):
        refusal = b"408 Bad Request"
    get.ps = producer.ps
    get.reply = &reply
    get.last_for = key
    if refusal != NULL:
        answer_status(<StreamCore> ctx, producer.ps, &reply, refusal)
    else:
        get_direct(<StreamCore> ctx, &get)
    free(get.text)
    return True


# -- requests ----------------------------------------------------------------------------------------------------------

cdef void clear_get(Get *get) noexcept nogil:
    get.text = NULL
    get.multi = NULL
    get.seq = get.up_to_seq = get.pending = get.last_seq = 0
    get.last_for.p = get.next_for.p = NULL
    get.last_for.n = get.next_for.n = 0
    get.batch = get.max_bytes = get.sent_bytes = get.start_time = get.up_to_time = 0
    get.has_start = get.has_up_to = get.no_headers = get.all = False
    get.nmulti = 0


cdef bint read_get(const char *text, size_t n, Get *get) noexcept nogil:
    """False when it is not JSON, or not of the right types."""
    cdef JsonValue[MEMBERS] v
    cdef JsonValue item
    cdef JsonError err
    cdef size_t at = 0
    cdef uint32_t count = 0
    cdef char *p
    clear_get(get)
    if json_object(text, n, FIELD, MEMBERS, v, &err) != JSON_OK:
        return False
    while json_next(&v[MULTI_LAST], &at, &item):
        count += 1
    get.text = <char *> malloc(count * (sizeof(STreeFilter) + 1) + 3 * n + 8)
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
        get.wild[get.nmulti] = subject_has_wildcard(get.multi[get.nmulti].at, get.multi[get.nmulti].n)
        if get.multi[get.nmulti].n == 1 and get.multi[get.nmulti].at[0] == c'>':
            get.all = True
        get.nmulti += 1
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
    """Answer with a message; False when that was the last one that may be sent."""
    cdef char[40] when
    cdef size_t at
    cdef char *out
    if get.no_headers and not get.nmulti:
        answer(s, get.ps, get.reply, NULL, 0, sm.hdr + sm.hdr_n, sm.msg_n)
    else:
        out = <char *> malloc(sm.hdr_n + s.name_n + sm.subject_n + sm.msg_n + 256)
        if out == NULL:
            return False
        at = add_header(out, sm.hdr, sm.hdr_n, b"Nats-Stream", 11, s.name_p, s.name_n)
        at = add_header(out, out, at, b"Nats-Subject", 12, sm.subject, sm.subject_n)
        at = add_number_header(out, out, at, b"Nats-Sequence", 13, sm.seq)
        at = add_header(out, out, at, b"Nats-Time-Stamp", 15, when, put_time(when, sm.ts))
        if batched:
            at = add_number_header(out, out, at, b"Nats-Num-Pending", 16, get.pending)
            at = add_number_header(out, out, at, b"Nats-Last-Sequence", 18, get.last_seq)
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


cdef void only_filter(Get *get, STreeFilter *only, uint8_t *wild, Filter *f) noexcept nogil:
    """The filter of next_by_subj."""
    only.at = get.next_for.p
    only.n = get.next_for.n
    wild[0] = subject_has_wildcard(get.next_for.p, get.next_for.n)
    f.subjects = only
    f.wild = wild
    f.n = 1
    f.all = get.next_for.n == 1 and get.next_for.p[0] == c'>'


cdef void get_direct(StreamCore s, Get *get) noexcept nogil:
    """One message, or a batch of those that follow each other."""
    cdef StoreMsg[AT_ONCE] found
    cdef STreeFilter only
    cdef uint8_t wild
    cdef Filter f
    cdef const Filter *next_for = &f if get.next_for.n else NULL
    cdef bint batched = get.batch != 0, more = True
    cdef int64_t left = get.batch if batched else 1
    cdef uint64_t seq = get.seq, valid_through
    cdef uint32_t i, n = 0
    cdef bint any = False
    if next_for != NULL:
        only_filter(get, &only, &wild, &f)
    s.enter()
    if get.has_start:
        seq = s.store.seq_from_time(get.start_time)
    valid_through = s.store.last_seq
    if batched:
        get.pending = s.store.num_pending(seq, next_for, False)
    s.leave(get.ps)
    while left > 0 and more:
        n = find_some(s, get, next_for, batched, <uint32_t> min(left, AT_ONCE), &seq, found)
        if n == 0:
            break
        any = True
        left -= n
        for i in range(n):
            if batched and get.pending:
                get.pending -= 1
            if not send_msg(s, get, &found[i], batched):
                more = False
                break
    if not any and (not batched or get.batch > 0):
        answer_status(s, get.ps, get.reply, b"404 Message Not Found")
    elif batched:
        s.enter()
        if s.store.last_seq > valid_through:
            get.pending = s.store.num_pending(seq, next_for, False)
        s.leave(get.ps)
        send_end(s, get, 0)


cdef uint32_t find_some(
    StreamCore s, Get *get, const Filter *f, bint batched, uint32_t most, uint64_t *seq, StoreMsg *found
) noexcept nogil:
    """The next messages that are asked for, and where to go on behind them."""
    cdef uint32_t n = 0
    cdef int rc
    s.enter()
    if get.last_for.n:
        n = s.store.load_last(get.last_for.p, <uint32_t> get.last_for.n, found) == STORE_OK
    elif f == NULL and not batched:
        n = s.store.load(seq[0], found) == STORE_OK
    else:
        while n < most:
            rc = s.store.load_next(f, seq[0], &found[n], NULL)
            if rc != STORE_OK:
                break
            seq[0] = found[n].seq + 1
            n += 1
    s.leave(get.ps)
    return n


cdef void get_direct_multi(StreamCore s, Get *get) noexcept nogil:
    """The last message of each of many subjects."""
    cdef Filter f
    cdef StoreMsg sm
    cdef uint64_t *seqs = NULL
    cdef uint64_t up_to = get.up_to_seq
    cdef int64_t i, n, sent = 0
    cdef int rc
    f.subjects = get.multi
    f.wild = get.wild
    f.n = get.nmulti
    f.all = get.all
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
    n = s.store.multi_last_seqs(&f, up_to, MOST_SUBJECTS, &seqs)
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
    for i in range(n):
        get.pending -= 1
        if seqs[i] < get.seq:
            continue
        s.enter()
        rc = s.store.load(seqs[i], &sm)
        s.leave(get.ps)
        if rc != STORE_OK:
            answer_status(s, get.ps, get.reply, b"404 Message Not Found")
            free(seqs)
            return
        if not send_msg(s, get, &sm, True):
            break
        sent += 1
        if 0 < get.batch <= sent:
            break
    free(seqs)
    send_end(s, get, up_to)
