"""Put off removing wildcard subscriptions while their account waits for responses.

Removing one needs a search through all responses that the account waits for, for those without a subscriber left. The
search is made once for each account at the end of a batch, not for each subscription. Until then the subscriptions stay
in the sublist, closed, and no message is delivered through them.
"""
from gnats.core.accounts.account cimport Account
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.subjects.sublist cimport Subscription

# Put off the removal of `s`, which is closed and out of the client's table, to the end of the calling thread's batch.
# False: the caller must remove it now, since it need not wait or memory ran out.
cdef bint depart(Subscriber client, Account account, Subscription *s) noexcept nogil
# Remove the subscriptions that the calling thread has put off, at the end of its batch.
cdef void remove_departed() noexcept nogil
# The same before a new subscription is made, which would count as a subscriber to the replies. Do nothing when this
# batch's searches have taken too long.
cdef void remove_before_subscribing() noexcept nogil
