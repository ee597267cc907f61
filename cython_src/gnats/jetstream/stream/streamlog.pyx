"""The log of a stream on one server; see streamlog.pxd."""
from gnats.jetstream.stream.storing cimport store_entries

local_log.propose = store_entries
