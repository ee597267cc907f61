"""Installed as the package `pyspark_jetstream` (setup.py): where Spark looks for the source of a format.

With gnats installed, `spark.read.format("jetstream")` is there. An editable install is not looked through:
there, call `gnats.archive.spark.register(spark)`.
"""

from gnats.archive.spark.source import JetStreamSource as DefaultSource

__all__ = ["DefaultSource"]
