"""The arguments of a message that another server sends: RMSG, HMSG and LMSG."""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t

from gnats.core.messages.message cimport Message, RemoteArgs

cdef enum:
    REMOTE_OK
    REMOTE_BAD_ARGS
    REMOTE_BAD_INDICATOR
    REMOTE_BAD_HEADER_SIZE
    REMOTE_BAD_SIZE
    REMOTE_HEADER_OVER_SIZE
    REMOTE_NO_MEMORY


cdef extern from * nogil:
    """
    #define GNATS_WITH_REPLY '+'
    #define GNATS_WITHOUT '|'
    #define GNATS_PASSED_WITH_REPLY '*'
    #define GNATS_PASSED '!'
    """
    # What stands before the names of queue groups. The last two are of gnats servers alone: a message that is passed on
    # to groups only, since the members that were meant have gone (RemoteArgs.passed).
    char WITH_REPLY "GNATS_WITH_REPLY"
    char WITHOUT "GNATS_WITHOUT"
    char PASSED_WITH_REPLY "GNATS_PASSED_WITH_REPLY"
    char PASSED "GNATS_PASSED"


# Which arguments there are, by the verb and the kind of the connection.
cdef struct RemoteForm:
    uint8_t origin
    uint8_t account
    uint8_t header       # the header's size


# Read [origin] [account] subject [reply | + reply queues... | '|' queues...] [header size] size, with * for + and ! for
# '|' in what is passed on. Set subject, reply and the texts of the sizes in `m`; hdr[0] is -1 without a header size.
# Slices are of `arg`. After REMOTE_BAD_INDICATOR, r.queues[0] is what stands there instead.
cdef int read_remote_msg(
    RemoteArgs *r, const RemoteForm *form, char *arg, size_t n, Message *m, int32_t *size, int32_t *hdr) noexcept nogil
