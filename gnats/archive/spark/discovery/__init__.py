"""Installed as the package `pyspark_jetstream` (setup.py), where Spark finds data sources by their format.

With gnats installed, `spark.read.format("jetstream")` works. Spark does not search editable installs: call
`gnats.archive.spark.register(spark)` there.
"""

from gnats.archive.spark.source import JetStreamSource as DefaultSource

__all__ = ["DefaultSource"]
