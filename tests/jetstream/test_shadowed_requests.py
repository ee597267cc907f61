"""Requests to JetStream that other accounts receive too, through a stream import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.launch import Launch
from support.servers import Server
from support.wire import Connection, connect_op

pytestmark = pytest.mark.timeout(60)

CONFIG = """
jetstream: {store_dir: "%s"}
accounts {
  A {
    users: [{user: a, password: a}]
    exports: [{stream: ">"}]
  }
  B {
    jetstream: enabled
    users: [{user: b, password: b}]
    imports: [{stream: {account: A, subject: ">"}}]
  }
}
"""
GET = b"$JS.API.DIRECT.GET.S"
REQUEST = b'{"seq":1}'


@pytest.fixture
def server(launch: Launch, tmp_path: Path) -> Server:
    return launch(config=CONFIG % (tmp_path / "store"))


class User(Connection):
    """A client of a user whose password is the name, with a subscription with sid 1."""

    def __init__(self, server: Server, user: str, subject: bytes) -> None:
        super().__init__(server.address)
        self.send(connect_op(user, password=user, headers=True) + b"SUB " + subject + b" 1\r\n")
        self.fence()


def test_who_is_served_behind_a_direct_get_hears_what_was_published(server: Server) -> None:
    """The answer, published during the fan-out, overwrites no memory that later subscribers need."""
    with User(server, "b", b"answers.>") as owner, User(server, "a", b">") as before:
        config = json.dumps(
            {"name": "S", "subjects": ["s"], "storage": "memory", "allow_direct": True}
        ).encode()
        owner.send(b"PUB $JS.API.STREAM.CREATE.S answers.made %d\r\n%b\r\n" % (len(config), config))
        assert b"error" not in owner.read_op()
        owner.send(b"PUB s 5\r\nhello\r\n")
        owner.fence()
        with User(server, "a", GET) as same, User(server, "a", b"$JS.API.DIRECT.GET.*") as wider:
            wider.send(b"SUB $JS.API.*.GET.S group 2\r\n")
            wider.fence()
            for i in range(3):
                # Two blanks, so that the server writes the line anew instead of copying the input.
                before.send(b"PUB  %b answers.%d %d\r\n%b\r\n" % (GET, i, len(REQUEST), REQUEST))
                before.fence()
                heard = b"MSG %b %%d answers.%d %d\r\n%b\r\n" % (GET, i, len(REQUEST), REQUEST)
                assert same.fence() == [heard % 1]
                assert sorted(wider.fence()) == [heard % 1, heard % 2]
                assert owner.read_op().split(b" ", 2)[1] == b"answers.%d" % i
