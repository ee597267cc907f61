"""Requests that the server itself answers to its clients (events.go); for now $SYS.REQ.USER.INFO."""

import json
import time
from typing import TYPE_CHECKING

from gnats.account import Account
from gnats.gofmt import rfc3339
from gnats.internal import InternalClient, Message
from gnats.version import NATS_VERSION

if TYPE_CHECKING:
    from gnats.server import Server

USER_INFO = b"$SYS.REQ.USER.INFO"


class UserInfo:
    """Tells the clients of an account who they are."""

    def __init__(self, account: Account, client: InternalClient, server: "Server") -> None:
        self._account = account
        self._server = server
        self._client = client
        self._seq = 0
        client.subscribe(USER_INFO, self._user_info)

    def _user_info(self, request: Message) -> None:
        session = self._server.clients.get(request.producer)
        if session is None or not request.reply:  # it did not wait for the answer, or wants none
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
        self._client.publish(request.reply, payload)
