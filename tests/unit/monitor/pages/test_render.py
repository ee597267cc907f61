"""Pages as text, and the modules that making them loads."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.monitor.pages.render import chunks, number, without_empty
from gnats.runtime.steps import finish

pytestmark = pytest.mark.timeout(60)


def marshal(value: object, indent: int | None = 2) -> str:
    return "".join(chunks(value, indent))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 2, 3]))
def test_what_is_written_can_be_read(value: object, indent: int | None) -> None:
    text = marshal(value, indent)
    assert json.loads(text) == json.loads(json.dumps(value).encode())
    assert not set(text) & set("<>&\u2028\u2029")


def test_halves_of_characters_are_replaced() -> None:
    assert marshal("a\ud800", None) == '"a\ufffd"'


@pytest.mark.parametrize(("value", "text"), [(2.0, "2"), (0.5, "0.5"), (0.0, "0"), (1e3, "1000")])
def test_floats_have_no_empty_fraction(value: float, text: str) -> None:
    assert marshal(number(value)) == text


def test_only_what_is_named_is_left_out() -> None:
    page = {"a": 0, "b": 0, "c": [], "d": "x"}
    assert without_empty(page, ("a", "c", "d")) == {"b": 0, "d": "x"}


def test_steps_have_a_result() -> None:
    def steps():  # type: ignore[no-untyped-def]
        yield
        return 5

    assert finish(steps()) == 5


def test_pages_need_nothing_that_is_not_always_there() -> None:
    program = """
import sys
for name in ("aiohttp", "ssl", "cryptography", "prometheus_client"):
    sys.modules[name] = None
from gnats.monitor.pages import accountz, connz, debugz, gatewayz, healthz, raftz, subsz, varz
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
