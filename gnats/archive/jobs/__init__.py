"""Jobs on archives: archiving, compacting, verifying, restoring, and purging archived messages."""
