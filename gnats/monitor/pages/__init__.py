"""The pages: what the server knows about itself, as plain data."""
