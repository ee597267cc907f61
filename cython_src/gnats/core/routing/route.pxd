"""Route a message to its subscribers (processMsgResults and deliverMsg of client.go).

The publisher's poller walks the match result. *Native* subscribers, whose messages a function handles (streams,
consumers, imported services), come after all others.
"""
from gnats.core.messages.message cimport Message
from gnats.core.subjects.match_cache cimport results_match
from gnats.core.subjects.sublist cimport MatchResult, Sublist
from gnats.includes.atomics cimport unlikely


cdef enum RouteOutcome:
    ROUTE_NOBODY           # no subscriber received it
    ROUTE_DELIVERED
    ROUTE_NO_MEMORY        # no memory for the match: nothing was done


# Deliver a message to the subscribers of a match result. When memory runs out on the way, the publisher is closed.
cdef RouteOutcome process_msg_results(const Message *m, const MatchResult *r) noexcept nogil


cdef inline RouteOutcome route(const Message *m, Sublist sublist) noexcept nogil:
    """Deliver a message to the subscribers of its subject in `sublist`."""
    cdef MatchResult *r = results_match(&m.ps.cache, sublist, m.subject.p, m.subject.n)
    if unlikely(r == NULL):
        return ROUTE_NO_MEMORY
    if r.npsubs == 0 and r.nqgroups == 0:
        return ROUTE_NOBODY
    return process_msg_results(m, r)
