"""Streams for Spark: the data source `jetstream`, and the archive job as an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register the data source `jetstream`, where Spark does not find it by itself."""
    from gnats.archive.spark.source import JetStreamSource

    spark.dataSource.register(JetStreamSource)
