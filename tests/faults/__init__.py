"""Kill servers, damage files and fail calls, and check what is left."""
