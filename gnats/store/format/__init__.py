"""The bytes of the files: records, checksums, compression, encryption."""
