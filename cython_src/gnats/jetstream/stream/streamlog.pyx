"""Store proposed entries of a stream at once; see streamlog.pxd."""
from gnats.jetstream.stream.storing cimport apply_change, store_entries

local_log.propose = store_entries
local_log.change = apply_change
