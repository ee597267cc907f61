"""Subscriptions with wildcards that clients undo while their account waits for responses.

Which responses nobody waits for any more is a question about all that are waited for. It is asked once for each account
at the end of a batch, not once for each subscription: until then they stay in the sublist, closed, and nobody is served
through them.
"""
from gnats.core.account cimport Account
from gnats.core.subscriber cimport Subscriber
from gnats.core.sublist cimport Subscription

# `s`, closed and out of the client's table, is taken out of the sublist and retired at the end of the batch that the
# calling thread is in. False: it is not to be put off, or there is no memory for that.
cdef bint depart(Subscriber client, Account account, Subscription *s) noexcept nogil
# Do what the calling thread has put off, at the end of its batch.
cdef void settle_departures() noexcept nogil
# Do it before somebody subscribes, who would seem to have been there: unless the searches of this batch take too long.
cdef void settle_before_subscribing() noexcept nogil
