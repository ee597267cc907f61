"""Three questions to an archived stream, and a plot: python archive_questions.py ARCHIVE STREAM OUT.png

Needs pip install gnats[spark] matplotlib. The cells (# %%) are those of a notebook.
"""

# %% An archive is a table. Account, stream and date are directories: Spark reads those that are asked for.
import sys

import matplotlib
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

archive, stream, image = sys.argv[1:]
spark = SparkSession.builder.appName("questions").getOrCreate()
messages = spark.read.parquet(archive).where(f.col("stream") == stream)

# %% 1. Which subjects have the most messages, and how many bytes?
subjects = (
    messages.groupBy("subject")
    .agg(f.count("*").alias("messages"), f.sum("size").alias("bytes"))
    .orderBy(f.desc("messages"), "subject")
    .limit(10)
    .collect()
)
if not subjects:
    sys.exit(f"{archive} has no messages of a stream {stream}")
for row in subjects:
    print(f"{row.subject:30} {row.messages:>10,} messages {row.bytes:>14,} bytes")

# %% 2. How many messages came in each minute?
minute = f.date_trunc("minute", "time").alias("minute")
rate = messages.groupBy(minute).count().orderBy("minute").collect()
print(f"{len(rate)} minutes, at most {max(row['count'] for row in rate):,} messages in one")

# %% 3. Where are sequences missing? They were deleted, or expired before they were archived.
bounds = messages.agg(f.min("sequence"), f.max("sequence"), f.count("*")).first()
missing = bounds[1] - bounds[0] + 1 - bounds[2]
print(f"sequences {bounds[0]:,} to {bounds[1]:,}: {bounds[2]:,} messages, {missing:,} missing")

# %% The plot.
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
left.barh([row.subject for row in subjects][::-1], [row.messages for row in subjects][::-1])
left.set_title(f"messages of {stream} by subject")
right.plot([row.minute for row in rate], [row["count"] for row in rate])
right.set_title("messages a minute")
figure.autofmt_xdate()
figure.tight_layout()
figure.savefig(image)
print(image)
spark.stop()
