"""The JetStream API beside the reference's: the same answers to the same requests, keys in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support.caller import Caller
from support.jetstream import Asker
from support.launch import Launch
from support.servers import REFERENCE, Kind

pytestmark = pytest.mark.timeout(60)

CONFIG = "server_name: srv, jetstream { store_dir: js, max_mem: 100M, max_file: 1G }"
STORAGES = ("memory", "file")


@pytest.fixture
def asker(kind: Kind, launch: Launch) -> Iterator[Asker]:
    """Asks the reference and the server under test."""
    with ExitStack() as stack:
        servers = [launch(config=CONFIG, kind=REFERENCE)]
        if not kind.is_reference:
            servers.append(launch(config=CONFIG))
        yield Asker(*(stack.enter_context(Caller(server)) for server in servers))


@pytest.mark.parametrize("storage", STORAGES)
def test_a_stream_from_its_creation_to_its_end(asker: Asker, storage: str) -> None:
    api = asker.api
    api("INFO")
    api("STREAM.NAMES")
    api("STREAM.LIST")
    config = {"name": "S", "subjects": ["s.>"], "storage": storage, "metadata": {"a": "<b>"}}
    assert api("STREAM.CREATE.S", config)["did_create"]
    api("STREAM.CREATE.S", config)
    api("STREAM.CREATE.S", config | {"max_msgs": 5})
    api("STREAM.CREATE.T", {"name": "T", "subjects": ["s.x"], "storage": storage})
    api("STREAM.INFO.S")
    for subject in ("s.a", "s.b", "s.a", "s.c.d"):
        asker.ask(subject, b"hello")
    api("STREAM.INFO.S", {"subjects_filter": ">"})
    api("STREAM.INFO.S", {"subjects_filter": "s.*", "offset": 1})
    api("STREAM.INFO.S", {"subjects_filter": "nothing"})
    api("STREAM.INFO.S", {"deleted_details": True})
    for body in (
        {"seq": 1},
        {"seq": 9},
        {"last_by_subj": "s.a"},
        {"last_by_subj": "s.*"},
        {"last_by_subj": "none"},
        {"next_by_subj": "s.a", "seq": 2},
        {"next_by_subj": ">"},
        {"start_time": "2000-01-01T00:00:00Z"},
        {"start_time": "2100-01-01T00:00:00Z"},
        {"seq": 1, "last_by_subj": "s.a"},
        {"seq": 1, "start_time": "2000-01-01T00:00:00Z"},
        {"batch": 2, "seq": 1},
        {},
        None,
    ):
        api("STREAM.MSG.GET.S", body)
    for body in ({"seq": 2}, {"seq": 2}, {"seq": 99}, {"seq": 3, "no_erase": True}, {}, None):
        api("STREAM.MSG.DELETE.S", body)
    api("STREAM.INFO.S", {"deleted_details": True})
    api("STREAM.NAMES", {"subject": "s.a"})
    api("STREAM.NAMES", {"subject": "x"})
    api("STREAM.NAMES", {"offset": 5})
    api("STREAM.NAMES", {"offset": -5})
    api("STREAM.LIST", {"subject": "s.>"})
    api("STREAM.UPDATE.S", config | {"max_msgs": 1, "description": "d"})
    api("STREAM.INFO.S")
    api("STREAM.UPDATE.S", config | {"max_age": -1})
    api("STREAM.UPDATE.T", config | {"name": "T"})
    api("STREAM.PURGE.S", {"seq": 1, "keep": 1})
    api("STREAM.PURGE.S", {"filter": "s.x"})
    api("STREAM.PURGE.S")
    api("STREAM.INFO.S")
    api("STREAM.DELETE.S", {"x": 1})
    api("STREAM.DELETE.S")
    api("STREAM.DELETE.S")
    api("INFO")


@pytest.mark.parametrize("storage", STORAGES)
def test_consumers(asker: Asker, storage: str) -> None:
    api = asker.api
    api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": storage, "max_consumers": 4})
    for number in range(5):
        asker.ask(f"s.{number}", b"x")

    def create(verb: str, config: object, **more: object) -> None:
        api(f"CONSUMER.{verb}", {"stream_name": "S", "config": config} | more)

    explicit = {"ack_policy": "explicit"}
    create("DURABLE.CREATE.S.D", explicit | {"durable_name": "D"})
    create("CREATE.S.D", explicit | {"durable_name": "D", "name": "D", "description": "d"})
    create("CREATE.S.D", explicit | {"durable_name": "D", "name": "D"}, action="create")
    create("CREATE.S.D", {"durable_name": "D", "name": "D"})
    create("CREATE.S.N", explicit | {"name": "N"}, action="update")
    create("CREATE.S.N", explicit | {"name": "N", "filter_subject": "s.2"}, action="create")
    create("CREATE.S.F.s.3", explicit | {"name": "F", "filter_subject": "s.3"})
    create("CREATE.S.F.s.4", explicit | {"name": "F", "filter_subject": "s.3"})
    create("CREATE.S.F.s.3", explicit | {"name": "F", "filter_subjects": ["s.3"]})
    create("CREATE.S.P", {"name": "P", "deliver_subject": "push", "ack_policy": "none"})
    create("CREATE.S.X", explicit | {"name": "X"})
    create("CREATE.S", explicit | {"durable_name": "X"})
    create("DURABLE.CREATE.S.X", explicit)
    create("DURABLE.CREATE.S.X", explicit | {"durable_name": "Y"})
    create("CREATE.S.X", explicit | {"durable_name": "Y"})
    create("CREATE.T.X", explicit)
    api("CONSUMER.CREATE.T.X", {"stream_name": "T", "config": explicit})
    api("CONSUMER.CREATE.S.X", {"stream_name": "S", "config": explicit, "action": "what"})
    api("CONSUMER.NAMES.S")
    api("CONSUMER.NAMES.S", {"offset": 1})
    api("CONSUMER.NAMES.T")
    api("CONSUMER.LIST.S")
    api("CONSUMER.LIST.T")
    api("CONSUMER.INFO.S.D")
    api("CONSUMER.INFO.S.none")
    api("CONSUMER.INFO.T.none")
    api("CONSUMER.INFO.S.D", {"x": 1})
    api("CONSUMER.PAUSE.S.D", {"pause_until": "2100-01-01T00:00:00Z"})
    api("CONSUMER.INFO.S.D")
    api("CONSUMER.PAUSE.S.D")
    api("CONSUMER.PAUSE.S.D", {"pause_until": "never"})
    api("CONSUMER.PAUSE.S.none")
    api("CONSUMER.UNPIN.S.D", {"group": "g"})
    api("CONSUMER.UNPIN.S.D", {"group": ""})
    api("CONSUMER.UNPIN.S.D")
    api("CONSUMER.RESET.S.D", {"seq": 3})
    api("CONSUMER.RESET.S.D")
    api("STREAM.INFO.S")
    api("CONSUMER.DELETE.S.D", {"x": 1})
    api("CONSUMER.DELETE.S.D")
    api("CONSUMER.DELETE.S.D")
    api("CONSUMER.DELETE.T.D")
    api("INFO")


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("STREAM.CREATE.S", b""),
        ("STREAM.CREATE.S", b"{"),
        ("STREAM.CREATE.S", b"x"),
        ("STREAM.CREATE.S", b'{"name":"S",}'),
        ("STREAM.CREATE.S", b'{"name":"S"} x'),
        ("STREAM.CREATE.S", b"[]"),
        ("STREAM.CREATE.S", b"3"),
        ("STREAM.CREATE.S", b"null"),
        ("STREAM.CREATE.S", {"name": "T"}),
        ("STREAM.CREATE.S", {"name": 5}),
        ("STREAM.CREATE.S", {"name": "S", "what": 5}),
        ("STREAM.CREATE.S", {"name": "S", "max_msgs": "x"}),
        ("STREAM.CREATE.S", {"name": "S", "max_msgs": 1.5}),
        ("STREAM.CREATE.S", {"name": "S", "max_msgs": 1 << 70}),
        ("STREAM.CREATE.S", {"name": "S", "max_msg_size": 1 << 40}),
        ("STREAM.CREATE.S", {"name": "S", "subjects": "x"}),
        ("STREAM.CREATE.S", {"name": "S", "subjects": [1]}),
        ("STREAM.CREATE.S", {"name": "S", "retention": "x"}),
        ("STREAM.CREATE.S", {"name": "S", "retention": None}),
        ("STREAM.CREATE.S", {"name": "S", "storage": 5}),
        ("STREAM.CREATE.S", {"name": "S", "discard": "x"}),
        ("STREAM.CREATE.S", {"name": "S", "compression": "x"}),
        ("STREAM.CREATE.S", {"name": "S", "compression": 1}),
        ("STREAM.CREATE.S", {"name": "S", "persist_mode": "x"}),
        ("STREAM.CREATE.S", {"name": "S", "mirror": {"name": 1}}),
        ("STREAM.CREATE.S", {"name": "S", "mirror": {"name": "a", "x": 1}}),
        ("STREAM.CREATE.S", {"name": "S", "mirror": {"name": "a", "opt_start_time": "x"}}),
        ("STREAM.CREATE.S", {"name": "S", "mirror": {"name": "a", "opt_start_time": 1}}),
        ("STREAM.CREATE.S", {"name": "S", "mirror": {"name": "a", "opt_start_seq": -1}}),
        ("STREAM.CREATE.S", {"name": "S", "sources": [{"name": 1}]}),
        ("STREAM.CREATE.S", {"name": "S", "sources": [1]}),
        ("STREAM.CREATE.S", {"name": "S", "metadata": {"a": 1}}),
        ("STREAM.CREATE.S", {"name": "S", "consumer_limits": {"max_ack_pending": "x"}}),
        ("STREAM.CREATE.S", {"name": "S", "placement": {"tags": "x"}}),
        ("STREAM.UPDATE.S", {"name": "S"}),
        ("STREAM.NAMES", {"what": 1}),
        ("STREAM.NAMES", b"junk"),
        ("STREAM.INFO.S", {"what": 1}),
        ("STREAM.INFO.S", None),
        ("STREAM.DELETE.S", None),
        ("STREAM.PURGE.S", None),
        ("STREAM.PURGE.S", {"seq": -1}),
        ("STREAM.MSG.GET.S", {"seq": 1}),
        ("STREAM.MSG.GET.S", {"seq": "x"}),
        ("STREAM.MSG.DELETE.S", {"seq": 1}),
        ("STREAM.SNAPSHOT.S", {}),
        ("STREAM.SNAPSHOT.S", {"deliver_subject": "x"}),
        ("STREAM.RESTORE.S", {}),
        ("STREAM.PEER.REMOVE.S", {"peer": "x"}),
        ("STREAM.PEER.EVACUATE.S", {"peer": "x"}),
        ("STREAM.LEADER.STEPDOWN.S", None),
        ("STREAM.CANCEL_MOVE.S", None),
        ("CONSUMER.LEADER.STEPDOWN.S.C", None),
        ("CONSUMER.CREATE.S", b""),
        ("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"ack_policy": "x"}}),
        ("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"replay_policy": "x"}}),
        ("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"deliver_policy": "x"}}),
        ("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"priority_policy": "x"}}),
        ("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"backoff": ["x"]}}),
        ("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"ack_wait": "1s"}}),
        ("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"what": 1}}),
        ("CONSUMER.CREATE.S", {"stream_name": "S", "action": 1}),
        ("CONSUMER.CREATE.S", {"stream_name": "X"}),
        ("CONSUMER.CREATE.S.a\\b", {"stream_name": "S"}),
        ("CONSUMER.NAMES.S", None),
        ("CONSUMER.LIST.S", None),
        ("CONSUMER.INFO.S.C", None),
        ("CONSUMER.DELETE.S.C", None),
        ("CONSUMER.PAUSE.S.C", {"pause_until": 1}),
        ("CONSUMER.UNPIN.S.C", {"group": "g"}),
    ],
    ids=str,
)
def test_bad_requests(shared: Asker, verb: str, body: object) -> None:
    shared.api(verb, body)


@pytest.fixture(scope="module")
def shared(kind: Kind, launch_shared: Launch) -> Iterator[Asker]:
    """An Asker that the tests of this module share; they change nothing."""
    with ExitStack() as stack:
        servers = [launch_shared(config=CONFIG, kind=REFERENCE)]
        if not kind.is_reference:
            servers.append(launch_shared(config=CONFIG))
        yield Asker(*(stack.enter_context(Caller(server)) for server in servers))


@pytest.mark.parametrize("verb", ["INFO", "STREAM.NAMES", "STREAM.CREATE.S", "CONSUMER.INFO.S.C"])
@pytest.mark.parametrize("level", [b"5", b"6", b"x", b""])
def test_the_level_that_a_client_requires(shared: Asker, verb: str, level: bytes) -> None:
    shared.api(verb, header=b"NATS/1.0\r\nNats-Required-Api-Level: %s\r\n\r\n" % level)


def test_a_batch_is_stored_at_its_commit(asker: Asker) -> None:
    asker.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_atomic": True})
    for number, commit in ((1, b""), (2, b""), (3, b"Nats-Batch-Commit: 1\r\n")):
        header = b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: %d\r\n%b\r\n" % (number, commit)
        asker.ask("s.a", b"part", header)
    assert asker.api("STREAM.INFO.S")["state"]["messages"] == 3


def test_a_stream_that_comes_to_keep_by_interest(asker: Asker) -> None:
    """After the update, the acknowledgement of an older consumer removes a message."""
    config = {"name": "S", "subjects": ["s.>"]}
    asker.api("STREAM.CREATE.S", config)
    asker.api(
        "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    )
    asker.api("STREAM.UPDATE.S", config | {"retention": "interest"})
    asker.ask("s.a", b"message")
    for caller in asker.callers:
        caller.ask("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1")
        message = caller.next()
        assert message.payload == b"message"
        caller.request(message.reply, b"+ACK")
    assert asker.api("STREAM.INFO.S")["state"]["messages"] == 0


@pytest.mark.parametrize("storage", STORAGES)
def test_messages_that_are_not_there_cannot_be_deleted(asker: Asker, storage: str) -> None:
    asker.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": storage})
    asker.api("STREAM.MSG.DELETE.S", {"seq": 0, "no_erase": True})
    for _ in range(5):
        asker.ask("s", b"x")
    for seq in (3, 3, 1, 1, 0, 5, 5, 4, 4, 2, 2, 6, 2**63, 2**64 - 1):
        asker.api("STREAM.MSG.DELETE.S", {"seq": seq})


@pytest.mark.parametrize("threshold", [-1, 0, 7_000_000_000])
def test_a_stream_says_how_long_its_consumers_may_be_inactive(asker: Asker, threshold: int) -> None:
    limits = {"inactive_threshold": threshold}
    asker.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "consumer_limits": limits})
    for config in ({"name": "C"}, {"name": "D", "durable_name": "D"}):
        asker.api(f"CONSUMER.CREATE.S.{config['name']}", {"stream_name": "S", "config": config})


def test_the_time_at_which_a_consumer_starts_stays_as_it_is(asker: Asker) -> None:
    asker.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    for time in ("2262-04-12T00:00:00Z", "2262-04-11T23:47:16.854775807Z", "2262-04-12T02:00:00+02:00"):
        config = {"durable_name": "C", "deliver_policy": "by_start_time", "opt_start_time": time}
        asker.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})


def test_an_ephemeral_consumer_that_is_changed_goes_as_it_would_have(asker: Asker) -> None:
    asker.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    for more in ({"inactive_threshold": 7_000_000_000}, {}, {"filter_subject": "s.a"}, {"durable_name": "C"}):
        asker.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"name": "C"} | more})
        asker.api("CONSUMER.INFO.S.C")


def test_what_threads_write_is_answered_the_same(asker: Asker) -> None:
    """A thread writes answers with many subjects, not the event loop."""
    asker.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": "memory"})
    for caller in asker.callers:
        caller.send(b"".join(b"PUB s.%d 1\r\nx\r\n" % (number % 1100) for number in range(1199)))
    asker.ask("s.99", b"x")  # its answer comes after all messages are stored
    for request in ({}, {"offset": 1090}, {"offset": 1200}, {"subjects_filter": "s.*"}):
        asker.api("STREAM.INFO.S", {"subjects_filter": ">"} | request)
    asker.api("STREAM.CREATE.W", {"name": "W", "subjects": [f"w.{number}" for number in range(1100)]})
    asker.api("STREAM.LIST")
    asker.api("STREAM.LIST", {"offset": 1})


def test_a_page_of_subjects_may_begin_behind_the_last(asker: Asker) -> None:
    asker.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    for subject in ("s.a", "s.b"):
        asker.ask(subject, b"x")
    for offset in (-1, 0, 1, 2, 3, 255, 2**63 - 1):
        asker.api("STREAM.INFO.S", {"subjects_filter": ">", "offset": offset})
