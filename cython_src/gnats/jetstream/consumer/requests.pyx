"""Pull requests; see requests.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from gnats.core.subjects.sublist cimport sl_generation_slot
from gnats.includes.times cimport time_after
from gnats.jetstream.consumer.acks cimport trim
from gnats.jetstream.engine.jsonreq cimport (
    JSON_BOOL,
    JSON_DURATION,
    JSON_ERROR_ROOM,
    JSON_INT,
    JSON_INT64,
    JSON_OK,
    JSON_STRING,
    JsonError,
    JsonField,
    JsonValue,
    json_error_text,
    json_field,
    json_object,
)

cdef enum:
    EXPIRES, BATCH, MAX_BYTES, NO_WAIT, HEARTBEAT, GROUP, MIN_PENDING, MIN_ACK_PENDING, ID, PRIORITY, FIELDS

cdef JsonField FIELD[FIELDS]


json_field(&FIELD[EXPIRES], b"expires", JSON_DURATION)
json_field(&FIELD[BATCH], b"batch", JSON_INT)
json_field(&FIELD[MAX_BYTES], b"max_bytes", JSON_INT)
json_field(&FIELD[NO_WAIT], b"no_wait", JSON_BOOL)
json_field(&FIELD[HEARTBEAT], b"idle_heartbeat", JSON_DURATION)
json_field(&FIELD[GROUP], b"group", JSON_STRING)
json_field(&FIELD[MIN_PENDING], b"min_pending", JSON_INT64)
json_field(&FIELD[MIN_ACK_PENDING], b"min_ack_pending", JSON_INT64)
json_field(&FIELD[ID], b"id", JSON_STRING)
json_field(&FIELD[PRIORITY], b"priority", JSON_INT)


cdef bint read_int(const char *p, size_t n, int64_t *out) noexcept nogil:
    """Parse an integer as strconv.Atoi does."""
    cdef size_t i = 1 if n and (p[0] == c'-' or p[0] == c'+') else 0
    cdef int64_t value = 0
    if i == n:
        return False
    while i < n:
        if not c'0' <= p[i] <= c'9' or value < (-<int64_t> 0x7fffffffffffffff - 1 + (p[i] - c'0')) // 10:
            return False
        value = value * 10 - (p[i] - c'0')
        i += 1
    if p[0] != c'-':
        if value == -<int64_t> 0x7fffffffffffffff - 1:
            return False
        value = -value
    out[0] = value
    return True


cdef int next_request(const char *msg, size_t n, NextRequest *out, JsonError *err) noexcept nogil:
    cdef JsonValue[FIELDS] v
    memset(out, 0, sizeof(NextRequest))
    out.batch = 1
    msg = trim(msg, &n)
    if n == 0:
        return REQUEST_OK
    if msg[0] != c'{':
        read_int(msg, n, &out.batch)
        return REQUEST_OK
    if json_object(msg, n, FIELD, FIELDS, v, err) != JSON_OK:
        return REQUEST_BAD_JSON
    out.has_group = 1
    out.expires = v[EXPIRES].i
    out.batch = v[BATCH].i
    out.max_bytes = v[MAX_BYTES].i
    out.no_wait = v[NO_WAIT].i != 0
    out.heartbeat = v[HEARTBEAT].i
    out.group = v[GROUP].p
    out.group_n = v[GROUP].n
    out.id = v[ID].p
    out.id_n = v[ID].n
    out.min_pending = v[MIN_PENDING].i
    out.min_ack_pending = v[MIN_ACK_PENDING].i
    out.priority = v[PRIORITY].i
    if out.heartbeat > 0 and (out.heartbeat > out.expires // 2 or out.expires < 0):
        return REQUEST_BAD_HEARTBEAT
    return REQUEST_OK


# -- the queue ---------------------------------------------------------------------------------------------------------

cdef int64_t heartbeat_after(int64_t now, int64_t interval) noexcept nogil:
    # Heartbeats with very short intervals share ticks: however many requests have them, the consumer walks its requests
    # once a tick.
    cdef int64_t due = time_after(now, interval)
    return due if interval >= SHORT_HEARTBEAT else due + HEARTBEAT_TICK - due % HEARTBEAT_TICK


cdef WaitingRequest *request_new(const NextRequest *req, const char *reply, size_t n, int64_t now) noexcept nogil:
    cdef WaitingRequest *wr = <WaitingRequest *> malloc(sizeof(WaitingRequest) + n)
    if wr == NULL:
        return NULL
    memset(wr, 0, sizeof(WaitingRequest))
    wr.n = req.batch
    wr.b = req.max_bytes
    wr.received = now
    if req.expires:
        wr.expires = time_after(now, req.expires) if req.expires > 0 else now
    if req.heartbeat > 0:
        wr.hb = req.heartbeat
        wr.hbt = heartbeat_after(now, req.heartbeat)
    wr.no_wait = req.no_wait
    wr.has_group = req.has_group
    wr.min_pending = req.min_pending
    wr.min_ack_pending = req.min_ack_pending
    wr.id_n = <uint32_t> min(req.id_n, <size_t> PIN_ROOM + 1)
    if req.id_n:
        memcpy(wr.id, req.id, min(req.id_n, <size_t> PIN_ROOM))
    wr.slot = sl_generation_slot(reply, n)
    wr.reply_n = <uint32_t> n
    memcpy(wr.reply, reply, n)
    return wr


cdef void waitq_due(WaitQueue *q, int64_t when) noexcept nogil:
    if when and (q.due == 0 or when < q.due):
        q.due = when


cdef void link_in(WaitQueue *q, WaitingRequest *wr) noexcept nogil:
    cdef WaitingRequest *after = NULL
    cdef int i = wr.priority
    while i >= 0 and after == NULL:
        after = q.last_of[i]
        i -= 1
    wr.prev = after
    wr.next = after.next if after != NULL else q.head
    if after != NULL:
        after.next = wr
    else:
        q.head = wr
    if wr.next != NULL:
        wr.next.prev = wr
    else:
        q.tail = wr
    q.last_of[wr.priority] = wr
    q.n += 1
    q.unannounced += not wr.announced
    q.nowait += wr.no_wait
    q.asked += <uint64_t> wr.n


cdef void link_out(WaitQueue *q, WaitingRequest *wr) noexcept nogil:
    if q.last_of[wr.priority] == wr:
        q.last_of[wr.priority] = wr.prev if wr.prev != NULL and wr.prev.priority == wr.priority else NULL
    if wr.prev != NULL:
        wr.prev.next = wr.next
    else:
        q.head = wr.next
    if wr.next != NULL:
        wr.next.prev = wr.prev
    else:
        q.tail = wr.prev
    q.n -= 1
    q.unannounced -= not wr.announced
    q.nowait -= wr.no_wait
    q.asked -= <uint64_t> wr.n


cdef inline void leave(WaitQueue *q, WaitingRequest *wr) noexcept nogil:
    """Take a request out of the queue for good."""
    link_out(q, wr)
    if q.head == NULL:
        q.due = 0


cdef bint waitq_add(WaitQueue *q, WaitingRequest *wr) noexcept nogil:
    if q.n >= q.max:
        return False
    link_in(q, wr)
    q.last = wr.received
    waitq_due(q, wr.expires)
    waitq_due(q, wr.hbt)
    return True


cdef void waitq_remove(WaitQueue *q, WaitingRequest *wr) noexcept nogil:
    leave(q, wr)
    free(wr)


cdef void waitq_cycle(WaitQueue *q) noexcept nogil:
    cdef WaitingRequest *wr = q.head
    if wr != NULL:
        link_out(q, wr)
        link_in(q, wr)
        q.last = wr.received


cdef void waitq_set_n(WaitQueue *q, WaitingRequest *wr, int64_t n) noexcept nogil:
    q.asked += <uint64_t> n - <uint64_t> wr.n
    wr.n = n


cdef WaitingRequest *waitq_pop(WaitQueue *q) noexcept nogil:
    cdef WaitingRequest *wr = q.head
    if wr == NULL:
        return NULL
    wr.d += 1
    waitq_set_n(q, wr, wr.n - 1)
    if wr.n > 0:
        if q.n > 1:
            link_out(q, wr)
            link_in(q, wr)
    else:
        leave(q, wr)
    return wr


cdef void waitq_free(WaitQueue *q) noexcept nogil:
    cdef WaitingRequest *wr = q.head
    cdef WaitingRequest *following
    while wr != NULL:
        following = wr.next
        free(wr)
        wr = following
    memset(q, 0, sizeof(WaitQueue))


# -- for tests ---------------------------------------------------------------------------------------------------------

def read_request(bytes msg not None) -> dict | str:
    """Parse a request: its fields, or the text of the error."""
    cdef NextRequest req
    cdef JsonError err
    cdef char[JSON_ERROR_ROOM] text
    cdef int code = next_request(PyBytes_AS_STRING(msg), PyBytes_GET_SIZE(msg), &req, &err)
    if code == REQUEST_BAD_HEARTBEAT:
        return "heartbeat value too large"
    if code == REQUEST_BAD_JSON:
        return PyBytes_FromStringAndSize(
            text, json_error_text(&err, b"", text)).decode(errors="replace")
    return {
        "expires": req.expires, "batch": req.batch, "max_bytes": req.max_bytes, "idle_heartbeat": req.heartbeat,
        "no_wait": bool(req.no_wait),
        "group": PyBytes_FromStringAndSize(req.group, req.group_n) if req.group_n else b"",
        "id": PyBytes_FromStringAndSize(req.id, req.id_n) if req.id_n else b"", "min_pending": req.min_pending,
        "min_ack_pending": req.min_ack_pending, "priority": req.priority, "json": bool(req.has_group),
    }


cdef class RequestQueue:
    """A WaitQueue alone, for tests. Requests are named by their reply subject."""
    cdef WaitQueue q

    def __cinit__(self, uint32_t most):
        self.q.max = most

    def __dealloc__(self):
        waitq_free(&self.q)

    def add(
        self, bytes reply not None, int64_t batch, int priority=0, *, int64_t expires=0, int64_t heartbeat=0,
        int64_t now=1
    ) -> bool:
        """Queue a request. False when the queue is full."""
        cdef NextRequest req
        cdef WaitingRequest *wr
        memset(&req, 0, sizeof(req))
        req.batch = batch
        req.expires = expires
        req.heartbeat = heartbeat
        wr = request_new(&req, PyBytes_AS_STRING(reply), PyBytes_GET_SIZE(reply), now)
        if wr == NULL:
            raise MemoryError
        wr.priority = priority
        if waitq_add(&self.q, wr):
            return True
        free(wr)
        return False

    def pop(self) -> bytes | None:
        """Take the request for the next message."""
        cdef WaitingRequest *wr = waitq_pop(&self.q)
        if wr == NULL:
            return None
        reply = PyBytes_FromStringAndSize(wr.reply, wr.reply_n)
        if wr.n <= 0:
            free(wr)
        return reply

    @property
    def due(self) -> int:
        """Return when something is due, or an earlier time; 0: nothing is due."""
        return self.q.due

    def cycle(self) -> None:
        """Make the first request the last."""
        waitq_cycle(&self.q)

    def remove(self, bytes reply not None) -> None:
        """Return the first request with this reply."""
        cdef WaitingRequest *wr = self.q.head
        while wr != NULL:
            if PyBytes_FromStringAndSize(wr.reply, wr.reply_n) == reply:
                waitq_remove(&self.q, wr)
                return
            wr = wr.next
        raise KeyError(reply)

    def list(self) -> list:
        """Return [(reply, messages still to come)]; check the links from behind, and the sum."""
        cdef list out = []
        cdef list back = []
        cdef WaitingRequest *wr = self.q.head
        while wr != NULL:
            out.append((PyBytes_FromStringAndSize(wr.reply, wr.reply_n), wr.n))
            wr = wr.next
        wr = self.q.tail
        while wr != NULL:
            back.append((PyBytes_FromStringAndSize(wr.reply, wr.reply_n), wr.n))
            wr = wr.prev
        assert out == back[::-1] and len(out) == self.q.n
        assert self.q.asked == sum(n for _, n in out) % 2**64
        return out
