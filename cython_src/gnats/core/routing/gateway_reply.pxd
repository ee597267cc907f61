"""The way back of a request that went over a gateway (mapped replies of gateway.go).

Interest in a requester's inbox takes other connections than its request, and may come later. So the server that sends a
request over a gateway *maps* its reply when the inbox is new: `_GR_.<cluster>.<server>.<reply>` names that server. A
client that gets the request sees the plain reply; its connection remembers the mapped one
(core.messages.mapped_replies). The server's own subscribers get the mapped reply, and publish to it.
core.routing.gateway_return sends such messages, and takes those that arrive.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.message cimport Message
from gnats.core.messages.reserved cimport CLUSTER_AT, HASH_N, MAPPED_N
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.state cimport ServerState
from gnats.includes.atomics cimport load_ptr_acquire


# A server that a mapped reply names, or a cluster.
cdef struct GatewayPlace:
    char hash[HASH_N]
    void *link             # borrowed Subscriber: the way there; GatewayReplies keeps it alive


# All that pollers read of a server's gateways: made anew for each change, and retired.
cdef struct GatewayTable:
    char prefix[MAPPED_N]  # of the replies that this server maps
    uint32_t nclusters, nservers
    GatewayPlace at[1]     # clusters, then servers of this cluster


cdef inline GatewayTable *gateway_table(ServerState server) noexcept nogil:
    """Return the table, good until the end of the batch; NULL: the server has no gateways."""
    return <GatewayTable *> load_ptr_acquire(&server.gateways)


# Return the link to the cluster, or to the server of this cluster, that a mapped reply names; NULL: there is none.
cdef void *cluster_link(const GatewayTable *t, const char *mapped) noexcept nogil
cdef void *server_link(const GatewayTable *t, const char *mapped) noexcept nogil


cdef inline bint names_cluster(const GatewayTable *t, const char *mapped) noexcept nogil:
    """Return whether a mapped reply is of this cluster."""
    return same_hash(mapped + CLUSTER_AT, t.prefix + CLUSTER_AT)


cdef bint names_server(const GatewayTable *t, const char *mapped) noexcept nogil
cdef bint same_hash(const char *a, const char *b) noexcept nogil
# Return the prefix, MAPPED_N bytes, to put before the reply of a message that is sent over a gateway in `account`.
# NULL: none. Matches the reply.
cdef const char *prefix_for(const Message *m, Account account) noexcept nogil
# A client is sent a request with a mapped reply: remember that. False without memory.
cdef bint remember_reply(Subscriber c, const Message *m) noexcept nogil
# Find the mapped reply of a plain one that a client publishes to. Return a copy, in few[:room] or memory to be freed;
# p is NULL: there is none. The owner's.
cdef Slice find_reply(Subscriber c, const Slice *plain, char *few, size_t room) noexcept nogil
# Forget what a client was sent long ago. The owner's.
cdef void sweep_replies(Subscriber c) noexcept nogil
