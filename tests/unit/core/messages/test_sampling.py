"""Headers of a request that ask for a latency measurement, and those copied into it."""

from __future__ import annotations

import pytest

from gnats.core.messages.sampling import sampled
from gnats.events.latency import tracing_fields

pytestmark = pytest.mark.timeout(60)

ID = "4bf92f3577b34da6a3ce929d0e0e4736"
CASES = {
    "nothing": ("", False),
    "other fields": ("A: b\r\nB3x: 1\r\n", False),
    "jaeger": (f"Uber-Trace-Id: {ID}:{ID}:{ID}:1\r\n", True),
    "jaeger with two digits": (f"uber-trace-id: {ID}:{ID}:{ID}:03\r\n", True),
    "jaeger not sampled": (f"Uber-Trace-Id: {ID}:{ID}:{ID}:2\r\n", False),
    "jaeger in three parts": (f"Uber-Trace-Id: {ID}:{ID}:1\r\n", False),
    "jaeger with three digits": (f"Uber-Trace-Id: {ID}:{ID}:{ID}:001\r\n", False),
    "jaeger before zipkin": ("Uber-Trace-Id: x\r\nX-B3-Sampled: 1\r\n", False),
    "zipkin": ("X-B3-Sampled: 1\r\n", True),
    "zipkin denied": (f"X-B3-Sampled: 0\r\nX-B3-TraceId: {ID}\r\n", False),
    "zipkin undecided": (f"X-B3-TraceId: {ID}\r\n", True),
    "b3": (f"b3: {ID}-05e3ac9a4f6e3b90-1-05e3ac9a4f6e3b90\r\n", True),
    "b3 undecided": (f"b3: {ID}-05e3ac9a4f6e3b90\r\n", True),
    "b3 denied": (f"b3: {ID}-05e3ac9a4f6e3b90-0\r\n", False),
    "b3 denied shortly": ("B3: 0\r\n", False),
    "w3c": (f"traceparent: 00-{ID}-00f067aa0ba902b7-01\r\n", True),
    "w3c not sampled": (f"traceparent: 00-{ID}-00f067aa0ba902b7-00\r\n", False),
    "w3c with more flags": (f"traceparent: 00-{ID}-00f067aa0ba902b7-7f\r\n", True),
    "w3c with flags out of range": (f"traceparent: 00-{ID}-00f067aa0ba902b7-ff\r\n", False),
    "w3c in pieces": ("traceparent: 00-01\r\n", False),
}


@pytest.mark.parametrize(("fields", "expected"), CASES.values(), ids=CASES.keys())
def test_a_header_asks_for_a_measurement(fields: str, expected: bool) -> None:
    assert sampled(f"NATS/1.0\r\n{fields}\r\n".encode()) is expected


def test_what_belongs_together_is_reported() -> None:
    header = b"NATS/1.0\r\ntraceparent: 00-a-b-01\r\nTRACESTATE: x\r\nOther: y\r\n\r\n"
    assert tracing_fields(header) == {"Traceparent": ["00-a-b-01"], "Tracestate": ["x"]}
    header = b"NATS/1.0\r\nX-B3-Sampled: 1\r\nx-b3-spanid: 2\r\nb3: 0\r\n\r\n"
    assert tracing_fields(header) == {"X-B3-Sampled": ["1"], "X-B3-Spanid": ["2"]}
    header = b"NATS/1.0\r\nUber-Trace-Id: a:b:c:1\r\nUberctx-x: 1\r\nUberctx-y: 2\r\n\r\n"
    assert list(tracing_fields(header)) == ["Uber-Trace-Id", "Uberctx-X", "Uberctx-Y"]
    assert tracing_fields(b"") == {}
