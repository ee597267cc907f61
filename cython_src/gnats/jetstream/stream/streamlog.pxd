"""The log of a stream on one server: apply all that is proposed at once.

A log is given checked entries (StreamLog.propose) and other changes (StreamLog.change), and calls store_entries() or
apply_change() for each, in the log's order. The stream's lock is held.
"""
from gnats.jetstream.state.streamcore cimport StreamLog

cdef StreamLog local_log
