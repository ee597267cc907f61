"""Subscriptions whose messages a function of JetStream gets; see nativesubs.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from gnats.core.accounts.subscriptions cimport add_native_sub
from gnats.core.messages.message cimport MessageHandler, NativeSub


cdef Subscription *subscribe_native(
    Subscriber client, bytes subject, bytes queue, void *ctx, MessageHandler fn
) except NULL:
    cdef NativeSub native
    cdef Subscription *s
    cdef int error = 0
    native.ctx = ctx
    native.fn = fn
    s = add_native_sub(
        client, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), PyBytes_AS_STRING(queue),
        PyBytes_GET_SIZE(queue), &native, &error)
    if s == NULL:
        raise MemoryError if error == 0 else ValueError(f"invalid subject {subject!r}")
    return s
