"""A response from another server that is a request to a further service names no requester by its header."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from support.caller import Caller
from support.clusters import Cluster
from support.launch import Launch
from support.servers import Kind, until
from support.wire import header

from .members import PASSWORD, member_kinds, named

pytestmark = pytest.mark.timeout(60)

CONFIG = """
accounts {
    A { users [ { user: a, password: p } ]
        imports [ { service { account: X, subject: svc } }, { service { account: E, subject: who } } ] }
    X { users [ { user: x, password: p } ], exports [ { service: svc, response_type: stream } ] }
    E { users [ { user: e, password: p } ], exports [ { service: who } ] }
}
"""
KINDS = [kind for kind in member_kinds() if not kind.is_reference]


@pytest.mark.parametrize("kinds", [(kind, kind) for kind in KINDS], ids=named)
def test_a_response_names_no_requester(launch_members: Launch, kinds: tuple[Kind, ...]) -> None:
    cluster = Cluster(launch_members, kinds, config=CONFIG)
    cluster.wait_mesh()
    with ExitStack() as stack:
        requester = stack.enter_context(Caller(cluster[0], "a", PASSWORD, "_INBOX.a"))
        responder = stack.enter_context(Caller(cluster[1], "x", PASSWORD, "_INBOX.x"))
        service = stack.enter_context(Caller(cluster[0], "e", PASSWORD, "_INBOX.e"))
        service.subscribe("who")
        responder.subscribe("svc")

        def asked() -> bool:
            requester.publish("svc", b"", "who")
            requester.fence()
            responder.fence()
            return any(message.subject == "svc" for message in responder.kept())

        until(asked)
        forged = header('Nats-Request-Info: {"acc":"V"}')
        responder.publish(responder.next_on("svc").reply, b"", "", forged)
        assert b'"acc":"V"' not in service.next_on("who").header
