"""Streams for Spark: the data source `jetstream`, and the archive job as an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, push_filters: bool = False) -> None:
    """Registers the data source `jetstream`. Spark finds it by itself as well; this is for one with filters
    pushed down (PySpark 4.1 and later), so that they choose the blocks that are read.

    Spark (4.1 to 4.3) keeps what it has planned for the first filters of a table, and takes it for a later
    query without any: with push_filters *each query needs a table of its own*, a new load(). Options
    (firstSeq, startTime, subject ...) choose blocks without that restriction."""
    from gnats.archive.spark.source import FilteringJetStreamSource, JetStreamSource, can_push_filters

    if push_filters and can_push_filters():
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        spark.dataSource.register(FilteringJetStreamSource)
    else:
        spark.dataSource.register(JetStreamSource)
