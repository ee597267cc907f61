"""The accounts of a server: made from its options, changed in place by a reload or a new JWT (accounts.go)."""

from collections.abc import Iterable

from gnats.account import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT, Account
from gnats.accountopts import AccountConfig
from gnats.errors import OptionError
from gnats.exchange import CheckActivation, Exchange
from gnats.gofmt import quote
from gnats.mappings import Row, compile_mappings
from gnats.opts import Options


class Accounts(dict[str, Account]):
    """Accounts by name: the global one, the system's unless the options want none, and those of the options.

    Raises OptionError for options that do not go together.
    """

    def __init__(
        self, opts: Options, server_name: str = "", check_activation: CheckActivation | None = None
    ) -> None:
        super().__init__()
        self._server_name = server_name
        self._check_activation = check_activation
        self.global_account = self._register(GLOBAL_ACCOUNT)
        self.system_account: Account | None = None
        self.configure(opts)

    def configure(self, opts: Options) -> None:
        """Make the accounts what the options say; accounts and clients that stay go on working.

        Accounts that are not named any more are returned to nothing; their clients are the caller's business.
        Raises OptionError, changing nothing, for options that cannot be used.
        """
        configs = {config.name: config for config in opts.accounts}
        system = opts.system_account or (SYSTEM_ACCOUNT if SYSTEM_ACCOUNT in configs else "")
        if system and system not in configs and system != GLOBAL_ACCOUNT and not opts.trusted_operators:
            raise OptionError(f"error resolving system account {quote(system)}: account missing")
        if not system and not opts.no_system_account:
            system = SYSTEM_ACCOUNT
        plain = [GLOBAL_ACCOUNT, system] if system else [GLOBAL_ACCOUNT]
        for name in plain:
            configs.setdefault(
                name, AccountConfig(name, mappings=opts.mappings if name == GLOBAL_ACCOUNT else [])
            )
        self._apply(configs.values(), system)

    def _apply(self, configs: Iterable[AccountConfig], system: str) -> None:
        configs = list(configs)
        rows = {config.name: _mappings(config) for config in configs}
        exchange = Exchange(self._check_activation)
        exchange.add(configs)
        if system:
            exchange.add_system_exports(system)
        gone = self.keys() - {config.name for config in configs}
        for config in configs:
            account = self._register(config.name)
            account.set_mappings(rows[config.name])
            account.set_limits(config.limits)
        for name in gone:
            self[name].set_mappings([])
            del self[name]
        self.system_account = self[system] if system else None

    def _register(self, name: str) -> Account:
        account = self.get(name)
        if account is None:
            account = self[name] = Account(name)
        return account


def _mappings(config: AccountConfig) -> list[Row]:
    try:
        return compile_mappings(config.mappings)
    except ValueError as exc:
        raise OptionError(f"account {quote(config.name)}: Error adding mapping: {exc}") from None
