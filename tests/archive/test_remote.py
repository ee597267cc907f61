"""Archives in an S3-compatible store, and in HDFS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pyarrow.dataset as ds
import pytest
from moto.server import ThreadedMotoServer

from gnats.archive.errors import ArchiveError
from gnats.archive.jobs.compact import compact
from gnats.archive.jobs.engine import Inline, Processes
from gnats.archive.jobs.job import Silent
from gnats.archive.jobs.job import archive as run_archive
from gnats.archive.jobs.verify import verify
from gnats.archive.manifest import Manifest, Origin
from gnats.archive.storage import S3Storage
from gnats.archive.target import Target
from gnats.archive.writer import Layout

from .hadoop import configuration, hdfs, missing
from .stores import SMALL, Writing, plain

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("default")]
KEYS = {"aws_access_key_id": "someone", "aws_secret_access_key": "secret", "region_name": "us-east-1"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    boto3.client("s3", endpoint_url=f"http://{host}:{port}", **KEYS).create_bucket(Bucket="archives")
    yield f"{host}:{port}"
    server.stop()


@pytest.fixture
def s3(endpoint: str, request: pytest.FixtureRequest) -> Target:
    options = f"endpoint_override={endpoint}&scheme=http&region=us-east-1"
    return Target(f"s3://someone:secret@archives/{request.node.originalname}?{options}")


@pytest.fixture(scope="module")
def name_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if why := missing():
        pytest.skip(why)
    with hdfs(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture
def in_hdfs(name_node: str, request: pytest.FixtureRequest) -> Target:
    return Target(f"hdfs://{name_node}/archives/{request.node.originalname}")


@pytest.fixture(params=["s3", pytest.param("in_hdfs", marks=pytest.mark.hdfs)])
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.getfixturevalue(request.param)
    return found


def listed(target: Target) -> list[dict[str, Any]]:
    storage = target.open()
    found = ds.dataset(storage.root, format="parquet", filesystem=storage.files, partitioning="hive")
    rows: list[dict[str, Any]] = found.to_table().sort_by("sequence").to_pylist()
    return rows


def archive(stream: Writing, target: Target, engine: Inline | None = None) -> int:
    (done,) = run_archive([stream.dir], target, engine or Inline(), SMALL, Silent())
    return done.rows


def test_runs_that_go_on_and_are_compacted(orders: Writing, target: Target) -> None:
    for _ in range(3):
        orders.publish(300)
        assert archive(orders, target) == 300
    assert archive(orders, target) == 0
    rows = listed(target)
    assert plain(rows) == orders.rows
    assert (rows[0]["account"], rows[0]["stream"]) == ("$G", "ORDERS")
    storage = target.open()
    manifest = Manifest(storage, Origin("$G", "ORDERS"))
    assert compact(storage, target, manifest, Inline(), Layout()).after == 1
    assert plain(listed(target)) == orders.rows
    assert not verify(target, manifest, orders.source(), Inline()).problems
    assert not [path for path in storage.tree("") if "_staging" in path]


def test_two_jobs_at_once(orders: Writing, target: Target) -> None:
    orders.publish(100)

    class Meanwhile(Inline):
        def run(self, function: Any, tasks: Any, done: Any) -> Any:
            results = super().run(function, tasks, done)
            orders.publish(20)
            assert archive(orders, target) == 120
            return results

    assert archive(orders, target, Meanwhile()) == 0
    assert plain(listed(target)) == orders.rows


def test_a_name_that_another_job_gives_at_the_same_time(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, other = target.open(), target.open()
    with storage.open_output("staged") as stream:
        stream.write(b"a")
    monkeypatch.setattr(storage, "make_parent", lambda path: other.move("staged", path))
    storage.move("staged", "named")
    assert list(storage.tree("")) == ["named"]


def test_a_version_is_taken_once(target: Target) -> None:
    storage = target.open()
    assert [storage.create("v/1", text) for text in (b"a", b"b")] == [True, False]
    assert storage.read("v/1") == b"a"
    storage.check_create("v")
    assert list(storage.tree("v")) == ["1"]


def test_of_many_at_once_one_takes_a_version(target: Target) -> None:
    storage = target.open()
    texts = [b"%d" % each for each in range(8)]
    with ThreadPoolExecutor(len(texts)) as pool:
        for version in ("v/1", "v/2", "v/3"):
            taken = list(pool.map(partial(target.open().create, version), texts))
            assert sum(taken) == 1
            assert storage.read(version) == texts[taken.index(True)]


def test_files_have_a_time_and_are_moved_once(target: Target) -> None:
    """A file has the time at which it was written, and the second of two jobs may publish it again."""
    storage = target.open()
    for _ in range(2):
        with storage.open_output("staged/a") as stream:
            stream.write(b"text")
        assert abs(storage.tree("staged")["a"] - time.time()) < 60
        storage.move("staged/a", "there/a")
        storage.move("staged/a", "there/a")
    assert storage.read("there/a") == b"text"
    assert storage.size("staged/a") is None
    with pytest.raises(ArchiveError, match="staged/b is missing"):
        storage.move("staged/b", "there/b")
    storage.delete("there/a")
    storage.delete("there/a")
    storage.delete_tree("there")
    assert storage.names("") in ([], ["staged"])


def test_processes_write_to_it(orders: Writing, target: Target) -> None:
    orders.publish(1000)
    engine = Processes(2)
    try:
        (done,) = run_archive([orders.dir], target, engine, SMALL, Silent())
    finally:
        engine.close()
    assert done.files > 2
    assert plain(listed(target)) == orders.rows


def test_a_store_without_conditions_is_refused(s3: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = s3.open()
    assert isinstance(storage, S3Storage)
    put = storage.client.put_object
    monkeypatch.setattr(storage.client, "put_object", lambda IfNoneMatch, **more: put(**more))
    with pytest.raises(ArchiveError, match="ignores If-None-Match"):
        storage.check_create("v")


def test_a_bucket_that_is_not_there(orders: Writing, s3: Target) -> None:
    orders.publish(1)
    with pytest.raises(ArchiveError, match="s3://nowhere") as caught:
        archive(orders, Target(s3.url.replace("archives/", "nowhere/")))
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url, why",
    [
        ("hdfs://127.0.0.1:1/archives", "hdfs://127.0.0.1:1/archives.* cannot be"),
        ("hdfs://somebody@127.0.0.1/archives", "HADOOP_USER_NAME"),
        ("hdfs://127.0.0.1/archives?replication=2", "HADOOP_CONF_DIR"),
    ],
)
def test_an_hdfs_that_is_not_there(orders: Writing, url: str, why: str) -> None:
    orders.publish(1)
    with pytest.raises(ArchiveError, match=why) as caught:
        archive(orders, Target(url))
    assert "\n" not in str(caught.value)


@pytest.mark.hdfs
@pytest.mark.parametrize("url", ["viewfs://all/archives/views", "hdfs:///archives/default"])
def test_hdfs_by_its_configuration(
    name_node: str, url: str, orders: Writing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = f"hdfs://{name_node}"
    table = "fs.viewfs.mounttable.all"
    settings = {
        "fs.defaultFS": server,
        f"{table}.link./archives": f"{server}/archives",
        f"{table}.linkFallback": f"{server}/",
    }
    configuration(tmp_path / "core-site.xml", settings)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    orders.publish(10)
    assert [archive(orders, Target(url)), archive(orders, Target(url))] == [10, 0]
    assert archive(orders, Target(server + urlsplit(url).path)) == 0
