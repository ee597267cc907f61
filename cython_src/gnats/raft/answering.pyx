"""What a follower of a Raft group says to its leader about the log; see answering.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memmove

from gnats.core.runtime.slice cimport Slice
from gnats.includes.arrays cimport array_grow
from gnats.raft.messages cimport RESPONSE_SIZE, Response, put_response
from gnats.raft.state cimport RAFT_NO_MEMORY, SEND_ANSWER, SUBJECT_ROOM, Answer, Raft, RaftSend, fail

cdef enum:
    FIRST = 4                  # places of an array that grows


cdef void answer(
    Raft *r, RaftSend to, const Slice *subject, uint64_t term, uint64_t index, bint success
) noexcept nogil:
    cdef char[RESPONSE_SIZE] data
    cdef Response response
    response.term, response.index, response.peer, response.success = term, index, r.id, success
    put_response(data, &response)
    r.env.send(r.owner, to, subject, data, RESPONSE_SIZE)


cdef void answer_when_durable(Raft *r, const Slice *subject) noexcept nogil:
    cdef Answer *a
    if subject.n == 0 or subject.n > SUBJECT_ROOM:
        return
    if r.nanswers == r.answers_room and not array_grow(&r.answers, &r.answers_room, FIRST, sizeof(Answer)):
        fail(r, RAFT_NO_MEMORY)
        return
    a = &r.answers[r.nanswers]
    a.index, a.term = r.pindex, r.pterm
    a.subject_n = subject.n
    memcpy(a.subject, subject.p, subject.n)
    r.nanswers += 1
    send_answers(r)


cdef void send_answers(Raft *r) noexcept nogil:
    cdef size_t n = 0
    cdef Slice subject
    if r.saving or r.failure:
        return
    while n < r.nanswers and r.answers[n].index <= r.durable:
        subject.p, subject.n = r.answers[n].subject, r.answers[n].subject_n
        answer(r, SEND_ANSWER, &subject, r.answers[n].term, r.answers[n].index, True)
        n += 1
    if n:
        r.nanswers -= n
        memmove(r.answers, r.answers + n, r.nanswers * sizeof(Answer))
