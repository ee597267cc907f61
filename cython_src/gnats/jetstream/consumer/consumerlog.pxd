"""The log of a consumer that one server has: proposed entries are applied at once (consumerFileStore in filestore.go).

A consumer with replicas has gnats.jetstream.replica.consumerreplica instead.
"""
from gnats.jetstream.consumer.consumerstate cimport ConsumerLog

cdef ConsumerLog local_consumer_log
