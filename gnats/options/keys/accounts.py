"""The accounts block: users, limits, exports, imports, mappings (parseAccounts in opts.go)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gnats.conf import Token
from gnats.core.subjects.subject import valid_publish_subject
from gnats.go.text import quote
from gnats.options.keys.authorization import Users, users
from gnats.options.keys.exports import Export, Import, exports, imports
from gnats.options.keys.jetstream import account_jetstream
from gnats.options.keys.mappings import mappings
from gnats.options.keys.permissions import permissions
from gnats.options.keys.values import (
    ConfigError,
    Problems,
    array,
    integer,
    keys,
    percentage,
    public_nkey,
    read_block,
    show,
    string,
)
from gnats.options.values.accounts import (
    AccountConfig,
    AccountLimits,
)
from gnats.options.values.auth import GLOBAL_ACCOUNT


@dataclass(slots=True)
class Accounts:
    """An accounts block and its place."""

    token: Token
    accounts: list[AccountConfig] = field(default_factory=list)
    users: list[Users] = field(default_factory=list)
    items: list[tuple[str, Token, Export | Import]] = field(default_factory=list)
    """(account, place, item) of each export and import."""


def accounts(key: str, token: Token, problems: Problems) -> Accounts:
    """Read an accounts block."""
    found = Accounts(token)
    for name, each in _named(key, token, problems):
        if name == GLOBAL_ACCOUNT:
            problems.error(each, f"{quote(name)} is a Reserved Account")
            continue
        if not name:  # a user's account "" is the global one
            problems.error(each, "an account needs a name")
            continue
        fields = read_block(_ACCOUNT, name, each, problems) if isinstance(each.value, dict) else {}
        account_exports, account_imports = fields.pop("exports", []), fields.pop("imports", [])
        account_users: Users | None = fields.pop("users", None)
        account = AccountConfig(name, **fields)
        account.exports = [export for _, export in account_exports]
        account.imports = [item for _, item in account_imports]
        found.accounts.append(account)
        found.items += [(name, place, item) for place, item in [*account_exports, *account_imports]]
        if account_users is not None:
            found.users.append(account_users.completed(name, account.default_permissions))
    return found


def check_items(found: Accounts, names: set[str], problems: Problems) -> None:
    """Report exports and imports that are not valid; `names` are the known accounts.

    After an earlier error nothing is checked: it could be the cause of further errors.
    """
    if problems.errors or not found.items:
        return
    from gnats.options.values.sharing import Exchange

    exchange = Exchange()
    exchange.add_accounts(names)
    for what, kind, add in exchange.steps():
        for account, token, item in found.items:
            if not isinstance(item, kind):
                continue
            partners = [item.account] if isinstance(item, Import) else item.accounts or ()
            missing = [name for name in partners if name not in names]
            for name in missing:
                problems.error(token, f"{quote(name)} account not defined for {what}")
            if missing:
                continue
            try:
                add(account, item)
            except ValueError as exc:
                problems.error(token, f"Error adding {what} {quote(item.subject)}: {exc}")


def _named(key: str, token: Token, problems: Problems) -> Iterator[tuple[str, Token]]:
    """Yield the name and the token of each account. The value may be an array of names.

    An entry of a block that is used as a variable is not an account.
    """
    if isinstance(token.value, dict):
        for name, each in token.value.items():
            if each.used_variable:
                continue
            if isinstance(each.value, dict):
                yield name, each
            else:
                problems.error(each, f"account {quote(name)} takes a block {{ ... }}, not {show(each.value)}")
        return
    seen: set[str] = set()
    for each in array(key, token):
        name = string(f"an item of {key}", each, problems)
        if name in seen:
            problems.error(each, f"Duplicate Account Entry: {name}")
            continue
        seen.add(name)
        yield name, each


def _limits(key: str, token: Token, problems: Problems) -> AccountLimits:
    return AccountLimits(
        **read_block(_LIMITS, key, token, problems, unknown="Unknown field {} parsing account limits")
    )


def _trace(key: str, token: Token, problems: Problems) -> dict[str, Any]:
    if isinstance(token.value, str):
        return {"trace_dest": _trace_dest(key, token, problems)}
    found = read_block(
        _TRACE, key, token, problems, unknown=f"Unknown field {{}} parsing account message trace {quote(key)}"
    )
    if "trace_sampling" in found and not found.get("trace_dest"):
        problems.warning(token, "Trace destination sampling ignored since no destination was set")
        return {}
    return found


def _trace_dest(key: str, token: Token, problems: Problems) -> str:
    subject = string(key, token, problems)
    if not valid_publish_subject(subject.encode("utf-8", "surrogateescape")):
        raise ConfigError(token, f"Trace destination {quote(subject)} is not valid")
    return subject


_LIMITS = keys(
    ("max_connections", integer, "max_connections max_conn"),
    ("max_subscriptions", integer, "max_subscriptions max_subs"),
    ("max_payload", integer, "max_payload max_pay"),
    ("max_leafnodes", integer, "max_leafnodes max_leafs"),
)
_TRACE = keys(("trace_dest", _trace_dest, "dest"), ("trace_sampling", percentage(1), "sampling"))
_ACCOUNT = keys(
    ("nkey", public_nkey("A", "an account"), "nkey"),
    ("users", users, "users"),
    ("default_permissions", permissions, "default_permissions"),
    ("exports", exports, "exports"),
    ("imports", imports, "imports"),
    ("mappings", mappings, "mappings maps"),
    ("limits", _limits, "limits"),
    ("", _trace, "msg_trace trace_dest"),
    ("jetstream", account_jetstream, "jetstream"),
)
