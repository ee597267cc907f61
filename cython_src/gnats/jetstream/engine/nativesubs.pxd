"""Subscriptions whose messages a function of JetStream gets, in the thread that routes them."""
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.message cimport MessageHandler
from gnats.core.subjects.sublist cimport Subscription


# Have `fn` called with `ctx`, which the caller keeps alive, for each message on a subject; queue b"": of no group.
# Raises MemoryError, ValueError for an invalid subject.
cdef Subscription *subscribe_native(
    Subscriber client, bytes subject, bytes queue, void *ctx, MessageHandler fn) except NULL
