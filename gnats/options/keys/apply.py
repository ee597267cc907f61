"""Sets options from a whole configuration; checks that its blocks agree (processConfigFile in opts.go)."""

from dataclasses import replace
from typing import TYPE_CHECKING

from gnats.conf import Config, Token
from gnats.errors import OptionError
from gnats.go.text import quote
from gnats.options.keys.accounts import Accounts, check_items
from gnats.options.keys.authorization import Authorization, Users, check_duplicates
from gnats.options.keys.resolver import Operators
from gnats.options.keys.server import SERVER
from gnats.options.keys.values import Problems, read_block
from gnats.options.values.accounts import ServiceExport
from gnats.options.values.auth import GLOBAL_ACCOUNT, ResolverOptions

if TYPE_CHECKING:
    from gnats.options.values.fields import OptionFields


def apply_config(opts: "OptionFields", config: Config, path: str) -> list[str]:
    """Set the options that a configuration names. Return warnings.

    If a key occurs under several of its names, the last counts. Raises OptionError with all warnings and
    errors, one line each with file, line and position.
    """
    problems = Problems()
    if not config.root:
        problems.warnings.append(f"{path}: config has no values or is empty")
    found = read_block(SERVER, "", Token(config.root, path, 1, 0), problems)
    auth: Authorization | None = found.pop("authorization", None)
    accounts: Accounts | None = found.pop("accounts", None)
    operators: Operators | None = found.pop("operators", None)
    store_dir, place = found.pop("store_dir", ("", None))
    for option, value in found.items():
        setattr(opts, option, value)
    if store_dir:
        if opts.jetstream.store_dir:
            problems.error(place, "duplicate 'store_dir' configuration")
        opts.jetstream = replace(opts.jetstream, store_dir=store_dir)
    if accounts:
        opts.accounts = accounts.accounts
        _check_accounts(opts, accounts, problems)
    if auth:
        _set_authorization(opts, auth)
        _check_callout(opts, auth, problems)
    if operators:
        _set_operators(opts, operators)
    _set_users(opts, auth, accounts, problems)
    opts.config_file, opts.config_digest = path, config.digest
    if problems.errors:
        raise OptionError("\n".join(problems.warnings + problems.errors))
    return problems.warnings


def _set_authorization(opts: "OptionFields", auth: Authorization) -> None:
    opts.username, opts.password, opts.authorization = auth.username, auth.password, auth.secret
    opts.auth_timeout = auth.timeout
    opts.permissions = auth.permissions
    opts.auth_callout = auth.callout


def _set_operators(opts: "OptionFields", operators: Operators) -> None:
    """Set the operators. A system account or resolver of the configuration takes precedence over theirs."""
    opts.trusted_operators = operators.jwts
    opts.system_account = opts.system_account or operators.system_account
    if opts.resolver is None and operators.resolver_url:
        opts.resolver = ResolverOptions("url", url=operators.resolver_url)


def _set_users(
    opts: "OptionFields", auth: Authorization | None, accounts: Accounts | None, problems: Problems
) -> None:
    lists: list[Users] = [auth.users] if auth and auth.users else []
    for each in accounts.users if accounts else ():
        lists.append(each)
        if each and opts.username:
            problems.error(each.token, "Can not have a single user/pass and accounts")
        elif each and opts.authorization:
            problems.error(each.token, "Can not have a token and accounts")
    check_duplicates(lists, problems)
    opts.users = [user for each in lists for user in each.users]
    opts.nkeys = [user for each in lists for user in each.nkeys]


def _check_accounts(opts: "OptionFields", accounts: Accounts, problems: Problems) -> None:
    names = {account.name for account in accounts.accounts}
    if opts.mappings:
        names.add(GLOBAL_ACCOUNT)
    check_items(accounts, names, problems)
    for _, token, export in accounts.items:
        if opts.no_system_account and isinstance(export, ServiceExport) and export.latency:
            problems.error(
                token,
                f"Error adding service latency sampling for {quote(export.subject)}:"
                " system account not setup",
            )


def _check_callout(opts: "OptionFields", auth: Authorization, problems: Problems) -> None:
    names = {account.name for account in opts.accounts}
    for name in auth.callout.allowed_accounts if auth.callout else ():
        if name not in names:
            problems.error(
                auth.token, f"auth_callout allowed account {quote(name)} not found in configured accounts"
            )
