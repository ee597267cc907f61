"""Archives in an S3-compatible store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pyarrow.dataset as ds
import pytest
from moto.server import ThreadedMotoServer

from gnats.archive.compact import compact
from gnats.archive.engine import Inline
from gnats.archive.errors import ArchiveError
from gnats.archive.job import Silent
from gnats.archive.job import archive as run_archive
from gnats.archive.manifest import Manifest, Origin
from gnats.archive.target import S3Storage, Target
from gnats.archive.verify import verify
from gnats.archive.writer import Layout

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
def target(endpoint: str, request: pytest.FixtureRequest) -> Target:
    options = f"endpoint_override={endpoint}&scheme=http&region=us-east-1"
    return Target(f"s3://someone:secret@archives/{request.node.name}?{options}")


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
    assert not verify(target, manifest, orders.source().snapshot(), Inline()).problems
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


def test_a_version_is_taken_once(target: Target) -> None:
    storage = target.open()
    assert [storage.create("v/1", text) for text in (b"a", b"b", b"a")] == [True, False, True]
    assert storage.read("v/1") == b"a"  # an attempt whose answer was lost is one's own
    storage.check_create("v")
    assert list(storage.tree("v")) == ["1"]


def test_a_store_without_conditions_is_refused(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = target.open()
    assert isinstance(storage, S3Storage)
    put = storage.client.put_object
    monkeypatch.setattr(storage.client, "put_object", lambda IfNoneMatch, **more: put(**more))
    with pytest.raises(ArchiveError, match="ignores If-None-Match"):
        storage.check_create("v")


def test_a_bucket_that_is_not_there(orders: Writing, target: Target) -> None:
    orders.publish(1)
    with pytest.raises(ArchiveError, match="s3://nowhere") as caught:
        archive(orders, Target(target.url.replace("archives/", "nowhere/")))
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
