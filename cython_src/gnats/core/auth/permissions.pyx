"""Permissions of a user, compiled; see permissions.pxd."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp

from weakref import WeakValueDictionary

from gnats.go.text import quote

from gnats.core.runtime.kinds cimport CLIENT, LEAF
from gnats.core.subjects.subject cimport is_valid_subject, subject_has_wildcard, subject_is_subset_match
from gnats.core.subjects.sublist cimport MatchResult, Sublist
from gnats.core.subjects.trie cimport ARRIVE, Node, Walk, has_empty_token, next_group, walk_next
from gnats.includes.text cimport starts_with_text
from gnats.includes.units cimport SECOND

cdef uint64_t made = 0   # Permissions made; under the GIL

# Equal permissions are compiled once and shared while in use.
_compiled = WeakValueDictionary()

DEFAULT_MAX_RESPONSES = 1
DEFAULT_RESPONSE_EXPIRES = 120.0


cdef struct Interest:
    bint plain     # an entry without a queue group matches
    bint queued    # an entry with a queue group matches
    bint named     # the matching entry's queue group is the one asked about


cdef inline bint queue_matches(const Node *group, const char *queue, size_t qn) noexcept nogil:
    # Compare the name first: `*` and `>` may be part of a group's name, too.
    if group.token_len == qn and memcmp(group.token, queue, qn) == 0:
        return True
    return subject_has_wildcard(group.token, group.token_len) and subject_is_subset_match(
        queue, qn, group.token, group.token_len)


cdef Interest interest(Sublist sl, const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil:
    """Return which entries of a list match; wildcards in `subject` are ordinary tokens, which only wildcards match."""
    cdef Walk w
    cdef Interest found
    cdef Node *node
    cdef Node *group
    found.plain = found.queued = found.named = False
    if has_empty_token(subject, n):
        return found
    w.edges = &sl.edges
    w.subject = subject
    w.n = n
    w.node = sl.root
    w.start = 0
    w.open = 0
    w.step = ARRIVE
    node = walk_next(&w)
    while node != NULL:
        if node.nsubs:
            found.plain = True
            if qn == 0:
                return found
        if qn:
            group = node.below.groups
            while group != NULL:
                found.queued = True
                found.named = found.named or queue_matches(group, queue, qn)
                group = next_group(group)
        node = walk_next(&w)
    return found


cdef inline bint is_mqtt(const char *subject, size_t n) noexcept nogil:
    return starts_with_text(subject, n, b"$MQTT.")


@cython.final
@cython.no_gc
cdef class Permissions:
    """A compiled gnats.options.values.auth.Permissions; made by compile_permissions."""

    def __cinit__(self, source):
        global made
        cdef list errors = []
        publish, subscribe, response = source.publish, source.subscribe, source.response
        made += 1
        self.id = made
        self.entries = []
        if publish is not None:
            if publish.allow is not None:
                self.pub_allow = publish_list(publish.allow, "", self.entries, errors)
            if publish.deny:
                self.pub_deny = publish_list(publish.deny, "deny ", self.entries, errors)
        if response is not None:
            if self.pub_allow is None:
                self.pub_allow = Sublist()   # replies only
            self.responses = True
            self.max_responses = response.max_msgs or DEFAULT_MAX_RESPONSES
            self.response_expires = round((response.expires or DEFAULT_RESPONSE_EXPIRES) * SECOND)
        if subscribe is not None:
            # An empty list allows everything here; it allows nothing in `publish`.
            if subscribe.allow:
                self.sub_allow = subscribe_list(subscribe.allow, self.entries, errors)
            if subscribe.deny:
                self.sub_deny = subscribe_list(subscribe.deny, self.entries, errors)
        self.restricts_publish = self.pub_allow is not None or self.pub_deny is not None
        self.restricts_delivery = self.sub_deny is not None
        self.errors = tuple(errors)

    cdef bint pub_allowed(self, int kind, const char *subject, size_t n) noexcept nogil:
        if self.pub_allow is not None and (kind == CLIENT or not is_mqtt(subject, n)):
            if not interest(self.pub_allow, subject, n, NULL, 0).plain:
                return False
        return self.pub_deny is None or not interest(self.pub_deny, subject, n, NULL, 0).plain

    cdef bint can_subscribe(
        self, int kind, const char *subject, size_t n, const char *queue, size_t qn
    ) noexcept nogil:
        cdef Interest found
        cdef bint allowed
        if self.sub_allow is not None and (kind == CLIENT or not is_mqtt(subject, n)):
            found = interest(self.sub_allow, subject, n, queue, qn)
            allowed = found.named if found.queued else found.plain
            if not allowed and kind == LEAF and subject_has_wildcard(subject, n):
                # A leaf node may subscribe to a wider subject: it is sent the part that is allowed.
                allowed = overlaps(self.sub_allow, subject, n, True)
            if not allowed:
                return False
        return not self.delivery_denied(subject, n, queue, qn)

    cdef bint needs_filter(self, const char *subject, size_t n, size_t qn) noexcept nogil:
        return (
            self.sub_deny is not None
            and (qn > 0 or subject_has_wildcard(subject, n))
            and overlaps(self.sub_deny, subject, n, False))

    cdef bint delivery_denied(
        self, const char *subject, size_t n, const char *queue, size_t qn
    ) noexcept nogil:
        cdef Interest found
        if self.sub_deny is None:
            return False
        found = interest(self.sub_deny, subject, n, queue, qn)
        return found.plain or found.named

    def publish_allowed(self, bytes subject not None, int kind=CLIENT) -> bool:
        """Return whether this subject may be published to, without regard to replies."""
        return self.pub_allowed(kind, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))

    def subscribe_allowed(self, bytes subject not None, bytes queue not None=b"", int kind=CLIENT) -> bool:
        """Return whether this subject may be subscribed to, in a queue group unless `queue` is empty."""
        return self.can_subscribe(
            kind, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject),
            PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue))

    def filters(self, bytes subject not None, bytes queue not None=b"") -> bool:
        """Return whether such a subscription makes deliveries be checked."""
        return self.needs_filter(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), PyBytes_GET_SIZE(queue))

    def delivery_refused(self, bytes subject not None, bytes queue not None=b"") -> bool:
        """Return whether a delivery of this subject to a subscription in this queue group is denied."""
        return self.delivery_denied(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue))


cdef bint overlaps(Sublist sl, const char *subject, size_t n, bint plain_only) noexcept nogil:
    """Return whether an entry and `subject` have a literal subject in common; True without memory."""
    cdef MatchResult *r = sl.reverse_match(subject, n)
    cdef bint found = r == NULL or r.npsubs > 0 or (r.nqgroups > 0 and not plain_only)
    free(r)
    return found


cdef Sublist publish_list(subjects, str what, list entries, list errors):
    cdef Sublist out = Sublist()
    cdef bytes subject
    for entry in subjects:
        subject = encoded(entry)
        if not is_valid_subject(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)):
            pair = split_subject_queue(entry) if what else None
            if pair is None:
                errors.append(f"invalid publish {what}subject {quote(entry)}")
                continue
            # A queue group means nothing for publishing: deny the subject all the same.
            errors.append(f"queue qualifier is not valid for publish deny subject {quote(entry)}")
            subject = pair[0]
        entries.append(out.subscribe(subject))
    return out


cdef Sublist subscribe_list(subjects, list entries, list errors):
    cdef Sublist out = Sublist()
    for entry in subjects:
        pair = split_subject_queue(entry)
        if pair is None:
            errors.append(f"invalid subject-queue {quote(entry)}")
        else:
            entries.append(out.subscribe(pair[0], pair[1]))
    return out


cdef bytes encoded(str text):
    return text.encode("utf-8", "surrogateescape")


cdef split_subject_queue(str entry):
    """Split "subject [queue]" into (subject, queue or b""), or return None when it is no such text."""
    cdef list words = entry.split()
    cdef bytes word
    if not 1 <= len(words) <= 2:
        return None
    words = [encoded(text) for text in words]
    for word in words:
        if not is_valid_subject(PyBytes_AS_STRING(word), PyBytes_GET_SIZE(word)):
            return None
    return words[0], words[1] if len(words) == 2 else b""


def compile_permissions(source) -> Permissions:
    """Compile a gnats.options.values.auth.Permissions. Equal ones share the result."""
    cdef Permissions compiled = _compiled.get(source)
    if compiled is None:
        compiled = Permissions(source)
        _compiled[source] = compiled
    return compiled
