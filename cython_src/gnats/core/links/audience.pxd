"""Whose interest a link tells its peer of: which subscriptions of an account count (updateSmap, updateLeafNodes).

A route tells of clients, the server itself, and, by origin, of the leaf nodes that this server is the hub of. A leaf
node tells its hub of clients, the server itself and its own leaf nodes. A hub tells a leaf node of everything, but for
what comes from the leaf node's own cluster. A gateway tells of everything in this server's cluster, and of the leaf
nodes that it is the hub of; it does not say how much of it there is.
"""
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport InterestSink
from gnats.core.subjects.trie cimport Interest, Node, Subscription


# InterestQueue.note of a route, of a leaf node,
cdef void note_for_route(
    InterestSink *sink, const Subscription *s, const Node *node, const Interest *before,
    const Interest *now) noexcept nogil
cdef void note_for_leaf(
    InterestSink *sink, const Subscription *s, const Node *node, const Interest *before,
    const Interest *now) noexcept nogil
# and of an inbound gateway.
cdef void note_for_gateway(
    InterestSink *sink, const Subscription *s, const Node *node, const Interest *before,
    const Interest *now) noexcept nogil
