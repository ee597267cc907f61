"""Users, permissions, auth callouts and resolvers in a configuration (auth.go)."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gnats.core.subjects.subject import valid_subject
from gnats.go.text import quote

GLOBAL_ACCOUNT = "$G"
"""The account of users without an account."""
SYSTEM_ACCOUNT = "$SYS"


@dataclass(frozen=True, slots=True)
class SubjectPermission:
    """Allowed and denied subjects. `allow` None allows all that is not denied; () allows nothing.

    In a subscribe permission, an entry "subject queue" applies to that queue only; both may have wildcards.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResponsePermission:
    """Allows publishing to the reply subjects of received messages. A negative number means no limit."""

    max_msgs: int = 1
    expires: float = 120.0
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """A user's permissions; None allows all. Hashable, so that equal permissions are compiled once."""

    publish: SubjectPermission | None = None
    subscribe: SubjectPermission | None = None
    response: ResponsePermission | None = None


CONNECTION_TYPES = frozenset(
    ("STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS")
)


@dataclass(slots=True)
class User:
    """A user with a password (plain or bcrypt). `account` is the account's name; "": the global account."""

    username: str
    password: str = field(default="", repr=False)
    permissions: Permissions | None = None
    account: str = ""
    allowed_connection_types: frozenset[str] = frozenset()
    """Members of CONNECTION_TYPES; empty: all."""
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
    """The service that authenticates users (auth_callout)."""

    issuer: str
    """Public account nkey whose signature answers must have."""
    account: str = GLOBAL_ACCOUNT
    auth_users: tuple[str, ...] = ()
    xkey: str = ""
    """Public curve key of the service; if set, requests are sealed."""
    allowed_accounts: tuple[str, ...] = ()


@dataclass(slots=True)
class ResolverOptions:
    """The source of account JWTs (resolver). `kind` is "mem", "url", "full" or "cache"."""

    kind: str
    url: str = ""
    directory: str = ""
    limit: int = 0
    ttl: float = 0.0
    """Seconds that a cache keeps a JWT."""
    interval: float = 0.0
    """Seconds between synchronisations of a full resolver."""
    timeout: float = 1.9
    """Seconds that a fetch may take."""
    allow_delete: bool = False
    hard_delete: bool = False


def check_permission_subjects(subjects: Iterable[str], *, queues: bool) -> None:
    """Check that entries are subjects, or with `queues` "subject queue" (checkPermSubjectArray in opts.go).

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
    """Check the subjects in permissions (validatePermissionSubjects). Raises ValueError."""
    for what, queues in ("publish", False), ("subscribe", True):
        permission: SubjectPermission | None = getattr(permissions, what, None)
        for half in ("allow", "deny") if permission else ():
            try:
                check_permission_subjects(getattr(permission, half) or (), queues=queues)
            except ValueError as exc:
                raise ValueError(f"{what} {half}: {exc}") from None


def _valid(subject: str) -> bool:
    return valid_subject(subject.encode("utf-8", "surrogateescape"))
