"""The JetStream loads on the reference: every message is acknowledged and read."""

import itertools
from collections.abc import Iterator

import pytest
from support.launch import launcher
from support.servers import REFERENCE

from gnats.bench.results import LoadError
from gnats.bench.streams import Streams
from gnats.bench.target import Target

COUNT = 5000
FLOW_CONTROL = {"flow_control": True, "idle_heartbeat": 1_000_000_000}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streams]:
    with launcher(REFERENCE, tmp_path_factory.mktemp("server")) as launch:
        server = launch("-js", "-sd", str(tmp_path_factory.mktemp("store")))
        with Streams(Target.parse(server.url)) as streams:
            yield streams


_names = (f"S{number}" for number in itertools.count())
"""nats-server still removes a stream's directory when the next one of that name is to get it."""


@pytest.fixture
def stream(client: Streams) -> Iterator[str]:
    name = next(_names)
    client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": ["s.>"]})
    yield name
    client.api(f"STREAM.DELETE.{name}")


@pytest.mark.parametrize("window", [1, 512])
def test_every_publish_is_acknowledged_and_stored(client: Streams, stream: str, window: int) -> None:
    result = client.publish("s.a", COUNT, size=100, window=window)
    assert result.messages == result.latency.count == COUNT
    assert client.api(f"STREAM.INFO.{stream}")["state"]["messages"] == COUNT


@pytest.mark.parametrize("config", [{}, FLOW_CONTROL, {"ack_policy": "explicit", "max_ack_pending": 100}])
def test_a_push_consumer_reads_all(client: Streams, stream: str, config: dict[str, object]) -> None:
    client.publish("s.a", COUNT, size=1000, window=512)
    result = client.push(stream, COUNT, config)
    assert (result.messages, result.bytes) == (COUNT, COUNT * 1000)


@pytest.mark.parametrize("batch", [1, 500])
def test_a_pull_consumer_reads_all(client: Streams, stream: str, batch: int) -> None:
    client.publish("s.a", COUNT, size=10, window=512)
    result = client.pull(stream, COUNT, {}, batch=batch)
    assert (result.messages, result.bytes) == (COUNT, COUNT * 10)


def test_keys_are_put_and_got_in_turn(client: Streams) -> None:
    client.api("STREAM.CREATE.K", {"name": "K", "subjects": ["k.>"], "allow_direct": True})
    client.publish("k.a", 100, size=10, window=10, subjects=20)
    found = client.api("STREAM.INFO.K", {"subjects_filter": ">"})["state"]["subjects"]
    assert found == {f"k.a.{number:08x}": 5 for number in range(20)}
    result = client.get("K", "k.a", COUNT, window=100, subjects=20)
    assert result.messages == result.latency.count == COUNT
    with pytest.raises(LoadError, match="404"):
        client.get("K", "k.a", 21, window=1, subjects=21)
    client.api("STREAM.DELETE.K")


def test_what_is_refused_is_an_error(client: Streams, stream: str) -> None:
    with pytest.raises(LoadError, match="stream not found"):
        client.api("STREAM.INFO.NONE")
    with pytest.raises(LoadError, match="no responders"):
        client.publish("elsewhere", 1, size=1, window=1)
    with pytest.raises(LoadError, match="stream not found"):
        client.push("NONE", 1, {})


def test_a_refused_publish_is_an_error(client: Streams, stream: str) -> None:
    client.api(
        f"STREAM.UPDATE.{stream}", {"name": stream, "subjects": ["s.>"], "max_msgs": 5, "discard": "new"}
    )
    with pytest.raises(LoadError, match="maximum messages exceeded"):
        client.publish("s.a", 10, size=1, window=10)
