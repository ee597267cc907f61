"""The log of a replicated stream: its Raft group (processClusteredInboundMsg, applyStreamEntries in nats-server).

On the server that leads, a checked message becomes a *flight*: it is proposed at the end of the poller's batch, and
what follows from it is checked as if it were stored already. When the group has committed it, each server stores it,
and the leader answers its publisher. What clients delete or purge is handed on to the control loop, in the log's order.

Of a stream that removes what its consumers have acknowledged, the leader decides when none of them needs a message, and
proposes to remove it. It does so, too, when a message that no consumer wants is published: a skip is proposed then.

A mirror has its origin's sequences. What is missing between its messages is skipped by an entry (deleteRangeOp), and by
each server for itself where a message comes that leaves a gap. A refused message is such a gap.

A message may be refused when it is stored: its sequence is left out, and `refused` counts it (`clfs` of nats-server),
since the number in an entry counts every message that was proposed.

Locks: a group's lock comes before its stream's. So a publisher, which has the stream's, only leaves its message.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

from gnats.jetstream.consumer.acked cimport Acked
from gnats.jetstream.state.entry cimport FastPattern
from gnats.jetstream.publish.inflight cimport InFlight, Staged
from gnats.jetstream.replica.raftnode cimport RaftNode
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.raft.messages cimport Entry


# A message that was proposed here, and is not stored yet. Its texts follow, in the same piece of memory. A range of
# sequences that get no message, and a confirmation, are flights without a subject.
cdef struct Flight:
    Staged staged            # `m`: subject and header alone; `entry`: what answers the publisher
    uint64_t seq             # as in StreamMsgOp
    uint64_t seqs            # how many it takes: 1, and 0 for a confirmation
    size_t bytes             # that it will use in the store
    bint confirms            # StreamLog.confirm: the header in `staged.m` goes to the entry's reply
    FastPattern fast
    char *proposal           # the entry, n bytes; NULL: proposed
    size_t n


# An entry of an atomic batch whose last one has not come.
cdef struct BatchPart:
    BatchPart *next
    size_t n
    char data[1]


cdef class StreamReplica:
    cdef readonly RaftNode node
    cdef readonly StreamCore stream
    # under the stream's lock
    cdef bint leads
    cdef bint knows              # all consumers that are assigned are here: this server may decide what they need
    cdef uint64_t next_seq       # `seq` of the next message to propose
    cdef int64_t last_ts         # of the last one that was proposed
    cdef readonly uint64_t refused
    cdef InFlight in_flight
    cdef Flight *last
    cdef Flight *unproposed      # the first that is not proposed yet
    cdef Acked unneeded          # messages whose removal is to be proposed
    cdef bytes removal           # the entry that removes one: what is before the sequence; owns the next
    cdef const char *removal_p
    cdef size_t removal_n
    # under the group's lock
    cdef bint replaying          # entries may come that were stored before this server's start
    cdef BatchPart *batch        # of the batch whose end has not come, and how many they are
    cdef BatchPart *batch_last
    cdef uint64_t batch_n
    cdef size_t batch_bytes
