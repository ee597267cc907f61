"""Read streams from their files, in a store directory or a backup."""
