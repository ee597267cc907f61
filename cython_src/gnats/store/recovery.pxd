"""Recovery: makes a store from the directory of a stream (recoverMsgs of filestore.go).

Where index.db fits the blocks, only the records after it are read. Otherwise every record is read and checked. A torn
record at the end of the last block is cut off. Damage anywhere else costs the records that cannot be read, and no
record after them. Losses are reported; no file is removed for them.
"""
from gnats.store.base cimport StoreBase

# Open `msgs` of a directory, fill the store from it and enforce the limits. Call warn(str) for each problem.
# Raises OSError or MemoryError. No other thread has the store yet.
cdef object recover(StoreBase s, str directory, object warn)
