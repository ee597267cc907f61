"""The event loop's part of moving messages: pollers, accepting, long work in steps."""
