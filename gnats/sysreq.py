"""Requests that the server itself answers to its clients (events.go); for now $SYS.REQ.USER.INFO."""

import json
import time
from typing import TYPE_CHECKING

from gnats.account import Account
from gnats.core.client import Client
from gnats.core.parser import ACCOUNT
from gnats.core.poller import Poller
from gnats.gofmt import rfc3339
from gnats.reasons import ClosedState
from gnats.version import NATS_VERSION

if TYPE_CHECKING:
    from gnats.server import Server

USER_INFO = b"$SYS.REQ.USER.INFO"


class AccountClient:
    """The internal client of an account: subscribes to what the server answers, and answers it."""

    def __init__(self, account: Account, poller: Poller, server: "Server") -> None:
        self._account = account
        self._server = server
        self._seq = 0
        self._client = Client(ACCOUNT, -1, server.next_cid(), poller, server.state)
        self._client.register(account)
        self._client.subscribe_internal(USER_INFO, None, b"1")
        server.add_internal_client(self._client)

    def close(self) -> None:
        """Unsubscribe and go."""
        self._client.close_connection(ClosedState.CLIENT_CLOSED)

    def process_message(self, requester: int, message: object) -> None:
        """Answer a message, (subject, reply, header, payload, sid), that the client `requester` published."""
        assert isinstance(message, tuple)
        subject, reply = message[:2]
        if subject == USER_INFO and reply:
            self._user_info(requester, reply)

    def _user_info(self, requester: int, reply: bytes) -> None:
        session = self._server.clients.get(requester)
        if session is None:  # it did not wait for the answer
            return
        server = self._server
        self._seq += 1
        answer = {
            "server": {
                "name": server.name,
                "host": server.opts.host,
                "id": server.id,
                "ver": NATS_VERSION,
                "jetstream": False,
                "flags": 0,
                "seq": self._seq,
                "time": rfc3339(time.time_ns()),
            },
            "data": {
                "user": session.raw_auth_user(),
                "account": self._account.name,
                "account_name": self._account.name,
            },
        }
        payload = json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
        self._client.publish_internal(reply, None, None, payload)
