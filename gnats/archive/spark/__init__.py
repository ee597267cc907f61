"""Streams for Spark: the data source `jetstream`, and the archive job as an application."""
