"""Expands the permissions of a scoped signing key for a user: {{name()}}, {{tag(x)}}... in their subjects.

A subject with a tag becomes one subject for each value that the user or the account has for the tag; with
several tags, one for each combination. (processUserPermissionsTemplate in auth.go)
"""

import itertools
import re
from dataclasses import replace

from gnats.core.subjects.subject import valid_subject
from gnats.go.text import quote
from gnats.jwt.claims import Permission, Strings, UserClaims, UserPermissionLimits

MAX_EXPANSIONS = 4096
"""Subjects that an expanded list may have."""
_PART = re.compile(r"\{\{([^}]+)\}\}")
_TAG = re.compile(r"(tag|account-tag)\(.*\)", re.IGNORECASE | re.DOTALL)


class TemplateError(ValueError):
    """A template cannot be expanded for a user; the user is refused."""


def expand(
    template: UserPermissionLimits, user: UserClaims, account_name: str, account_tags: Strings
) -> UserPermissionLimits:
    """Expand the template for a user of the account with this name and these tags. Raises TemplateError."""
    expander = _Expander(user, account_name, account_tags)
    return replace(template, pub=expander.permission(template.pub), sub=expander.permission(template.sub))


class _Expander:
    def __init__(self, user: UserClaims, account_name: str, account_tags: Strings) -> None:
        self._simple = {
            "name()": user.name,
            "subject()": user.sub,
            "account-name()": account_name,
            "account-subject()": user.nats.issuer_account,
        }
        self._tags = {"tag": user.nats.tags or (), "account-tag": account_tags or ()}

    def permission(self, permission: Permission) -> Permission:
        # An allowed subject that cannot be expanded is dropped. A denied one must not be: expand() fails.
        allow = self._list(permission.allow, strict=False)
        deny = self._list(permission.deny, strict=True)
        if permission.allow and not allow and ">" not in (deny or ()):
            deny = (*(deny or ()), ">")
        return Permission(allow=allow, deny=deny)

    def _list(self, subjects: Strings, *, strict: bool) -> Strings:
        if subjects is None or not any(_PART.search(subject) for subject in subjects):
            return subjects
        expanded: list[str] = []
        for subject in subjects:
            for each in self._subject(subject, MAX_EXPANSIONS - len(expanded), strict=strict):
                if valid_subject(each):
                    expanded.append(each)
                elif strict:
                    raise TemplateError("generated invalid subject")
        return tuple(expanded)

    def _subject(self, subject: str, room: int, *, strict: bool) -> list[str]:
        parts = [match[0] for match in _PART.finditer(subject)]
        values = [self._values(part, subject, strict=strict) for part in parts]
        if any(_TAG.fullmatch(part[2:-2].strip()) for part in parts):
            count = 1
            for each in values:
                count *= len(each)
                if count > room:
                    raise TemplateError(f"template expansion exceeds limit: {MAX_EXPANSIONS}")
        expanded = []
        for combination in itertools.product(*values):
            made = subject
            for part, value in zip(parts, combination, strict=True):
                made = made.replace(part, value)
            expanded.append(made)
        return expanded

    def _values(self, part: str, subject: str, *, strict: bool) -> list[str]:
        operation = part[2:-2].strip()
        if operation.lower() in self._simple:
            return [self._simple[operation.lower()]]
        match = _TAG.fullmatch(operation)
        if match is None:
            raise TemplateError(f"template operation in {quote(subject)}: {quote(operation)} is not defined")
        # As in nats-server, a function in capitals becomes a part of the tag's name.
        tag = operation.removeprefix(f"{match[1].lower()}(").removesuffix(")")
        prefix = f"{tag.lower()}:"
        values = [each[len(prefix) :] for each in self._tags[match[1].lower()] if each.startswith(prefix)]
        if not values and strict:
            raise TemplateError(f"generated invalid subject {quote(subject)}: {quote(tag)} is not defined")
        return values or [" "]  # not a subject
