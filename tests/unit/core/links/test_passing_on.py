"""A message for a queue group whose member has gone is passed on over a route, for its groups alone.

Plain subscribers have got it from its publisher's server, so a second copy would be one too many: nats-server
sends it, and gnats does to servers that do not say that they know better.
"""

from __future__ import annotations

import pytest
from support.dataplane import DataPlane


@pytest.mark.parametrize(
    ("passes", "came", "passed"),
    [
        (True, b"RMSG A foo | g 1", b"RMSG A foo ! g 1"),
        (True, b"RMSG A foo + reply g 1", b"RMSG A foo * reply g 1"),
        (True, b"RMSG A foo ! g 1", b"RMSG A foo ! g 1"),
        (True, b"HMSG A foo * reply g 0 1", b"RMSG A foo * reply g 1"),
        (False, b"RMSG A foo | g 1", b"RMSG A foo | g 1"),
        (False, b"RMSG A foo + reply g 1", b"RMSG A foo + reply g 1"),
        (False, b"RMSG A foo * reply g 1", b"RMSG A foo + reply g 1"),
    ],
)
def test_what_came_over_a_route_goes_on_for_groups_alone(
    plane: DataPlane, passes: bool, came: bytes, passed: bytes
) -> None:
    plane.account("A")
    route = plane.route(passes=passes)
    other = plane.route(len(plane.pollers) - 1, passes=passes)
    other.say(b"RS+ A foo\r\nRS+ A foo g 1\r\n")
    assert route.say(came + b"\r\nx\r\n") == b""
    assert other.hear() == passed + b"\r\nx\r\n"


def test_what_a_client_publishes_is_for_all(plane: DataPlane) -> None:
    client = plane.client(plane.account("A"))
    route = plane.route(passes=True)
    route.say(b"RS+ A foo\r\nRS+ A foo g 1\r\n")
    client.say(b"PUB foo 1\r\nx\r\nPUB foo reply 1\r\nx\r\n")
    assert route.hear() == b"RMSG A foo | g 1\r\nx\r\nRMSG A foo + reply g 1\r\nx\r\n"


@pytest.mark.parametrize(
    ("line", "heard"),
    [
        (b"RMSG A foo ! g 1", [b"MSG foo 2 1"]),
        (b"RMSG A foo * reply g 1", [b"MSG foo 2 reply 1"]),
        (b"RMSG A foo * reply h g 1", [b"MSG foo 2 reply 1", b"MSG foo 3 reply 1"]),
        (b"HMSG A foo ! g 0 1", [b"MSG foo 2 1"]),
        (b"RMSG A foo ! other 1", []),
        (b"RMSG A foo | g 1", [b"MSG foo 1 1", b"MSG foo 2 1"]),
    ],
)
def test_only_groups_get_what_is_passed_on(plane: DataPlane, line: bytes, heard: list[bytes]) -> None:
    client = plane.client(plane.account("A"), len(plane.pollers) - 1)
    client.say(b"SUB foo 1\r\nSUB foo g 2\r\nSUB foo h 3\r\n")
    route = plane.route(passes=True)
    route.hear()
    route.say(line + b"\r\nx\r\n")
    assert sorted(op for op in client.hear().splitlines() if op.startswith(b"MSG")) == heard
    assert route.say(b"PING\r\n") == b"PONG\r\n"
    # The next message is for all again.
    route.say(b"RMSG A foo 1\r\ny\r\n")
    assert client.hear() == b"MSG foo 1 1\r\ny\r\n"


@pytest.mark.parametrize(
    ("passes", "came", "passed"),
    [
        (True, b"RMSG A foo ! g 1", b"LMSG foo ! g 1"),
        (True, b"RMSG A foo * reply g 1", b"LMSG foo * reply g 1"),
        (True, b"RMSG A foo | g 1", b"LMSG foo | g 1"),
        (False, b"RMSG A foo ! g 1", b"LMSG foo | g 1"),
        (False, b"RMSG A foo * reply g 1", b"LMSG foo + reply g 1"),
    ],
)
def test_leaf_nodes_hear_that_a_message_is_for_groups_alone(
    plane: DataPlane, passes: bool, came: bytes, passed: bytes
) -> None:
    """What is for all comes to a leaf node in one line with what its groups get."""
    leaf = plane.leaf(plane.account("A"), len(plane.pollers) - 1, passes=passes)
    leaf.say(b"LS+ foo\r\nLS+ foo g 1\r\n")
    route = plane.route(passes=True)
    route.say(came + b"\r\nx\r\n")
    assert leaf.hear() == passed + b"\r\nx\r\n"


@pytest.mark.parametrize("spoke", [False, True], ids=["from a spoke", "from a hub"])
def test_what_a_leaf_node_passes_on_is_for_groups_alone(plane: DataPlane, spoke: bool) -> None:
    account = plane.account("A")
    leaf = plane.leaf(account, spoke=spoke, passes=True)
    client = plane.client(account, len(plane.pollers) - 1)
    client.say(b"SUB foo 1\r\nSUB foo g 2\r\n")
    leaf.say(b"LMSG foo ! g 1\r\nx\r\n")
    assert client.hear() == b"MSG foo 2 1\r\nx\r\n"
    leaf.say(b"LMSG foo | g 1\r\nx\r\n")
    assert sorted(op for op in client.hear().splitlines() if op != b"x") == [b"MSG foo 1 1", b"MSG foo 2 1"]


def test_what_a_leaf_node_passes_on_goes_to_routes_for_groups_alone(plane: DataPlane) -> None:
    leaf = plane.leaf(plane.account("A"), passes=True)
    route = plane.route(len(plane.pollers) - 1, passes=True)
    route.say(b"RS+ A foo\r\nRS+ A foo g 1\r\n")
    leaf.say(b"LMSG foo ! g 1\r\nx\r\n")
    assert route.hear() == b"RMSG A foo ! g 1\r\nx\r\n"


def test_what_a_hub_passes_on_goes_to_leaf_nodes_for_groups_alone(plane: DataPlane) -> None:
    account = plane.account("A")
    hub = plane.leaf(account, spoke=True, passes=True, cluster=b"H")
    leaf = plane.leaf(account, len(plane.pollers) - 1, passes=True)
    leaf.say(b"LS+ foo\r\nLS+ foo g 1\r\n")
    hub.say(b"LMSG foo ! g 1\r\nx\r\n")
    assert leaf.hear() == b"LMSG foo ! g 1\r\nx\r\n"
