"""The data source and the job in Spark, on two cores of this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StringType, StructField, StructType

from gnats.archive.engine import Spark
from gnats.archive.errors import ArchiveError
from gnats.archive.job import Silent
from gnats.archive.job import archive as run_archive
from gnats.archive.spark import register
from gnats.archive.target import Target

from .stores import DAY, SMALL, START, Writing, listed, no_java, plain

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(no_java(), reason="Java is not installed (Debian package default-jre-headless)"),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")  # nothing depends on it
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    register(session)  # in an editable install Spark does not find it by itself
    yield session
    session.stop()


def table(spark: SparkSession, orders: Writing, **options: object) -> DataFrame:
    reader = spark.read.format("jetstream").option("stream", "ORDERS").option("taskBytes", "40000")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(orders.root))


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.orderBy("sequence").collect()]


def test_a_stream_as_a_table(spark: SparkSession, orders: Writing) -> None:
    orders.publish(1000)
    orders.remove(5, 6)
    frame = table(spark, orders)
    assert frame.rdd.getNumPartitions() > 2
    found = rows(frame)
    assert plain([row | {"payload": bytes(row["payload"])} for row in found]) == orders.rows
    assert found[0]["account"] == "$G"
    assert found[0]["stream"] == "ORDERS"
    assert found[7]["headers"] == {"N": ["10"], "Two": ["a", "b"]}
    assert found[0]["headers"] is None
    at = frame.where("sequence = 1").select(f.unix_micros("time")).head()
    assert at is not None
    assert at[0] == orders.rows[1][1] // 1000
    assert rows(frame.select("sequence"))[:2] == [{"sequence": 1}, {"sequence": 2}]
    assert frame.count() == 998


CONDITIONS = [
    "sequence = 500",
    "sequence > 900 and sequence <= 950",
    "sequence in (3, 700)",
    "sequence >= 5000",
    f"time_ns < {START + 10**9}",
    "time >= timestamp'2025-10-10 00:00:00 UTC' and time < timestamp'2025-10-12 00:00:00 UTC'",
    "time = timestamp'2025-10-10 00:00:00 UTC'",
    "subject = 'orders.3'",
    "subject in ('orders.3', 'orders.1')",
    "subject like 'orders.%'",
    "subject = 'orders.*'",
    "subject = 'orders.1' and subject = 'orders.2'",
    "headers is null and size > 3",
]


def test_filters_choose_blocks_and_change_nothing_else(
    spark: SparkSession, orders: Writing, out: Path
) -> None:
    orders.publish(1000, step=DAY // 200)
    table(spark, orders).write.parquet(str(out))
    everything = spark.read.parquet(str(out))
    register(spark, push_filters=True)
    try:
        for condition in CONDITIONS:
            expected = [row["sequence"] for row in rows(everything.where(condition))]
            found = [row["sequence"] for row in rows(table(spark, orders).where(condition))]
            assert found == expected, condition
        whole = table(spark, orders).rdd.getNumPartitions()
        for few in ("sequence > 990", "time >= timestamp'2025-10-14 00:00:00'"):
            assert 0 < table(spark, orders).where(few).rdd.getNumPartitions() < whole
    finally:
        register(spark)


def test_a_table_serves_many_queries(spark: SparkSession, orders: Writing) -> None:
    orders.publish(100)
    frame = table(spark, orders)
    assert [frame.where("sequence > 90").count(), frame.count()] == [10, 100]
    orders.publish(1)
    assert table(spark, orders).count() == 101


def test_options_choose_as_well(spark: SparkSession, orders: Writing) -> None:
    orders.publish(300, step=DAY // 100)

    def sequences(**options: object) -> list[int]:
        return [row["sequence"] for row in rows(table(spark, orders, **options))]

    assert sequences(firstSeq=10, lastSeq=12) == [10, 11, 12]
    assert sequences(subject="orders.1, orders.2", lastSeq=10) == [1, 2, 8, 9]
    start = datetime.fromtimestamp(START // 10**9, UTC) + timedelta(days=1)
    assert sequences(startTime=start.isoformat(), lastSeq=102) == [100, 101, 102]


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"stream": "NO"}, "stream NO is not in"),
        ({"firstSeq": "x"}, "option firstSeq is a number"),
        ({"colour": "red"}, "jetstream has no option colour"),
        ({"decode": "xml"}, "option decode is none or json"),
        ({"startTime": "soon"}, "option startTime is a time"),
    ],
)
def test_bad_options(spark: SparkSession, orders: Writing, options: dict[str, str], reason: str) -> None:
    orders.publish(1)
    with pytest.raises(Exception, match=reason):
        table(spark, orders, **options).count()


def test_damage_is_not_skipped_silently(spark: SparkSession, orders: Writing) -> None:
    orders.publish(200)
    path = orders.directory / "msgs" / "2.blk"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(Exception, match="is damaged: block 2"):
        table(spark, orders).count()
    assert 190 < table(spark, orders, damage="skip").count() < 200


def test_payloads_of_json(spark: SparkSession, orders: Writing) -> None:
    texts = [
        b'{"id": 1, "name": "a", "tags": ["x"], "more": {"deep": true}}',
        b'{"id": 2, "when": "2025-01-01T00:00:00Z"}',
        b"no json",
        b"",
        b'{"id": 3}{"id": 4}',
        b'{"id": "text"}',
        b'{"name": null,\n "id": 5}',
        b"[1]",
        b"\xff\x00",
        b"{}",
    ]
    for text in texts:
        orders.store.store_msg(b"orders.json", text, ts=START)
    orders.store.flush_pending()
    found = rows(table(spark, orders, decode="json"))
    assert found[0]["value"] == {
        "id": 1,
        "name": "a",
        "tags": ["x"],
        "more": {"deep": True},
        "when": None,
    }
    assert [row["value"] and row["value"]["id"] for row in found] == [
        1,
        2,
        None,
        None,
        None,
        None,
        5,
        None,
        None,
        None,
    ]
    assert found[1]["value"]["when"] == "2025-01-01T00:00:00Z"
    assert found[9]["value"] is not None
    bad = [row["problem"] for row in found]
    assert [at for at, problem in enumerate(bad) if problem] == [2, 3, 4, 5, 7, 8]
    assert all("JSON parse error" in problem for problem in bad if problem)
    assert [bytes(row["payload"]) for row in found] == texts  # bad ones are all there
    schema = StructType([StructField("id", LongType()), StructField("name", StringType())])
    given = table(spark, orders, decode="json", payloadSchema=json.dumps(schema.jsonValue()))
    assert rows(given.select("sequence", "value.*"))[0] == {"sequence": 1, "id": 1, "name": "a"}


def started(spark: SparkSession, stream: Writing, out: Path, **options: object) -> Any:
    reader = spark.readStream.format("jetstream").option("stream", "ORDERS")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    writer = reader.load(str(stream.root)).writeStream.format("parquet")
    return writer.option("checkpointLocation", f"{out}-checkpoint").trigger(availableNow=True).start(str(out))


def test_a_stream_as_a_stream(spark: SparkSession, orders: Writing, out: Path) -> None:
    orders.publish(250)
    query = started(spark, orders, out, maxRowsPerTrigger=100)
    assert query.awaitTermination(120)
    batches = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert batches == [100, 100, 50]
    orders.publish(30)
    assert started(spark, orders, out, maxRowsPerTrigger=100).awaitTermination(120)
    found = rows(spark.read.parquet(str(out)))
    assert [row["sequence"] for row in found] == list(range(1, 281))


def test_micro_batches_are_bounded_in_bytes(spark: SparkSession, orders: Writing, out: Path) -> None:
    orders.publish(250)
    sizes = [path.stat().st_size for path in orders.directory.glob("msgs/*.blk")]
    assert len(sizes) > 3
    query = started(spark, orders, out, maxBytesPerTrigger=max(sizes) + 1)
    assert query.awaitTermination(120)
    batches = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert sum(batches) == 250
    assert len(batches) == (len(sizes) + 1) // 2  # blocks are taken until there are enough bytes
    assert [row["sequence"] for row in rows(spark.read.parquet(str(out)))] == list(range(1, 251))


def test_the_job(spark: SparkSession, orders: Writing, out: Path) -> None:
    orders.publish(1000)
    engine = Spark(session=spark)
    run_archive([orders.dir], Target(str(out)), engine, SMALL, Silent())
    orders.publish(10)
    (done,) = run_archive([orders.dir], Target(str(out)), engine, SMALL, Silent())
    assert done.rows == 10
    assert plain(listed(out)) == orders.rows
    frame = spark.read.parquet(str(out))
    assert frame.where("account = '$G' and stream = 'ORDERS' and date = '2025-10-09'").count() == 1010
    assert frame.where("sequence = 77").select("subject").head()[0] == "orders.0"  # type: ignore[index]


def test_a_task_that_fails_is_one_line(spark: SparkSession) -> None:
    def fails(task: int) -> float:
        return task / 0

    with pytest.raises(ArchiveError, match="could not run the tasks: ZeroDivisionError") as caught:
        Spark(session=spark).run(fails, [1, 2], lambda count: None)
    assert "\n" not in str(caught.value)


HOME = Path(pyspark.__file__).parent


@contextmanager
def daemon(tmp_path: Path, ready: str, *args: object) -> Iterator[str]:
    """A process of a Spark cluster, once its log has a line: what the line has as a URL."""
    line = [str(HOME / "bin" / "spark-class"), *map(str, args)]
    env = os.environ | {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.Popen(line, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for text in process.stderr:
            if found := re.search(ready, text):
                break
        else:
            pytest.fail(f"{line} has ended")
        reader = threading.Thread(target=process.stderr.read)
        reader.start()
        yield found[0]
    finally:
        process.terminate()
        process.wait(30)
        reader.join()
        process.stderr.close()


def test_a_cluster_of_two_workers(orders: Writing, out: Path, tmp_path: Path) -> None:
    """A master, two workers, and the command; each a process of its own."""
    orders.publish(1000)
    worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", 0]
    worker += ["--cores", 1, "--memory", "1g", "--work-dir", tmp_path / "work"]
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", 0, "--webui-port", 0]
    registered = "Successfully registered with master"
    with (
        daemon(tmp_path, r"spark://127\.0\.0\.1:\d+", *master) as url,
        daemon(tmp_path, registered, *worker, url),
        daemon(tmp_path, registered, *worker, url),
    ):
        line = [sys.executable, "-m", "gnats.cli", "archive", "--master", url, "--task-memory", "64M"]
        done = subprocess.run(
            [*line, "--store", orders.root, "--out", out, "--stream", "ORDERS"],
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=200,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "$G > ORDERS: 1,000 messages archived" in done.stdout
    # Java says that by itself; Spark says nothing
    assert done.stderr.splitlines() in ([], ["WARNING: Using incubator modules: jdk.incubator.vector"])
    assert plain(listed(out)) == orders.rows
    assert {path.name for path in (tmp_path / "work").glob("app-*/*")} & {"0", "1"}  # executors


def test_spark_submit(orders: Writing, out: Path, tmp_path: Path) -> None:
    orders.publish(100)
    done = subprocess.run(
        [
            *(HOME / "bin" / "spark-submit", "--master", "local[1]", "--conf", "spark.ui.enabled=false"),
            Path(__file__).parents[2] / "deploy" / "spark" / "archive.py",
            *("--store", orders.root, "--out", out, "--stream", "NO"),
        ],
        env=os.environ | {"SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 1
    assert "gnats archive: stream NO is not in" in done.stdout + done.stderr  # spark-submit joins the two
    assert not out.exists()
