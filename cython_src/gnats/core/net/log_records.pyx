"""The codes of log records; see log_records.pxd."""
