"""The authorization block and lists of users (parseAuthorization, parseUsers in opts.go)."""

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from gnats.conf import Token
from gnats.go.text import quote
from gnats.options.keys.permissions import permissions
from gnats.options.keys.values import (
    ConfigError,
    Problems,
    array,
    keys,
    not_yet_unless,
    public_nkey,
    read_block,
    string,
    string_or_strings,
    strings,
    timeout,
)
from gnats.options.values.auth import CONNECTION_TYPES, AuthCallout, NkeyUser, Permissions, User

_MAX_TIMEOUT = 60.0

AnyUser = TypeVar("AnyUser", User, NkeyUser)


@dataclass(slots=True)
class Users:
    """A list of users and its place."""

    token: Token
    users: list[User] = field(default_factory=list)
    nkeys: list[NkeyUser] = field(default_factory=list)

    def completed(self, account: str, default: Permissions | None) -> "Users":
        """Return the users in `account`; those without permissions get `default`."""
        return Users(
            self.token,
            [_completed(user, account, default) for user in self.users],
            [_completed(user, account, default) for user in self.nkeys],
        )

    def __bool__(self) -> bool:
        return bool(self.users or self.nkeys)


@dataclass(slots=True)
class Authorization:
    """An authorization block and its place."""

    token: Token
    username: str = ""
    password: str = ""
    secret: str = ""
    timeout: float = 0.0
    permissions: Permissions | None = None
    callout: AuthCallout | None = None
    users: Users | None = None


def authorization(key: str, token: Token, problems: Problems) -> Authorization:
    """Read an authorization block."""
    auth = Authorization(token, **read_block(_AUTHORIZATION, key, token, problems))
    if auth.secret and (auth.username or auth.password):
        problems.error(token, "Cannot have a user/pass and token")
    if auth.users is not None:
        auth.users = auth.users.completed("", auth.permissions)
        if auth.username:
            problems.error(token, "Can not have a single user/pass and a users array")
        if auth.secret:
            problems.error(token, "Can not have a token and a users array")
    return auth


def users(key: str, token: Token, problems: Problems) -> Users:
    """Read an array of users."""
    found = Users(token)
    for item in array(key, token):
        try:
            user = _user(item, problems)
        except ConfigError as exc:
            problems.error(exc.token, str(exc))
            continue
        if isinstance(user, User):
            found.users.append(user)
        else:
            found.nkeys.append(user)
    return found


def check_duplicates(lists: list[Users], problems: Problems) -> None:
    """Report names and nkeys that more than one user has."""
    seen: set[str] = set()
    for each in lists:
        named = [("user", user.username) for user in each.users] + [
            ("nkey", user.nkey) for user in each.nkeys
        ]
        for kind, name in named:
            if name in seen:
                problems.error(each.token, f"Duplicate {kind} {quote(name)} detected")
            seen.add(name)


def _user(token: Token, problems: Problems) -> User | NkeyUser:
    found = read_block(_USER, "a user", token, problems)
    if nkey := found.pop("nkey", ""):
        if found.pop("username", "") or found.pop("password", ""):
            raise ConfigError(token, "Nkey users do not take usernames or passwords")
        return NkeyUser(nkey, **found)
    if not found.get("username"):
        raise ConfigError(token, "User entry requires a user")
    return User(**found)


def _completed(user: AnyUser, account: str, default: Permissions | None) -> AnyUser:
    return replace(user, account=account, permissions=user.permissions or default)


def _connection_types(key: str, token: Token, problems: Problems) -> frozenset[str]:
    types = frozenset(name.upper() for name in string_or_strings(key, token, problems))
    if unknown := sorted(types - CONNECTION_TYPES):
        raise ConfigError(token, f"invalid connection types [{' '.join(map(quote, unknown))}]")
    return types


def auth_timeout(key: str, token: Token, problems: Problems) -> float:
    """Read the seconds in which a peer must say who it is; warn of many."""
    found = timeout(key, token, problems)
    if found > _MAX_TIMEOUT:
        problems.misuse(
            key,
            token,
            f"timeout of {token.value} ({found:f} seconds) is high, consider less than 60 seconds"
            " (a bare 1m is a million: quote durations)",
        )
    return found


def _callout(key: str, token: Token, problems: Problems) -> AuthCallout:
    found: dict[str, Any] = read_block(
        _CALLOUT, key, token, problems, unknown="Unknown field {} parsing authorization callout"
    )
    if not found.get("account"):
        found.pop("account", None)
    if "issuer" not in found:
        raise ConfigError(token, "Authorization callouts require an issuer to be specified")
    if not found.get("auth_users"):
        raise ConfigError(token, "Authorization callouts require authorized users to be specified")
    return AuthCallout(**found)


_CALLOUT = keys(
    ("issuer", public_nkey("A", "an account"), "issuer"),
    ("account", string, "account acc"),
    ("auth_users", strings, "auth_users users"),
    ("xkey", public_nkey("X", "a curve key"), "xkey key"),
    ("allowed_accounts", strings, "allowed_accounts"),
)
_USER = keys(
    ("nkey", public_nkey("U", "a user"), "nkey"),
    ("username", string, "user username"),
    ("password", string, "pass password"),
    ("permissions", permissions, "permission permissions authorization"),
    ("allowed_connection_types", _connection_types, "allowed_connection_types connection_types clients"),
    ("", not_yet_unless(False), "proxy_required"),
)
_AUTHORIZATION = keys(
    ("username", string, "user username"),
    ("password", string, "pass password"),
    ("secret", string, "token"),
    ("timeout", auth_timeout, "timeout"),
    ("users", users, "users"),
    ("permissions", permissions, "default_permission default_permissions permissions"),
    ("callout", _callout, "auth_callout auth_hook"),
    ("", not_yet_unless(False), "proxy_required"),
)
