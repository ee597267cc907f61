"""What the permissions of a leaf node's connection become for its session."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gnats.core.auth.permissions import Permissions as Compiled
from gnats.core.auth.permissions import compile_permissions
from gnats.leafnodes.info import denying
from gnats.options.values.auth import Permissions, ResponsePermission, SubjectPermission

if TYPE_CHECKING:
    from gnats.leafnodes.leaf import Leaf

NOTHING = SubjectPermission(deny=(">",))


def session_permissions(leaf: "Leaf") -> tuple[Compiled | None, Compiled | None]:
    """Return the permissions of a session: what goes out over it, and what the peer may send.

    The former's subscribe half is what this server announces, its publish half what the peer is sent. As in
    nats-server, a hub checks messages of its spoke without the denials of JetStream, because a spoke's
    requests to the hub's JetStream are allowed; a spoke takes what it may announce (None).
    """
    not_sent, not_announced = leaf.js_denials
    if leaf.solicited:
        assert leaf.remote
        options = leaf.remote.options
        imports = denying(leaf.imports, options.deny_imports)
        exports = denying(leaf.exports, options.deny_exports)
        announced, sent, received = imports, exports, exports
    else:  # of the other side's view of its user
        announced, sent, received = leaf.exports, leaf.imports, leaf.exports
        sent = denying(sent, leaf.peer_denials)
    out = _compiled(
        publish=as_publish(denying(sent, not_sent)),
        subscribe=as_subscribe(denying(announced, not_announced)),
    )
    if leaf.spoke:
        return out, None
    granted = leaf.grant.permissions
    return out, _compiled(publish=received, response=granted.response if granted else None)


def _compiled(
    publish: SubjectPermission | None = None,
    subscribe: SubjectPermission | None = None,
    response: ResponsePermission | None = None,
) -> Compiled | None:
    if publish is None and subscribe is None and response is None:
        return None
    return compile_permissions(Permissions(publish, subscribe, response))


def as_publish(permission: SubjectPermission | None) -> SubjectPermission | None:
    """Turn a permission to subscribe into one to publish: an empty list allows everything there.

    Entries with a queue group do not count for messages.
    """
    if permission is None:
        return None
    allow = _plain(permission.allow) if permission.allow else None
    return SubjectPermission(allow, _plain(permission.deny))


def as_subscribe(permission: SubjectPermission | None) -> SubjectPermission | None:
    """Turn a permission to publish into one to subscribe: an empty list allows nothing there."""
    return NOTHING if permission and permission.allow == () else permission


def _plain(subjects: Iterable[str]) -> tuple[str, ...]:
    return tuple(each for each in subjects if len(each.split()) == 1)
