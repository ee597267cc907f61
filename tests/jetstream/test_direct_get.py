"""Direct gets and republished messages, beside the reference server."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from support.streams import Client, GnatsStreams, ReferenceStreams, Reply, Streams

pytestmark = pytest.mark.timeout(120)

_numbers = itertools.count(1)
STORED = [
    (b"a", b"one", []),
    (b"b", b"two", [b"A: b"]),
    (b"a", b"", [b"C:d", b"E:  f"]),
    (b"c.d", b"x" * 5000, []),
    (b"b", b"", []),
    (b"a", b"last", [b"Nats-Msg-Id: 7"]),
]
TIME = re.compile(rb"Nats-Time-Stamp: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")


def filled(streams: Streams, **config: Any) -> str:
    name = f"D{next(_numbers)}"
    streams.add(name=name, subjects=[f"{name}.>"], allow_direct=True, **config)
    with Client(streams.address) as client:
        for subject, payload, header in STORED:
            client.ask(name.encode() + b"." + subject, payload, header)
    return name


def got(
    client: Client, name: str, subject: str, request: bytes | dict[str, Any], *header: bytes
) -> list[Reply]:
    """Return every answer to a direct get, without names and times."""
    body = json.dumps(request).encode() if isinstance(request, dict) else request
    body = body.replace(b"S.", name.encode() + b".")
    batched = isinstance(request, dict) and bool({"batch", "multi_last"} & request.keys())
    refused = re.compile(rb"NATS/1.0 (40|41|204)")
    subject = f"$JS.API.DIRECT.GET.{name}{subject.replace('S.', name + '.')}"
    replies = client.ask(subject.encode(), body, header)
    while batched and not refused.match(replies[-1][0]):
        replies.append(client.read())
    return [(TIME.sub(b"Nats-Time-Stamp: NOW", h).replace(name.encode(), b"NAME"), p) for h, p in replies]


REQUESTS: dict[str, tuple[str, bytes | dict[str, Any]]] = {
    "by sequence": ("", {"seq": 2}),
    "without headers": ("", {"seq": 2, "no_hdr": True}),
    "a sequence that is none": ("", {"seq": 99}),
    "last by subject": ("", {"last_by_subj": "S.a"}),
    "last by a subject that is none": ("", {"last_by_subj": "S.z"}),
    "next by subject": ("", {"next_by_subj": "S.a", "seq": 2}),
    "next by wildcard": ("", {"next_by_subj": "S.*", "seq": 4}),
    "next by subject from the beginning": ("", {"next_by_subj": "S.b"}),
    "last of the subject in the subject": (".S.a", b""),
    "last of a longer subject": (".S.c.d", b""),
    "last of a subject that is none": (".S.nothing", b""),
    "last of the subject, without headers": (".S.b", {"no_hdr": True}),
    "a request beside the subject": (".S.b", {"seq": 1}),
    "batch": ("", {"seq": 1, "batch": 3}),
    "batch beyond the end": ("", {"seq": 4, "batch": 30}),
    "batch behind the end": ("", {"seq": 40, "batch": 30}),
    "batch by subject": ("", {"seq": 1, "next_by_subj": "S.a", "batch": 2}),
    "batch by wildcard": ("", {"seq": 1, "next_by_subj": "S.>", "batch": 20}),
    "batch of bytes": ("", {"seq": 1, "batch": 10, "max_bytes": 4}),
    "batch from a time": ("", {"start_time": "2020-01-01T00:00:00Z", "batch": 10}),
    "batch from a time to come": ("", {"start_time": "2120-01-01T00:00:00Z", "batch": 10}),
    "from a time": ("", {"start_time": "2020-01-01T00:00:00.5+01:00"}),
    "last of many": ("", {"multi_last": ["S.a", "S.b"]}),
    "last of all": ("", {"multi_last": ["S.>"]}),
    "last of all subjects": ("", {"multi_last": [">"]}),
    "last of none": ("", {"multi_last": ["S.z"]}),
    "last of all in a batch": ("", {"multi_last": ["S.>"], "batch": 2}),
    "last of all up to a sequence": ("", {"multi_last": ["S.>"], "up_to_seq": 3}),
    "last of all from a sequence": ("", {"multi_last": ["S.>"], "seq": 5}),
    "last of all up to a time": ("", {"multi_last": ["S.>"], "up_to_time": "2120-01-01T00:00:00Z"}),
    "last of all up to a time before": ("", {"multi_last": ["S.>"], "up_to_time": "2020-01-01T00:00:00Z"}),
    "last of all up to both": (
        "",
        {"multi_last": ["S.>"], "up_to_time": "2120-01-01T00:00:00Z", "up_to_seq": 2},
    ),
    "nothing": ("", b""),
    "an empty object": ("", {}),
    "only a batch": ("", {"batch": 1}),
    "no JSON": ("", b"{"),
    "a wrong type": ("", {"seq": "1"}),
    "a negative sequence": ("", {"seq": -1}),
    "no time": ("", {"start_time": "yesterday"}),
    "an unknown member": ("", {"seq": 1, "other": [1, {"a": None}]}),
    "other letters": ("", {"SEQ": 1}),
    "sequence and last": ("", {"seq": 1, "last_by_subj": "S.a"}),
    "sequence and time": ("", {"seq": 1, "start_time": "2020-01-01T00:00:00Z"}),
    "last and next": ("", {"next_by_subj": "S.a", "last_by_subj": "S.a"}),
    "last in a batch": ("", {"last_by_subj": "S.a", "batch": 2}),
    "last and many": ("", {"last_by_subj": "S.a", "multi_last": ["S.b"]}),
    "next and many": ("", {"next_by_subj": "S.a", "multi_last": ["S.b"]}),
    "escapes": ("", b'{"last_by_subj":"\\u0053.a"}'),
    "trailing bytes": ("", b'{"seq":1} x'),
}


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_direct_gets(tested: GnatsStreams, compared: ReferenceStreams, storage: str) -> None:
    answers: dict[str, list[list[Reply]]] = {}
    for streams in (tested, compared):
        name = filled(streams, storage=storage)
        with Client(streams.address) as client:
            for what, (subject, request) in REQUESTS.items():
                answers.setdefault(what, []).append(got(client, name, subject, request))
    different = {what: pair for what, pair in answers.items() if pair[0] != pair[1]}
    assert not different


def test_required_api_level(tested: GnatsStreams, compared: ReferenceStreams) -> None:
    levels = [b"0", b"1", b"-1", b"+1", b"100", b"x", b"", b"9999999999999999999999"]
    answers = []
    for streams in (tested, compared):
        name = filled(streams)
        with Client(streams.address) as client:
            answers.append(
                [got(client, name, "", {"seq": 1}, b"Nats-Required-Api-Level: " + level) for level in levels]
            )
    assert answers[0] == answers[1]


@pytest.mark.parametrize("headers_only", [False, True])
def test_republished(tested: GnatsStreams, compared: ReferenceStreams, headers_only: bool) -> None:
    heard = []
    for streams in (tested, compared):
        name = f"R{next(_numbers)}"
        streams.add(
            name=name,
            subjects=[f"{name}.>"],
            republish={"src": f"{name}.a.>", "dest": f"again.{name}.>", "headers_only": headers_only},
        )
        with Client(streams.address) as client:
            client.connection.send(b"SUB again.%s.> 2\r\n" % name.encode())
            client.connection.fence()
            for subject, header in (
                (b"a.x", []),
                (b"b.x", []),
                (b"a.y", [b"A: b"]),
                (b"a.x", [b"Nats-Msg-Id: 1"]),
            ):
                client.publish(name.encode() + b"." + subject, b"payload", header)
            ops = [client.connection.read_op() for _ in range(3)]
            heard.append(sorted(TIME.sub(b"NOW", op).replace(name.encode(), b"NAME") for op in ops))
    # Header sizes differ because times have no trailing zeros.
    sizes = re.compile(rb"(HMSG \S+ \S+) \d+ \d+")
    assert [sizes.sub(rb"\1", op) for op in heard[0]] == [sizes.sub(rb"\1", op) for op in heard[1]]


def test_nobody_else_gets_an_answer(tested: GnatsStreams) -> None:
    """The stream answers the publisher only; other subscribers get the message, and none makes a 503."""
    name = filled(tested)
    with Client(tested.address) as client, Client(tested.address) as other:
        other.connection.send(b"SUB %s.> 7\r\n" % name.encode())
        other.connection.fence()
        assert json.loads(client.ask(name.encode() + b".a", b"x")[0][1]) == {
            "stream": name,
            "seq": len(STORED) + 1,
        }
        assert other.connection.read_op() == b"MSG %s.a 7 %s1 1\r\nx\r\n" % (name.encode(), client.inbox)
        assert client.ask(b"nobody.there", b"x")[0][0].startswith(b"NATS/1.0 503")
