"""What the server tells others about a client: events, services, auth callouts (ClientInfo in events.go)."""

from typing import TYPE_CHECKING

from gnats.gofmt import rfc3339
from gnats.gojson import marshal

if TYPE_CHECKING:
    from gnats.session import Session


def client_info(session: "Session", **changes: object) -> dict[str, object]:
    """ClientInfo's fields in their order, without the empty ones; `changes` replace some of them."""
    opts, grant = session.opts, session.grant
    fields: dict[str, object] = {
        "start": rfc3339(session.start),
        "host": session.host,
        "id": session.cid,
        "acc": session.account.name,
        "svc": "",
        "user": session.raw_auth_user(),
        "name": opts.name,
        "lang": opts.lang,
        "ver": opts.version,
        "rtt": 0,
        "server": "",
        "stop": "",
        "jwt": opts.jwt,
        "issuer_key": grant.issuer_key,
        "name_tag": "",
        "tags": list(grant.tags),
        "kind": "Client",
        "client_type": "nats",
    }
    fields |= changes
    return {name: value for name, value in fields.items() if value}


def share_details(session: "Session") -> None:
    """Have the data plane tell services, where an import shares it, who the client is."""
    info = client_info(session, acc="", name_tag=session.grant.name_tag)
    texts = {name: f'"{name}":'.encode() + marshal(value) for name, value in info.items()}
    head = b"".join(text + b"," for name, text in texts.items() if name in _HEAD)
    mid = b"".join(b"," + text for name, text in texts.items() if name in _MID)
    tail = b"".join(b"," + text for name, text in texts.items() if name not in _HEAD + _MID)
    if session.client:
        session.client.set_details(head, mid, tail)


_HEAD = ("start", "host", "id")
_MID = ("user", "name", "lang", "ver")
