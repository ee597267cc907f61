"""The base of the data plane: deferred freeing, timers, clock, inbox, hash tables, shared state."""
