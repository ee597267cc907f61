"""Messages from their publisher to their subscribers (processMsgResults and deliverMsg of client.go).

The publisher's poller walks the match result. A subscriber whose messages a function takes (a stream, a consumer, an
imported service) comes after all others.
"""
from gnats.core.message cimport Message
from gnats.core.sublist cimport MatchResult, Sublist


cdef enum RouteOutcome:
    ROUTE_NOBODY           # no subscriber received it
    ROUTE_DELIVERED
    ROUTE_NO_MEMORY        # for the match: nothing was done


# Deliver a message to the subscribers of its subject in an account's sublist.
cdef RouteOutcome route(const Message *m, Sublist sublist) noexcept nogil
# The same to those of a match result. The publisher is closed when memory runs out on the way.
cdef RouteOutcome process_msg_results(const Message *m, const MatchResult *r) noexcept nogil
