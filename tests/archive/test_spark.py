"""The data source and the job in Spark, on two cores of this machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VarcharType,
    VariantType,
)

from gnats.archive.cli import archive_main
from gnats.archive.errors import ArchiveError
from gnats.archive.jobs.engine import Spark
from gnats.archive.jobs.job import Silent
from gnats.archive.jobs.job import archive as run_archive
from gnats.archive.reading.source import SCHEMA
from gnats.archive.reading.streams import read_meta
from gnats.archive.spark import register
from gnats.archive.spark.decode import decode
from gnats.archive.spark.source import Offset, Reader, Settings, StreamReader
from gnats.archive.target import Target
from gnats.jetstream.disk.metafiles import write_stream_meta
from gnats.store.store import FileStore

from .stores import CREATED, DAY, SMALL, START, Writing, listed, no_java, plain

pytestmark = [
    pytest.mark.spark,
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
        .config("spark.sql.session.timeZone", "America/New_York")  # no result may depend on it
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    register(session)  # Spark does not find it by itself in an editable install
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


def test_a_table_serves_many_queries(spark: SparkSession, orders: Writing) -> None:
    orders.publish(100)
    frame = table(spark, orders)
    few = frame.where("sequence > 90")
    assert [few.count(), frame.count(), few.union(frame).count()] == [10, 100, 110]
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
    assert sequences(lastSeq=0) == []
    url = spark.read.format("jetstream").load(f"file://{quote(str(orders.root))}")
    assert url.count() == 300


def payload_schema(kind: DataType) -> str:
    """Return the schema of payloads with a field `a`."""
    return StructType([StructField("a", kind, nullable=False)]).json()


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"firstSeq": "x"}, "option firstSeq is a number"),
        ({"lastSeq": "\N{SUPERSCRIPT TWO}"}, "option lastSeq is a number"),
        ({"colour": "red"}, "jetstream has no option colour"),
        ({"decode": "xml"}, "option decode is none or json"),
        ({"endTime": "9999-01-01"}, "1677-09-22 to 2262-04-11"),
        ({"startTime": "soon"}, "option startTime: 'soon' is not a date or time"),
        ({"maxRowsPerTrigger": "0"}, "option maxRowsPerTrigger is at least 1"),
        ({"maxBytesPerTrigger": "0"}, "option maxBytesPerTrigger is at least 1"),
        ({"taskBytes": "0"}, "option taskBytes is at least 1"),
        ({"maxRowsPerTrigger": "1", "maxBytesPerTrigger": "1"}, "exclude each other"),
        ({"payloadSchema": payload_schema(LongType())}, "need decode=json"),
        ({"inferRows": "5"}, "need decode=json"),
        ({"decode": "json", "payloadSchema": "{}"}, "payloadSchema is no schema"),
        ({"decode": "json", "payloadSchema": '"long"'}, "payloadSchema is no schema"),
        (
            {"decode": "json", "payloadSchema": payload_schema(MapType(StringType(), LongType()))},
            r"\.a .*map",
        ),
        ({"decode": "json", "payloadSchema": payload_schema(ArrayType(VariantType()))}, r"\.a\[\] .*variant"),
        ({"decode": "json", "payloadSchema": payload_schema(VarcharType(3))}, r"\.a .*varchar"),
        ({"decode": "json", "payloadSchema": payload_schema(DayTimeIntervalType())}, r"\.a .*interval"),
        (
            {"decode": "json", "payloadSchema": StructType([StructField("a", LongType())] * 2).json()},
            "payloadSchema has two fields of one name",
        ),
        ({"prevKey": "x"}, "prevKey and cipher need a key"),
        ({"cipher": "aes"}, "prevKey and cipher need a key"),
        ({"key": "x", "keyFile": "x"}, "options key and keyFile exclude each other"),
        ({"startTime": "1970-01-02T00:00:00.0000000001"}, "finer than a nanosecond"),
        ({"path": "s3://bucket/store"}, "no directory of this machine"),
        ({"path": "file://other/store"}, "no directory of this machine"),
    ],
)
def test_bad_options_are_one_line(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ArchiveError, match=reason) as caught:
        Settings.of({"path": "/store"} | options)
    assert "\n" not in str(caught.value)


def test_bad_options_end_a_query(spark: SparkSession, orders: Writing) -> None:
    orders.publish(1)
    with pytest.raises(Exception, match="stream NO is not in"):
        table(spark, orders, stream="NO").count()


def test_damage_is_not_skipped_silently(spark: SparkSession, orders: Writing) -> None:
    orders.publish(200)
    path = orders.directory / "msgs" / "2.blk"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(Exception, match="is damaged: block 2"):
        table(spark, orders).count()
    assert 190 < table(spark, orders, damage="skip").count() < 200


def test_a_block_that_is_missing_is_not_skipped_silently(orders: Writing) -> None:
    orders.publish(300)
    orders.store.close()
    (orders.directory / "msgs" / "3.blk").unlink()
    (lost,) = orders.source().snapshot().damage
    assert lost.first_seq and lost.last_seq
    before, behind = {"sequence": lost.first_seq - 1}, {"sequence": lost.last_seq}
    for start in (None, before, {"sequence": lost.last_seq - 1}):
        with pytest.raises(ArchiveError, match=r"is damaged: block 3, .*the file is missing"):
            batches(streaming(orders), start)
    with pytest.raises(ArchiveError, match="the file is missing"):
        Reader(streaming(orders).settings, from_arrow_schema(SCHEMA)).partitions()
    assert streaming(orders).partitions({"sequence": 0}, before)  # none of these messages is missing
    (found,) = batches(streaming(orders), behind)
    assert found == list(range(lost.last_seq + 1, 301))
    (found,) = batches(streaming(orders, damage="skip"))
    assert len(found) == 300 - (lost.last_seq + 1 - lost.first_seq)


def test_a_stream_that_is_built_again_while_it_is_read_ends_a_query(orders: Writing) -> None:
    """Rebuilding moves messages to other blocks, so a query that reads them ends."""
    orders.publish(300)
    reader = streaming(orders, taskBytes=1)
    parts = reader.partitions({"sequence": 0}, {"sequence": 300})
    orders.store.close()
    shutil.rmtree(orders.directory / "msgs")
    store = FileStore(str(orders.directory), "ORDERS", block_size=1 << 20)
    for subject, ns, payload in orders.rows.values():
        store.store_msg(subject.encode(), payload, ts=ns)
    store.close()
    with pytest.raises(ArchiveError, match="was replaced while it was read"):
        for part in parts:
            list(reader.read(part))


def test_blocks_that_a_purge_removes_under_a_query_end_nothing(orders: Writing) -> None:
    orders.publish(300)
    reader = streaming(orders, taskBytes=1)
    parts = reader.partitions({"sequence": 0}, {"sequence": 300})
    orders.store.purge_msgs(seq=201)
    orders.store.flush_pending()
    found = [seq for part in parts for batch in reader.read(part) for seq in batch["sequence"].to_pylist()]
    assert found == list(range(found[0], 301))  # the purge ends inside a block, which stays
    assert 1 < found[0] <= 201


def test_limits_of_micro_batches_are_not_for_tables(spark: SparkSession, orders: Writing) -> None:
    orders.publish(1)
    with pytest.raises(Exception, match="maxRowsPerTrigger and maxBytesPerTrigger are for readStream"):
        table(spark, orders, maxRowsPerTrigger=1).count()


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
    assert [bytes(row["payload"]) for row in found] == texts  # malformed payloads are there too
    schema = StructType([StructField("id", LongType(), False), StructField("name", StringType(), False)])
    given = table(spark, orders, decode="json", payloadSchema=schema.json())
    assert [row.name for row in given.orderBy("sequence").select("value.name").collect()][:2] == ["a", None]
    reader = spark.read.format("jetstream").schema("sequence BIGINT, problem STRING")
    named = reader.options(stream="ORDERS", decode="json").load(str(orders.root))
    assert [row.sequence - 1 for row in named.where("problem is not null").collect()] == [2, 3, 4, 7, 8]


def test_dates_and_times_are_texts() -> None:
    texts = [
        b'{"a": "2025-01-31", "l": ["1969-12-31", null], "s": {"d": "0001-01-01"}}',
        b'{"a": "2025-01-31T23:59:59-01:00", "t": "2025-01-31T23:59:59.5-01:00"}',
        *(b'{"a": 5}', b'{"a": "2025-02-30"}', b'{"l": ["x"]}', b"{}"),
    ]
    inner = pa.struct([("d", pa.date32())])
    fields = [("a", pa.date32()), ("l", pa.list_(pa.date32())), ("s", inner)]
    values, problems = decode(
        pa.array(texts, pa.binary()), pa.struct([*fields, ("t", pa.timestamp("us", tz="UTC"))])
    )
    assert values.to_pylist() == [
        {"a": date(2025, 1, 31), "l": [date(1969, 12, 31), None], "s": {"d": date(1, 1, 1)}, "t": None},
        {"a": date(2025, 2, 1), "l": None, "s": None, "t": datetime(2025, 2, 1, 0, 59, 59, 500000, UTC)},
        *[None] * 3,
        {"a": None, "l": None, "s": None, "t": None},
    ]
    assert [at for at, problem in enumerate(problems.to_pylist()) if problem] == [2, 3, 4]


def nested(levels: int) -> bytes:
    """Return a JSON payload of `levels` levels, with brackets in a string too."""
    return b'{"s": "\\"[[{", "a%d": ' % levels + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def test_payloads_that_are_nested_too_deep_or_no_utf8(spark: SparkSession, orders: Writing) -> None:
    many = b'{"a": [' + b",".join([b'{"b": "]}"}'] * 1000) + b"]}"
    texts = [nested(3), nested(50), nested(100), nested(101), nested(5_000), nested(100_000), many]
    texts += [b"{" * 100_000 + b"}", b'{"s": "\xff"}', b'{"s": "\xed\xa0\x80"}', '{"s": "ä"}'.encode()]
    struct = pa.struct([("s", pa.string())])
    values, problems = decode(pa.array(texts, pa.binary()), struct)
    values.validate(full=True)
    deep, not_text = "JSON parse error: more than 100 levels", "JSON parse error: no UTF-8"
    assert problems.to_pylist() == [*[None] * 3, deep, deep, deep, None, deep, not_text, not_text, None]
    assert [value and value["s"] for value in values.to_pylist()] == [
        *['"[[{'] * 3,
        *[None] * 7,
        "ä",
    ]
    for text in texts:
        orders.store.store_msg(b"orders.json", text, ts=START)
    orders.store.flush_pending()
    found = rows(table(spark, orders, decode="json"))  # with a column of 50 levels
    assert [row["problem"] for row in found if row["problem"]] == [deep] * 4 + [not_text] * 2
    assert len(found) == len(texts)


def test_a_schema_of_ones_own_is_checked(orders: Writing) -> None:
    settings = Settings.of({"path": str(orders.root), "decode": "json"})
    whole = StructType([StructField("value", StructType([StructField("a", LongType())]))])
    Reader(settings, whole)
    for schema, reason in (
        (StructType([StructField("value", LongType())]), "value is a struct"),
        (StructType([StructField("value", StructType(), False)]), "value .* cannot be NOT NULL"),
        (StructType([StructField("problem", StringType(), False)]), "problem .* cannot be NOT NULL"),
        (StructType([StructField("value", StructType([StructField("a", LongType(), False)]))]), "in parts"),
        (StructType([StructField("more", LongType())]), "no column more"),
    ):
        with pytest.raises(ArchiveError, match=reason):
            Reader(settings, schema)


def streaming(stream: Writing, **options: object) -> StreamReader:
    settings = Settings.of({"path": str(stream.root)} | {key: str(value) for key, value in options.items()})
    return StreamReader(settings, from_arrow_schema(SCHEMA))


def batches(reader: StreamReader, start: Offset | None = None) -> list[list[int]]:
    """Return the sequences of each micro-batch until nothing is new; require that none is empty."""
    found: list[list[int]] = []
    start = start or reader.initialOffset()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        parts = reader.partitions(start, end)
        read = [batch for part in parts for batch in reader.read(part)]
        found.append([seq for batch in read for seq in batch.column("sequence").to_pylist()])
        assert found[-1]
        start = end
    return found


def test_micro_batches_are_counted_in_messages(orders: Writing) -> None:
    orders.publish(100)
    orders.store.skip(n=10_000_000)
    orders.last += 10_000_000
    orders.publish(400)
    orders.remove(*range(10_000_101, 10_000_401, 2))
    everything = sorted(orders.rows)
    for size in (1, 7, 60, 1000):
        found = batches(streaming(orders, maxRowsPerTrigger=size))
        assert [seq for batch in found for seq in batch] == everything
        assert {len(batch) for batch in found[:-1]} <= {size}
    some = batches(streaming(orders, maxRowsPerTrigger=50, firstSeq=91, lastSeq=10_000_150))
    assert [len(batch) for batch in some] == [35]
    assert batches(streaming(orders, lastSeq=0)) == []
    orders.store.purge_msgs(seq=10_000_301)
    orders.store.flush_pending()
    reader = streaming(orders, maxRowsPerTrigger=60)
    assert reader.initialOffset() == {"sequence": 10_000_301, "created": CREATED}  # 10,000,301 is removed
    assert [len(batch) for batch in batches(reader)] == [60, 60, 30]
    assert [len(batch) for batch in batches(reader, {"sequence": 7})] == [60, 60, 30]


def test_a_stream_that_was_made_anew_ends_a_query(orders: Writing) -> None:
    orders.publish(10)
    reader = streaming(orders)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert end == {"sequence": 10, "created": CREATED}
    orders.publish(5)
    meta = read_meta(orders.dir, None, pytest.fail)
    assert meta
    write_stream_meta(orders.directory, meta.config, CREATED + 1)
    anew = "ORDERS was deleted and made anew: the query needs a new checkpoint$"
    with pytest.raises(ArchiveError, match=anew):
        reader.latestOffset(end)
    with pytest.raises(ArchiveError, match=anew):
        reader.partitions(start, end)
    assert reader.latestOffset({"sequence": 10}) == {"sequence": 15, "created": CREATED + 1}
    assert reader.partitions({"sequence": 10}, {"sequence": 15})


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
    assert len(batches) == (len(sizes) + 1) // 2  # a batch takes blocks until it has enough bytes
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
    """Run a process of a Spark cluster; yield the URL in its log's line that contains `ready`."""
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
    """A master, two workers and the command, each in a process of its own."""
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
    # Java prints this warning itself; Spark prints nothing.
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


def test_options_of_engines_are_not_for_spark_submit(
    spark: SparkSession, orders: Writing, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--store", str(orders.root), "--out", str(out), "--all"]
    for option, value in (("--engine", "processes"), ("--master", "local"), ("--workers", "2")):
        assert archive_main([*line, option, value], spark) == 1
        assert capsys.readouterr().err == (
            "gnats archive: --engine, --master and --workers are not for spark-submit, which has its own\n"
        )


def test_an_interrupt_in_a_finalizer_is_not_lost(spark: SparkSession) -> None:
    """Python drops an exception raised in a finalizer, and Py4J has finalizers."""
    seen: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)

    class Finalized:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    def done(count: int) -> None:
        if not seen:
            Finalized()

    try:
        with pytest.raises(KeyboardInterrupt):
            Spark(session=spark).run(time.sleep, [1000], done)
        assert seen == [signal.SIGINT]
        assert Spark(session=spark).run(abs, [-1], done) == [1]
    finally:
        signal.signal(signal.SIGINT, before)


# A job whose tasks write their file, then a line to a FIFO, and sleep until they are ended.
INTERRUPTED = """
import os, sys
from gnats.archive import cli
from gnats.archive.jobs import job
run_task = job.run_task
def waits(task, fifo=sys.argv.pop(1), **about):
    run_task(task, **about)
    with open(fifo, "w") as ready:
        ready.write("staged\\n")
    import time
    time.sleep(1000)
job.run_task = waits
sys.exit(cli.archive_main(sys.argv[1:]))
"""


def test_an_interrupt_is_one_line_and_leaves_nothing(orders: Writing, out: Path, tmp_path: Path) -> None:
    """Ctrl-C in a terminal reaches the JVM and the tasks too, while a task writes a file."""
    orders.publish(100)
    fifo = tmp_path / "ready"
    os.mkfifo(fifo)
    line = [sys.executable, "-c", INTERRUPTED, str(fifo), "--store", str(orders.root), "--out", str(out)]
    job = subprocess.Popen(
        [*line, "--all", "--master", "local[1]"],
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        with fifo.open() as ready:
            assert ready.readline() == "staged\n"
        assert list(out.rglob("*.staged"))
        os.killpg(job.pid, signal.SIGINT)
        assert job.wait(60) == 130
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        said = job.communicate()
    told = [text for text in said[1].splitlines() if "jdk.incubator.vector" not in text]
    assert told == ["gnats archive: interrupted; what was committed is kept, and the next run goes on"]
    assert said[0] == ""
    assert not list(out.rglob("*.staged"))
    assert not list(out.rglob("*.parquet"))
