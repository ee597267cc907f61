"""The format of the files: records, state files, checksums, compression, encryption."""
