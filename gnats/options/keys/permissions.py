"""The permissions blocks (parseUserPermissions in opts.go)."""

from typing import Any

from gnats.conf import Token
from gnats.options.keys.values import (
    ConfigError,
    Problems,
    Read,
    duration,
    integer,
    keys,
    read_block,
    string_or_strings,
)
from gnats.options.values.auth import (
    Permissions,
    ResponsePermission,
    SubjectPermission,
    check_permission_subjects,
)


def permissions(key: str, token: Token, problems: Problems) -> Permissions:
    """Read a permissions block.

    With a response permission, no list of subjects to publish means that none is allowed, instead of all.
    """
    found = read_block(_PERMISSIONS, key, token, problems, unknown="Unknown field {} parsing permissions")
    publish: SubjectPermission | None = found.get("publish")
    if found.get("response"):
        publish = publish or SubjectPermission()
        found["publish"] = SubjectPermission(publish.allow or (), publish.deny)
    return Permissions(**found)


def _subjects(*, queues: bool) -> Read:
    def read(key: str, token: Token, problems: Problems) -> tuple[str, ...]:
        subjects = string_or_strings(key, token, problems)
        try:
            check_permission_subjects(subjects, queues=queues)
        except ValueError as exc:
            raise ConfigError(token, str(exc)) from None
        return subjects

    return read


def _subject_permission(*, queues: bool) -> Read:
    subjects = _subjects(queues=queues)
    table = keys(("allow", subjects, "allow"), ("deny", subjects, "deny"))
    unknown = "Unknown field name {} parsing subject permissions, only 'allow' or 'deny' are permitted"

    def read(key: str, token: Token, problems: Problems) -> SubjectPermission | None:
        if not isinstance(token.value, dict):
            return SubjectPermission(subjects(key, token, problems) or None)
        if not token.value:
            return None
        found = read_block(table, key, token, problems, unknown)
        return SubjectPermission(found.get("allow") or None, found.get("deny", ()))

    return read


def _response(key: str, token: Token, problems: Problems) -> ResponsePermission | None:
    if isinstance(token.value, bool):
        return ResponsePermission() if token.value else None
    if not isinstance(token.value, dict):
        raise ConfigError(token, f"{key} takes true, false or a block: max and expires")
    found: dict[str, Any] = read_block(
        _RESPONSE, key, token, problems, unknown="Unknown field {} parsing permissions"
    )
    # 0 means the default
    return ResponsePermission(**{option: value for option, value in found.items() if value})


_RESPONSE = keys(
    ("max_msgs", integer, "max max_msgs max_messages max_responses"),
    ("expires", duration, "expires expiration ttl"),
)
_PERMISSIONS = keys(
    ("publish", _subject_permission(queues=False), "pub publish import"),
    ("subscribe", _subject_permission(queues=True), "sub subscribe export"),
    ("response", _response, "publish_allow_responses allow_responses"),
)
