"""The log of a consumer with replicas: its Raft group (applyConsumerEntries in jetstream_cluster.go).

Each server that has the consumer keeps `committed`, the stored state that the group's log has led to. The server that
leads has a Consumer besides, which begins with a copy, and delivers. What that proposes counts there at once, so it is
ahead of `committed`; a message or an answer that follows from it leaves when it is committed (`Proposals`). When the
server does not lead any more, the Consumer and what was not committed are forgotten.

Of a stream that removes what its consumers have acknowledged, a ConsumerReplica is in the list of consumers itself: it
says which messages the group still needs. What is acknowledged is released when the group's lock is free.

Locks: a group's lock comes before its consumer's. So a consumer only leaves its proposals, and the group takes them at
the end of the poller's batch.
"""
from libc.stdint cimport uint32_t, uint64_t

from gnats.jetstream.consumer.acked cimport Acked
from gnats.jetstream.consumer.consumerstate cimport ConsumerState
from gnats.jetstream.consumer.proposals cimport Proposals
from gnats.jetstream.consumer.settings cimport ConsumerSettings
from gnats.jetstream.consumer.stored cimport StoredState
from gnats.jetstream.engine.consumerbase cimport ConsumerBase
from gnats.jetstream.replica.raftnode cimport RaftNode
from gnats.jetstream.state.streamcore cimport StreamCore


# A pull request at the leader: whoever leads next tells its client to ask again.
cdef struct KnownRequest:
    KnownRequest *next
    uint32_t n
    char reply[1]


cdef class ConsumerReplica(ConsumerBase):
    cdef readonly RaftNode node
    cdef readonly StreamCore stream
    cdef readonly str name
    # under the group's lock
    cdef ConsumerSettings cfg      # of these, what the stored state needs
    cdef StoredState committed
    cdef bint has_state            # the log or a snapshot has led to `committed`: it is more than the beginning
    cdef bint leads
    cdef uint64_t term             # of which `leads` is
    cdef void *consumer            # the Consumer that delivers, borrowed; NULL: none
    cdef Proposals taken           # an empty one, for the consumer's
    cdef KnownRequest *requests    # that wait at another server, which leads
    cdef uint32_t nrequests
    cdef Acked acked               # messages that the stream may remove as far as this consumer is concerned
    cdef bint retains              # the stream keeps messages for its consumers
    # of the control loop alone
    cdef ConsumerState kept        # owns `consumer`
    cdef bint listed               # it is in the stream's list
    cdef list filters              # the subjects of `filter`

    cdef int refilter(self, config) except -1
