"""The checks of hundreds of configurations beside the reference's API: the same errors, the same defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.launch import launcher
from support.servers import REFERENCE

from gnats.jetstream import errors
from gnats.jetstream.errors import ApiError
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig
from gnats.jetstream.settings.consumer_rules import (
    check_consumer_cfg,
    check_workqueue,
    completed,
    with_defaults,
)
from gnats.jetstream.settings.stream_rules import (
    check_filters,
    check_stream_cfg,
    check_stream_create,
    check_stream_update,
)
from gnats.options.values.limits import JetStreamAccountLimits, JSLimitOpts

from .js_corpus import NAMES, consumer_configs, stream_configs

pytestmark = pytest.mark.timeout(120)

Json = dict[str, Any]

SERVER = JSLimitOpts()
ACCOUNT = JetStreamAccountLimits()
ORIGIN = {"name": "ORIGIN", "subjects": ["o.>"], "max_msg_size": 1000, "allow_direct": True}
MAX_STORE = 1 << 30


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    config = f"jetstream {{ store_dir: 'js', max_file: {MAX_STORE}, max_mem: {MAX_STORE} }}"
    with (
        launcher(REFERENCE, Path(tmp_path_factory.mktemp("js"))) as launch,
        Caller(launch(config=config)) as caller,
    ):
        assert "error" not in create(caller, ORIGIN)
        yield caller


def differing(said: Json, wanted: Json) -> Json:
    """Return the keys whose values differ, with both values."""
    keys = said.keys() | wanted.keys()
    return {key: (said.get(key), wanted.get(key)) for key in keys if said.get(key) != wanted.get(key)}


def named(body: Json, name: str) -> Json:
    """Rename the stream of a configuration: the reference deletes a stream's files in the background."""
    renamed: Json = json.loads(json.dumps(body).replace("TESTED", name))
    return renamed


def create(caller: Caller, config: Json, **more: object) -> Json:
    answer: Json = caller.request(f"$JS.API.STREAM.CREATE.{config['name']}", config | more).json
    return answer


def told(answer: Json) -> Json:
    """Return the error, or the configuration without the server's own metadata."""
    if "error" in answer:
        return dict(answer["error"])
    config: Json = answer["config"]
    for name in ("_nats.ver", "_nats.level"):
        config["metadata"].pop(name)
    return config


def lookup(name: str) -> StreamConfig | None:
    if name != "ORIGIN":
        return None
    config = StreamConfig.from_json(json.dumps(ORIGIN).encode())
    return check_stream_cfg(config, SERVER, ACCOUNT, lambda name: None)


def stream_of(body: Json, pedantic: bool) -> Json:
    """Check a request to create a stream with gnats's functions; return the configuration or the error."""
    try:
        config = StreamConfig.from_json(json.dumps(body).encode()).with_static_metadata()
        check_stream_create(config)
        config = check_stream_cfg(config, SERVER, ACCOUNT, lookup, pedantic=pedantic)
        if config.num_replicas > 1:
            raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
        check_filters(config)
    except ApiError as exc:
        return exc.json()
    return config.json()


def is_of_resources(body: Json) -> bool:
    """Return True where account, server or other streams decide; other tests cover these."""
    return body.get("max_bytes", 0) > MAX_STORE or body.get("subjects") in (["o.x"], [">"], ["*.x"])


@pytest.mark.parametrize("pedantic", [False, True])
def test_streams_are_made_as_by_the_reference(asker: Caller, pedantic: bool) -> None:
    bodies = [body for body in stream_configs() if body["name"] == "TESTED" and not is_of_resources(body)]
    differ = []
    for number, body in enumerate(bodies):
        name = f"T{number}"
        body = named(body, name)
        answer = create(asker, body, pedantic=pedantic)
        if "error" not in answer:
            asker.request(f"$JS.API.STREAM.DELETE.{name}")
        if difference := differing(stream_of(body, pedantic), told(answer)):
            differ.append((body, difference))
    assert not differ


def test_names_of_streams(asker: Caller) -> None:
    """An update checks the name before anything else."""
    subject = "$JS.API.STREAM.UPDATE.TESTED"
    for name in NAMES:
        answer = asker.request(subject, {"name": name}).json
        said = stream_of({"name": name}, False)
        if "err_code" not in said:
            said = errors.STREAM_MISMATCH().json()
        assert said == answer["error"], name


def test_streams_change_as_by_the_reference(asker: Caller) -> None:
    origins: list[Json] = [
        {},
        {"storage": "memory"},
        {"retention": "interest"},
        {"retention": "workqueue"},
        {"deny_delete": True, "deny_purge": True},
        {"allow_msg_ttl": True, "allow_msg_schedules": True},
        {"allow_msg_counter": True},
        {"persist_mode": "async"},
        {"mirror": {"name": "ORIGIN"}},
    ]
    single = [body for body in stream_configs() if len(body) == 2 and body["name"] == "TESTED"]
    differ = []
    for origin in origins:
        for number, body in enumerate(single):
            if is_of_resources(body):
                continue
            name = f"U{number}"
            old = named({"name": "TESTED"} | origin, name)
            new = named(old | body | {"name": "TESTED"}, name)
            assert "error" not in create(asker, old)
            answer = asker.request(f"$JS.API.STREAM.UPDATE.{name}", new).json
            asker.request(f"$JS.API.STREAM.DELETE.{name}")
            if difference := differing(change(old, new), told(answer)):
                differ.append((old, new, difference))
    assert not differ


def change(old: Json, new: Json) -> Json:
    was, will = (StreamConfig.from_json(json.dumps(body).encode()) for body in (old, new))
    was = check_stream_cfg(was, SERVER, ACCOUNT, lookup)
    known = {"ORIGIN": lookup("ORIGIN"), was.name: was}
    try:
        for _ in range(2):  # as an update does: the second time with the defaults
            will = check_stream_cfg(will, SERVER, ACCOUNT, known.get)
        return check_stream_update(was, will.with_static_metadata()).json()
    except ApiError as exc:
        return exc.json()


STREAMS: list[Json] = [
    {},
    {"retention": "workqueue"},
    {"retention": "interest"},
    {"consumer_limits": {"max_ack_pending": 5, "inactive_threshold": 500_000_000}},
]


@pytest.mark.parametrize("pedantic", [False, True])
@pytest.mark.parametrize("more", STREAMS, ids=["limits", "workqueue", "interest", "consumer-limits"])
def test_consumers_are_made_as_by_the_reference(asker: Caller, pedantic: bool, more: Json) -> None:
    body = {"name": "WITH", "subjects": ["t.>"]} | more
    try:
        assert "error" not in create(asker, body)
        stream = StreamConfig.from_json(json.dumps(body).encode())
        stream = check_stream_cfg(stream, SERVER, ACCOUNT, lambda name: None)
        bodies = [body for body in consumer_configs() if len(body.get("name", "")) < 256]
        differ = [
            (config, difference)
            for config, answer in zip(bodies, make_consumers(asker, bodies, pedantic), strict=True)
            if (difference := differing(consumer_of(config, stream, pedantic), answer))
        ]
        assert not differ
    finally:
        asker.request("$JS.API.STREAM.DELETE.WITH")


def make_consumers(asker: Caller, bodies: list[Json], pedantic: bool) -> list[Json]:
    """Create each consumer at the reference; return its configurations or errors."""
    found = []
    for body in bodies:
        durable = body.get("durable_name")
        subject = "$JS.API.CONSUMER.CREATE.WITH"
        if durable is not None and literal(durable):
            subject = f"$JS.API.CONSUMER.DURABLE.CREATE.WITH.{durable}"
        answer: Json = asker.request(
            subject, {"stream_name": "WITH", "config": body, "pedantic": pedantic}
        ).json
        if "name" in answer:
            asker.request(f"$JS.API.CONSUMER.DELETE.WITH.{answer['name']}")
            if not body.get("name") and not durable:
                answer["config"].pop("name", "")
        found.append(told(answer))
    return found


def literal(name: str) -> bool:
    return name.isascii() and name.replace("_", "a").isalnum()


def consumer_of(body: Json, stream: StreamConfig, pedantic: bool) -> Json:
    try:
        config = ConsumerConfig.from_json(json.dumps(body).encode())
        durable = config.durable_name
        if literal(durable):
            config = ConsumerConfig.from_json(json.dumps(body | {"name": durable}).encode())
        if set(config.name) & set("\\/"):
            raise errors.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS()
        if durable and not literal(durable):
            raise errors.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME()
        if config.num_replicas > 1:
            raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
        config = config.with_static_metadata()
        config = with_defaults(config, stream, SERVER, ACCOUNT, pedantic=pedantic)
        check_consumer_cfg(config, SERVER, stream, ACCOUNT)
        check_workqueue(config, stream)
        config = completed(config)
    except ApiError as exc:
        return exc.json()
    return config.json()
