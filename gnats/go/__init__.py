"""Numbers, texts, times and JSON, read and written as Go does."""
