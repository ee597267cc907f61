"""The log of a member of a Raft group: terms, what is committed, and what another leader has replaced."""
from libc.stdint cimport uint32_t, uint64_t

from gnats.raft.messages cimport AppendEntry
from gnats.raft.state cimport Raft

# Fill in what comes before the n entries of this leader's next record.
cdef void own_append_entry(Raft *r, AppendEntry *ae, uint32_t n) noexcept nogil
# Get the term of a record. False: it is not in the log any more, or not yet.
cdef bint term_at(Raft *r, uint64_t index, uint64_t *term) noexcept nogil
# Commit the records up to an index.
cdef void commit_to(Raft *r, uint64_t index) noexcept nogil
# Remove the records behind an index, which another leader has replaced. False: it failed.
cdef bint cut_to(Raft *r, uint64_t index) noexcept nogil
# See whether this server, of which raft_distrust() was told, has what it has lost again.
cdef void regain_trust(Raft *r) noexcept nogil
