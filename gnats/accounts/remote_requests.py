"""Requesters on other servers (getRequestInfo in jetstream_api.go): the request's header names them.

A header is believed only where another server has written it, so only in what comes from one. The other
server appends the line to what its client has sent: the last one of that name counts.
"""

import json

from gnats.accounts.internal_client import MessageParts

_NAME = b"\nNats-Request-Info:"


def with_requester(message: MessageParts) -> MessageParts:
    """Return a message of another server with the requester and the account that its header names.

    A message without such a header stays as it is: it has come through no import. So does one whose header is
    not valid.
    """
    subject, reply, header, payload, _, _, sid = message
    at = header.rfind(_NAME)
    if at < 0:
        return message
    requester = header[at + len(_NAME) :].partition(b"\r\n")[0].strip()
    try:
        info = json.loads(requester)
    except (ValueError, RecursionError):
        return message
    account = (info.get("svc") or info.get("acc") or "") if isinstance(info, dict) else None
    if not isinstance(account, str):
        return message
    return subject, reply, header, payload, requester, json.dumps(account).encode(), sid
