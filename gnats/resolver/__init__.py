"""Where account JWTs come from: memory, a URL, directories."""
