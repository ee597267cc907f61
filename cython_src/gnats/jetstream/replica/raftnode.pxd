"""A member of a Raft group in a server (raft.go): its messages, its timer, its files, what it has committed.

The state machine is gnats.raft.raft, its files gnats.raft.files. The other members are reached by messages of the
system account, on nats-server's subjects ($NRG): native subscriptions hand them to the state machine in the thread of
the poller that routes them, and what it sends leaves at the end of that poller's batch. So do records that wait to be
written; they count as durable then, or, with `sync_interval: always`, once the engine's sync thread has synced them.
Term and vote are always synced by that thread before an answer or a request for votes leaves.

Committed entries wait in a queue for Python: RaftNode.take(), of which the control loop is told by an event. A group
with a RaftMachine gives them to that instead, in the thread that commits them, and Python the few that it hands on.

Lock: `lock` guards all of it but what a comment says otherwise; the log's store has its own, taken after it, and so
have a machine's stream and its consumers. It is taken without the GIL.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.internal cimport InternalSubscriber
from gnats.core.messages.message cimport MessageHandler
from gnats.core.net.pollstate cimport PollState
from gnats.includes.pthread cimport pthread_cond_t, pthread_mutex_t
from gnats.jetstream.engine.barrier cimport JsPoller, StreamBase
from gnats.jetstream.engine.engine cimport Engine, JsTimer
from gnats.raft.files cimport RaftFiles
from gnats.raft.messages cimport AppendEntry, Entry
from gnats.raft.state cimport SUBJECT_ROOM, Raft

cpdef enum:
    RAFT_NEWS = 1           # `a` of an EV_JETSTREAM: take() has something to return


cpdef enum:
    APPLIED_ENTRIES = 1     # a record is committed; data: its entries, encoded
    APPLIED_SNAPSHOT        # the state is to be replaced by that of a snapshot; data: the snapshot's
    APPLIED_LEAD            # this server leads from now on, in the term `index`,
    APPLIED_FOLLOW          # or does not any more
    APPLIED_TRUST           # records that were lost to damage are there again
    APPLIED_LEADER          # the peer with the id `index` leads as far as this server knows; 0: none is known
    APPLIED_CHANGE          # an entry that a machine has handed on; data: the entry. What follows waits for resume()
    APPLIED_SOME            # a machine's state is not that of the last snapshot any more
    APPLIED_MUCH            # much was applied since the last snapshot


cdef struct Applied:
    Applied *next
    uint64_t index
    size_t n
    uint32_t entries        # how many the data has
    uint32_t kind
    char data[1]


cdef class RaftNode(StreamBase)


cdef enum Carried:
    CARRIED_OUT
    HANDED_ON               # it is Python's
    NOT_CARRIED             # that was not possible: the group stops


# What carries a group's entries out. `o` is the owner's; the group's lock is held.
cdef struct RaftMachine:
    # Propose what waits, by propose_entry().
    void (*collect)(void *o, RaftNode node) noexcept nogil
    # Carry an entry out.
    Carried (*apply)(void *o, JsPoller *jp, const Entry *entry) noexcept nogil
    # This server leads from now on, in a term, or not any more.
    void (*lead_changed)(void *o, bint leads, uint64_t term) noexcept nogil
    # Do what carrying out has left to do when no lock is held. NULL: nothing.
    void (*settle)(void *o, JsPoller *jp) noexcept nogil


cdef struct Inbox:          # a subject of this member
    char[SUBJECT_ROOM] p
    size_t n


cdef class RaftNode(StreamBase):
    cdef pthread_mutex_t lock
    cdef pthread_cond_t left         # `outside` is 0 again
    cdef uint32_t outside            # threads that use the files without the lock
    cdef const RaftMachine *machine  # NULL: take() returns the entries
    cdef void *machine_owner         # borrowed
    cdef bint held                   # the machine waits: begin() or resume() has it go on
    cdef bint busy                   # take() has returned what resume() is to be called for
    cdef Raft raft
    cdef readonly RaftFiles files
    cdef Engine engine
    cdef InternalSubscriber client
    cdef readonly str group
    cdef Inbox append_subject, vote_subject, proposal_subject
    cdef Inbox append_reply, vote_reply
    cdef Inbox catchup              # the inbox of the catch-up that is under way, with its number; n 0: none
    cdef size_t catchup_root         # bytes before that number
    cdef uint64_t catchups
    cdef PollState *ps               # of the thread that has the lock
    cdef JsTimer timer
    cdef int64_t armed               # deadline that the timer has, 0: none
    cdef bint reserved
    cdef bint sync_always
    cdef bint begun
    cdef bint closed
    cdef bint dirty                  # what is in memory is to be flushed at the end of this batch
    cdef uint64_t flushed            # records up to here are written,
    cdef uint64_t synced_to          # and synced
    cdef uint64_t cuts               # how often records were removed from the log's end
    cdef bint vote_waits             # term and vote are not written yet
    cdef bint vote_written
    cdef bint sync_failed
    cdef Applied *first_applied
    cdef Applied **last_applied
    cdef size_t applied_bytes
    cdef uint64_t shown_leader       # the last one that was noted for the control loop
    cdef bint poked                  # the timer was armed by poke()
    cdef bint told                   # the control loop was told of the queue, or of the failure
    cdef uint64_t since              # bytes of entries that a machine has carried out since the last snapshot
    cdef uint8_t said                # APPLIED_SOME or APPLIED_MUCH was noted since the last snapshot

    # Have a machine carry the entries out. Call it before recover().
    cdef void set_machine(self, const RaftMachine *machine, void *owner) noexcept
    # For RaftMachine.collect(). False: this server does not lead any more.
    cdef bint propose_entry(self, const char *data, size_t n) noexcept nogil
    # Have RaftMachine.collect() called soon. Any thread without a lock; needs no memory.
    cdef void poke(self) noexcept nogil
    # Have the machine carry out a record. Return what Python has to do first, and the rest of the record; or NULL.
    cdef Applied *carry_out(self, uint64_t index, const char *entries, size_t n) noexcept nogil
    # Have the machine carry out what waits in the queue, up to what is Python's.
    cdef void go_on(self) noexcept nogil
    # Note how much a machine has applied since the last snapshot.
    cdef void note_applied(self) noexcept nogil
    cdef bint has_news(self) noexcept nogil
    cdef Applied *cut_queue(self) noexcept nogil
    cdef void append(self, Applied *a) noexcept nogil
    cdef void release(self) noexcept
    # Begin and end to use the files without the lock, which is held for it. False: they are being closed.
    cdef bint go_outside(self) noexcept nogil
    cdef void come_back(self) noexcept nogil
    cdef void enter(self, PollState *ps) noexcept nogil
    cdef void leave(self) noexcept nogil
    cdef void note(self, uint32_t kind, uint64_t index, uint32_t entries, const char *data, size_t n) noexcept nogil
    cdef int subscribe(self, bytes subject, MessageHandler fn) except -1
    cdef bint ask(self, int what, uint64_t number, const char *data, size_t n) noexcept
