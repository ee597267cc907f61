"""The archive as an application for spark-submit, which sets the master, memory and cores."""

import sys

from pyspark.sql import SparkSession

from gnats.archive.cli import archive_main


def main() -> int:
    session = SparkSession.builder.appName("gnats archive").getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    try:
        return archive_main(sys.argv[1:], session)
    finally:
        session.stop()


if __name__ == "__main__":
    sys.exit(main())
