"""On a single server a stream has no log: store proposed entries at once. Where it has one: jetstream/replica.

A log is given checked entries (StreamLog.propose) and other changes (StreamLog.change), and calls store_entries() or
apply_change() for each, in the log's order. The stream's lock is held.
"""
from gnats.jetstream.state.streamcore cimport StreamLog

cdef StreamLog local_log
