"""The event loop's share of the work: pollers and their events, accepting, long work in steps."""
