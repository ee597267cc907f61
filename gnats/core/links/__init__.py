"""Links to other servers."""
