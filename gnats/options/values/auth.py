"""What a configuration says about who may connect and what they may do (auth.go)."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gnats.core.subjects.subject import valid_subject
from gnats.go.text import quote

GLOBAL_ACCOUNT = "$G"
"""Users without an account are in it."""
SYSTEM_ACCOUNT = "$SYS"


@dataclass(frozen=True, slots=True)
class SubjectPermission:
    """Subjects that may and may not be used; `allow` None allows all that is not denied, () nothing.

    An entry of a subscribe permission may be "subject queue": it is about that queue only (wildcards too).
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResponsePermission:
    """Leave to publish to the reply subjects of received messages; negative numbers mean without limit."""

    max_msgs: int = 1
    expires: float = 120.0
    """seconds"""


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a user may do; None means all. Hashable, so that equal ones can be compiled once."""

    publish: SubjectPermission | None = None
    subscribe: SubjectPermission | None = None
    response: ResponsePermission | None = None


CONNECTION_TYPES = frozenset(
    ("STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS")
)


@dataclass(slots=True)
class User:
    """A user with a password (plain or bcrypt). `account` is an account's name, "" the global one."""

    username: str
    password: str = field(default="", repr=False)
    permissions: Permissions | None = None
    account: str = ""
    allowed_connection_types: frozenset[str] = frozenset()
    """Of CONNECTION_TYPES; empty: all."""
    proxy_required: bool = False


@dataclass(slots=True)
class NkeyUser:
    """A user with a public user nkey."""

    nkey: str
    permissions: Permissions | None = None
    account: str = ""
    allowed_connection_types: frozenset[str] = frozenset()
    proxy_required: bool = False


@dataclass(slots=True)
class AuthCallout:
    """Who decides about users by a service (auth_callout)."""

    issuer: str
    """Public account nkey that signs the answers."""
    account: str = GLOBAL_ACCOUNT
    auth_users: tuple[str, ...] = ()
    xkey: str = ""
    """Public curve key of the service; requests are sealed when it is set."""
    allowed_accounts: tuple[str, ...] = ()


@dataclass(slots=True)
class ResolverOptions:
    """Where account JWTs come from (resolver); `kind` is "mem", "url", "full" or "cache"."""

    kind: str
    url: str = ""
    directory: str = ""
    limit: int = 0
    ttl: float = 0.0
    """seconds, of a cache"""
    interval: float = 0.0
    """seconds between synchronisations of a full one"""
    timeout: float = 1.9
    """seconds a fetch may take"""
    allow_delete: bool = False
    hard_delete: bool = False


def check_permission_subjects(subjects: Iterable[str], *, queues: bool) -> None:
    """Refuse what is no subject, nor with `queues` a subject and a queue (checkPermSubjectArray in opts.go).

    Raises ValueError.
    """
    for subject in subjects:
        if _valid(subject):
            continue
        words = subject.split()
        if not queues or len(words) != 2:
            raise ValueError(f"subject {quote(subject)} is not a valid subject")
        for kind, word in zip(("subject", "queue"), words, strict=True):
            if not _valid(word):
                raise ValueError(f"{kind} {quote(word)} is not a valid {kind}")


def check_permissions(permissions: Permissions | None) -> None:
    """Refuse permissions with what is no subject (validatePermissionSubjects).

    Raises ValueError.
    """
    for what, queues in ("publish", False), ("subscribe", True):
        permission: SubjectPermission | None = getattr(permissions, what, None)
        for half in ("allow", "deny") if permission else ():
            try:
                check_permission_subjects(getattr(permission, half) or (), queues=queues)
            except ValueError as exc:
                raise ValueError(f"{what} {half}: {exc}") from None


def _valid(subject: str) -> bool:
    return valid_subject(subject.encode("utf-8", "surrogateescape"))
