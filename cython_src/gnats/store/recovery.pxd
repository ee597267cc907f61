"""Opening the directory of a stream: its blocks become a store's again (recoverMsgs of filestore.go).

The state that was written last (index.db) is taken when nothing was stored since. Otherwise every record is read and
checked. A torn record at the end of the last block is cut off. Damage anywhere else costs the records that cannot be
read, and nothing behind them; what is lost is reported, and no file is removed for it.
"""
from gnats.store.base cimport StoreBase

# Opens `msgs` of a directory and fills the store; then the limits apply. Raises OSError.
cdef object recover(StoreBase s, str directory, object warn)
