"""The log of a stream on one server; see streamlog.pxd."""
from gnats.jetstream.stream.storing cimport apply_change, store_entries

local_log.propose = store_entries
local_log.change = apply_change
