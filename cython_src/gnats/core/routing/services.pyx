"""Exported and imported services, for the control plane; core.accounts.account has their meaning.

Both are undone when they are closed or collected.
"""
import cython

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from gnats.core.accounts.account cimport Account, ServiceImport
from gnats.core.messages.message cimport NativeSub, native_sub
from gnats.core.messages.responses cimport (
    CHUNKED,
    SINGLETON,
    STREAMED,
    Expected,
    Measured,
    ServiceExport,
    expected_header,
    export_hold,
    export_release,
    queue_drop,
    replymap_remove,
)
from gnats.core.routing.serviceimports cimport take_request
from gnats.core.runtime.clock cimport monotonic_ns, realtime_ns
from gnats.core.runtime.kinds cimport ACCOUNT
from gnats.core.runtime.quiesce cimport qs_retire
from gnats.core.subjects.sublist cimport SL_OK, SUB_SERVICE, Subscription, sub_new, sub_row
from gnats.core.subjects.transform cimport SubjectTransform, transform_copy
from gnats.includes.atomics cimport load8, loadi64, store64, store8, storei64
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.units cimport SECOND

cdef dict RESPONSE_TYPES = {"singleton": SINGLETON, "stream": STREAMED, "chunked": CHUNKED}
cdef uint64_t exports = 0   # exports made; under the GIL


@cython.no_gc_clear
cdef class ExportedService:
    """A service that an account exports. `response_type` is "singleton", "stream" or "chunked"; `threshold` is the
    seconds to wait for its responses."""
    cdef ServiceExport *se
    cdef readonly Account account
    cdef readonly str response_type

    def __cinit__(self, Account account not None, str response_type not None, double threshold):
        global exports
        exports += 1
        self.account = account
        self.response_type = response_type
        self.se = <ServiceExport *> calloc(1, sizeof(ServiceExport))
        if self.se == NULL:
            raise MemoryError
        self.se.refs = 1
        self.se.id = exports
        self.se.account = <void *> account
        self.se.response_type = RESPONSE_TYPES[response_type]
        self.threshold = threshold

    def __dealloc__(self):
        if self.se != NULL:
            self.close()
            export_release(self.se)

    def close(self) -> None:
        """Expect no responses to new requests. Those that are expected may still come. Idempotent."""
        pthread_mutex_lock(&self.account.lock)
        store8(&self.se.closed, 1)
        pthread_mutex_unlock(&self.account.lock)

    @property
    def id(self) -> int:
        """The export's number in events."""
        return self.se.id

    @property
    def threshold(self) -> float:
        """Seconds to wait for responses."""
        return loadi64(&self.se.threshold) / <double> SECOND

    @threshold.setter
    def threshold(self, double seconds):
        storei64(&self.se.threshold, <int64_t> (seconds * SECOND))

    def measure(self, int percent, bint by_header) -> None:
        """Measure this percentage of the requests, and with `by_header` those whose headers ask for it."""
        store8(&self.se.sampling, percent)
        store8(&self.se.by_header, by_header)

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return load8(&self.se.closed) != 0

    @property
    def in_use(self) -> bool:
        """Whether imports, or expected responses, refer to it."""
        return loadi64(&self.se.refs) > 1

    def allow_trace(self, bint allow) -> None:
        """Set whether traces of requests go on into the serving account."""
        store8(&self.se.allow_trace, allow)

    def pending(self) -> int:
        """Return the number of expected responses."""
        cdef uint32_t n
        pthread_mutex_lock(&self.account.lock)
        n = self.se.queue.n
        pthread_mutex_unlock(&self.account.lock)
        return n

    def check_expired_responses(self) -> tuple[float | None, list]:
        """Drop the responses that have not come within `threshold`.

        Return the seconds until the next one expires (None: none is expected; call again after EV_RESPONSES), and the
        measurements of those dropped, as bytes like an EV_LATENCY's data.
        """
        cdef Expected *e
        cdef Expected *expired = NULL
        cdef int64_t now = monotonic_ns(), wait = -1
        cdef int64_t threshold = loadi64(&self.se.threshold)
        cdef list lost = []
        cdef Measured measured
        pthread_mutex_lock(&self.account.lock)
        while self.se.queue.oldest != NULL:
            e = self.se.queue.oldest
            if now - e.ts < threshold:
                wait = threshold - (now - e.ts)
                break
            queue_drop(e)
            replymap_remove(&self.account.responses, e)
            e.newer = expired
            expired = e
        if wait < 0:
            self.se.armed = 0
        store64(&self.account.nresponses, self.account.responses.n)
        pthread_mutex_unlock(&self.account.lock)
        while expired != NULL:
            e = expired
            expired = e.newer
            (<Account> e.account).forget(e.back)
            if e.tracked:
                measured.requester = e.requester
                measured.responder = 0
                measured.elapsed = now - e.ts
                measured.when = realtime_ns()
                measured.share = e.share
                measured.reply_n = 0
                lost.append((<char *> &measured)[:sizeof(Measured)] + expected_header(e)[:e.header_n])
            export_release(e.se)
            free(e)
        return (None if wait < 0 else wait / <double> SECOND), lost


@cython.no_gc_clear
cdef class ImportedService:
    """An import of a service: requests to `subject` in `account` go to `to` in the exporting one.

    With a transform, `to` is replaced by its result; with `use_published` requests keep their subject. It handles
    requests until close(). Raises ValueError for an invalid subject, MemoryError.
    """
    cdef ServiceImport *si
    cdef Subscription *sub
    cdef readonly Account account
    cdef readonly ExportedService export

    def __cinit__(
        self, Account account not None, ExportedService export not None, bytes subject not None, bytes to not None,
        SubjectTransform transform, *, bint use_published, bint share, bint to_system, bytes sid not None,
    ):
        self.account = account
        self.export = export
        account.keep(export.account)
        self.si = <ServiceImport *> malloc(sizeof(ServiceImport) + len(to))
        if self.si == NULL:
            raise MemoryError
        memset(self.si, 0, sizeof(ServiceImport))
        self.si.account = <void *> account
        self.si.exporter = <void *> export.account
        self.si.se = export_hold(export.se)
        self.si.use_published = use_published
        self.si.share = share
        self.si.to_system = to_system
        self.si.to_n = len(to)
        memcpy(self.si.to, PyBytes_AS_STRING(to), len(to))
        if transform is not None:
            self.si.tr = transform_copy(transform.compiled)
            if self.si.tr == NULL:
                raise MemoryError
        self.sub = sub_new(
            NULL, ACCOUNT, PyBytes_AS_STRING(subject), len(subject), b"", 0, PyBytes_AS_STRING(sid), len(sid),
            sizeof(NativeSub))
        if self.sub == NULL:
            raise MemoryError
        self.sub.internal = 1
        self.sub.flags = SUB_SERVICE
        native_sub(self.sub).fn = take_request
        native_sub(self.sub).ctx = self.si
        if account.insert(self.sub) != SL_OK:
            free(native_sub(self.sub))
            self.sub = NULL
            raise ValueError(f"invalid subject {subject!r}")

    def __dealloc__(self):
        self.close()

    def close(self) -> None:
        """Handle no more requests. Idempotent."""
        if self.sub != NULL:
            store8(&self.sub.closed, 1)
            self.account.remove(self.sub)
            qs_retire(native_sub(self.sub))
            self.sub = NULL
        if self.si != NULL:
            if self.si.tr != NULL:
                qs_retire(self.si.tr)
            if self.si.se != NULL:
                export_release(self.si.se)
            qs_retire(self.si)
            self.si = NULL

    def subscription(self) -> tuple:
        """Return (subject, queue, sid, delivered, max), like a row of Client.subscriptions()."""
        return sub_row(self.sub)

    @property
    def share(self) -> bool:
        """Whether requests carry the details of their sender."""
        return load8(&self.si.share) != 0

    @share.setter
    def share(self, bint share):
        store8(&self.si.share, share)

    @property
    def invalid(self) -> bool:
        """Whether requests are refused, because the permission to import has ended."""
        return load8(&self.si.invalid) != 0

    @invalid.setter
    def invalid(self, bint invalid):
        store8(&self.si.invalid, invalid)
