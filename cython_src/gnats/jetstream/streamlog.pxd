"""The log of a stream on one server: what is proposed is stored at once.

A log takes entries that have been checked (StreamLog.propose), and has them stored by store_entry() in its order. The
lock of the stream is held.
"""
from gnats.jetstream.streamcore cimport StreamLog

cdef StreamLog local_log
