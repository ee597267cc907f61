"""Measure the archive as a whole; `python -m perf.archive` runs this.

`parquet`: convert a store to Parquet, in rows a second from opening the store to the last file: by the job
(in this process, in processes, in Spark), and by alternatives: Spark's own writer with the data source, the
same with a source that yields tuples, and a client (nats-py) that consumes the stream from a server and
writes with pyarrow. They take turns. Spark's session exists before, and has run each way once; the processes
start anew each time. A run with a tenth of the messages shows whether the cost is linear.

`start`: the command with nothing new to archive, beside a Spark session that only starts.

`memory`: the peak memory of a process of the job (VmHWM, which includes mapped blocks that the kernel can
take back), for two settings of --task-memory and two sizes of blocks; beside it, a run with nothing to do.
"""

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import pyarrow as pa
import pyarrow.parquet as pq
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from gnats.archive.jobs.engine import Engine, Inline, Processes, Spark
from gnats.archive.jobs.job import Options, Silent, archive
from gnats.archive.reading.source import SCHEMA
from gnats.archive.reading.streams import find_stream
from gnats.archive.spark.source import JetStreamSource, Reader
from gnats.archive.target import Target
from gnats.archive.writer import FILE_SCHEMA
from gnats.jetstream.disk.metafiles import write_stream_meta
from gnats.jetstream.settings.config import StreamConfig
from gnats.store.store import FileStore

from . import servers

NAME = "ORDERS"
SIZE = 128
FETCHED = 1000
"""Messages that the client asks for at a time."""
BATCH = 65536
BLOCK = 8 << 20
MEMORY = ("64M", "256M")
BLOCKS = (1 << 20, 32 << 20)
MIB = 1 << 20


@dataclass
class Rate:
    """One way to Parquet: the median of the rounds in rows a second, and the bytes of its files."""

    way: str
    rows: int
    per_second: float
    file_bytes: int


@dataclass
class Start:
    """Seconds of one command, from its start to its end: the median of the rounds."""

    command: str
    seconds: float


@dataclass
class Peak:
    """Peak memory of runs of the job in one process, in bytes."""

    block_bytes: int
    task_memory: str
    peak: int
    idle: int


def fill(root: Path, messages: int, block: int = BLOCK) -> None:
    """Write a store directory with one stream of 128-byte messages of a thousand subjects."""
    folder = root / "jetstream" / "$G" / "streams" / NAME
    folder.mkdir(parents=True)
    config = StreamConfig(
        name=NAME, subjects=("orders.>",), retention="limits", storage="file", discard="old", num_replicas=1
    )
    write_stream_meta(folder, config, time.time_ns())
    store = FileStore(str(folder), NAME, block_size=block)
    noise = memoryview(os.urandom(16 * MIB))
    for i in range(messages):
        at = i * SIZE % len(noise)
        store.store_msg(b"orders.%d" % (i % 1000), bytes(noise[at : at + SIZE]), b"", flush=i % 100 == 0)
    store.close()


class TupleReader(Reader):
    """Yields rows, as data sources without Arrow do."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        at = self.schema.fieldNames().index("headers") if "headers" in self.schema.fieldNames() else None
        for batch in super().read(partition):
            columns = [column.to_pylist() for column in batch.columns]
            if at is not None:
                columns[at] = [pairs and dict(pairs) for pairs in columns[at]]
            yield from zip(*columns, strict=True)


class TupleSource(JetStreamSource):
    """The data source, with readers that yield tuples."""

    @classmethod
    def name(cls) -> str:
        return "jetstream_tuples"

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(self.settings, schema)


def session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[*]").appName("perf")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(JetStreamSource)
    spark.dataSource.register(TupleSource)
    return spark


def by_job(root: Path, out: Path, engine: Engine) -> None:
    archive([find_stream(str(root), NAME)], Target(str(out)), engine, Options(), Silent())


def by_spark(spark: SparkSession, source: str, root: Path, out: Path) -> None:
    """Write with Spark's writer, with the columns and the compression of the job's files."""
    table = spark.read.format(source).load(str(root)).select(*FILE_SCHEMA.names)
    table.write.option("compression", "zstd").parquet(str(out))


def by_client(url: str, out: Path, rows: int) -> None:
    out.mkdir()
    asyncio.run(_consume(url, out, rows))


async def _consume(url: str, out: Path, rows: int) -> None:
    """Consume the first `rows` messages of the stream, and write the data that a client gets."""
    schema = pa.schema([SCHEMA.field(name) for name in ("sequence", "subject", "time", "headers", "payload")])
    connection = await nats.connect(url)
    config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL)
    consumer = await connection.jetstream().pull_subscribe("orders.>", stream=NAME, config=config)
    columns: list[list[Any]] = [[] for _ in schema]
    with pq.ParquetWriter(out / "part.parquet", schema, compression="zstd", compression_level=1) as writer:
        left = rows
        while left:
            for each in await consumer.fetch(min(FETCHED, left), timeout=30):
                headers = {name: [value] for name, value in (each.headers or {}).items()} or None
                about = each.metadata
                row = (about.sequence.stream, each.subject, about.timestamp, headers, each.data)
                for column, value in zip(columns, row, strict=True):
                    column.append(value)
                left -= 1
            if len(columns[0]) >= BATCH or not left:
                arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
                columns = [[] for _ in schema]
    await connection.close()


def measure_parquet(folder: Path, messages: int, consumed: int, rounds: int) -> list[Rate]:
    """Measure all ways; the client consumes `consumed` messages. Raises RuntimeError for missing rows."""
    root, out = folder / "store", folder / "out"
    fill(root, messages)
    small = folder / "small"
    fill(small, messages // 10)
    kind = next(kind for kind in servers.find() if kind.is_gnats)
    spark = session()
    warm = folder / "warm"
    fill(warm, 1000)

    def in_processes(root: Path, out: Path) -> None:
        engine = Processes()
        try:
            by_job(root, out, engine)
        finally:
            engine.close()

    ways: dict[str, Callable[[Path, Path], None]] = {
        "job, inline": lambda root, out: by_job(root, out, Inline()),
        "job, processes": in_processes,
        "job, Spark": lambda root, out: by_job(root, out, Spark(session=spark)),
        "Spark's writer, jetstream": lambda root, out: by_spark(spark, "jetstream", root, out),
        "Spark's writer, tuples": lambda root, out: by_spark(spark, "jetstream_tuples", root, out),
    }
    took: dict[str, list[float]] = {}
    sizes: dict[str, int] = {}
    rows: dict[str, int] = {}

    def one(way: str, count: int, do: Callable[[], None]) -> None:
        begin = time.perf_counter()
        do()
        took.setdefault(way, []).append(count / (time.perf_counter() - begin))
        files = list(out.rglob("*.parquet"))
        written = sum(pq.read_metadata(path).num_rows for path in files)
        if written != count:
            raise RuntimeError(f"{way}: {written} of {count} messages")
        rows[way] = count
        sizes[way] = sum(path.stat().st_size for path in files)
        shutil.rmtree(out)
        print(f"{way}: {took[way][-1]:,.0f} rows/s", file=sys.stderr, flush=True)

    consumed = min(consumed, messages)
    try:
        for do in ways.values():
            do(warm, out)
            shutil.rmtree(out)
        with servers.Server(kind, jetstream="max_file: 1TB", store=root, patience=10) as server:
            for _ in range(rounds):
                for way, do in ways.items():
                    one(way, messages, lambda do=do: do(root, out))  # type: ignore[misc]
                one("job, processes, a tenth", messages // 10, lambda: in_processes(small, out))
                one("nats-py", consumed, lambda: by_client(server.url, out, consumed))
    finally:
        spark.stop()
    return [Rate(way, rows[way], statistics.median(rates), sizes[way]) for way, rates in took.items()]


def gnats_archive(root: Path, out: Path, *more: str) -> list[str]:
    command = [sys.executable, "-m", "gnats.cli", "archive", "--store", str(root), "--out", str(out), "--all"]
    return [*command, *more]


def seconds(command: list[str]) -> float:
    """Return the seconds that a command takes. Raises CalledProcessError when it fails."""
    begin = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - begin


# ru_maxrss is at least that of the process that started this one; VmHWM is of the new program only.
PEAK = """
import sys
from gnats.archive.cli import archive_main
if status := archive_main(sys.argv[1:]):
    sys.exit(status)
with open("/proc/self/status") as lines:
    print(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))
"""


def peak(root: Path, out: Path, memory: str) -> int:
    """Return the peak memory in bytes of a run in one process. Raises CalledProcessError when it fails."""
    command = [sys.executable, "-c", PEAK, "--store", str(root), "--out", str(out), "--all"]
    command += ["--engine", "processes", "--workers", "1", "--task-memory", memory]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout.split()[-1]) * 1024


BARE = """
from pyspark.sql import SparkSession
SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate().stop()
"""


def measure_start(folder: Path, messages: int, rounds: int) -> list[Start]:
    root, out = folder / "store", folder / "out"
    fill(root, messages)
    seconds(gnats_archive(root, out, "--engine", "processes"))
    commands = {
        "a Spark session": [sys.executable, "-c", BARE],
        "nothing new, --engine spark": gnats_archive(root, out),
        "nothing new, --engine processes": gnats_archive(root, out, "--engine", "processes"),
    }
    took: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            took[name].append(seconds(command))
    return [Start(name, statistics.median(values)) for name, values in took.items()]


def measure_memory(folder: Path, messages: int) -> list[Peak]:
    found = []
    for block in BLOCKS:
        root = folder / "store"
        fill(root, messages, block)
        for memory in MEMORY:
            out = folder / "out"
            most, idle = peak(root, out, memory), peak(root, out, memory)
            found.append(Peak(block, memory, most, idle))
            shutil.rmtree(out)
        shutil.rmtree(root)
    return found


def report_parquet(rates: list[Rate]) -> str:
    job = max(rate.per_second for rate in rates if rate.way.startswith("job"))
    lines = [
        f"A stream of {SIZE} byte messages to Parquet.",
        "",
        "| by | rows | rows/s | MiB | the fastest job is |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r.way} | {r.rows:,} | {r.per_second:,.0f} | {r.file_bytes / MIB:,.1f}"
        f" | {job / r.per_second:.1f}x |"
        for r in rates
    ]
    return "\n".join(lines) + "\n"


def report_start(starts: list[Start]) -> str:
    lines = ["Commands that have nothing to do.", "", "| command | seconds |", "|---|---:|"]
    return "\n".join([*lines, *(f"| {each.command} | {each.seconds:.2f} |" for each in starts)]) + "\n"


def report_memory(peaks: list[Peak]) -> str:
    lines = [
        "The most memory of the job in one process, MiB.",
        "",
        "| blocks | --task-memory | peak | with nothing to do |",
        "|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {p.block_bytes / MIB:.0f} MiB | {p.task_memory} | {p.peak / MIB:,.0f} | {p.idle / MIB:,.0f} |"
        for p in peaks
    ]
    return "\n".join(lines) + "\n"
