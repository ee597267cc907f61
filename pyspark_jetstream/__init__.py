"""Where Spark looks for data sources: with gnats installed, `spark.read.format("jetstream")` is there."""

from gnats.archive.spark.source import JetStreamSource as DefaultSource

__all__ = ["DefaultSource"]
