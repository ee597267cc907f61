"""The log of a stream on one server: store each proposed entry at once.

A log is given checked entries (StreamLog.propose) and calls store_entries() for each, in the log's order. The stream's
lock is held.
"""
from gnats.jetstream.state.streamcore cimport StreamLog

cdef StreamLog local_log
