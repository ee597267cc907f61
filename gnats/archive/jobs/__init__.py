"""What is done with archives: runs, compaction, verification, restoring."""
