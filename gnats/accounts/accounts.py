"""The accounts of a server (accounts.go), built from its options; a reload or a JWT changes them in place."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from gnats.accounts.account import Account
from gnats.clock import Timer, call_later, time_ns
from gnats.core.accounts.registry import AccountRegistry
from gnats.core.routing.services import ExportedService, ImportedService
from gnats.core.runtime.inbox import EV_LATENCY, EV_RESPONSES
from gnats.core.runtime.quiesce import advance, passed
from gnats.errors import OptionError
from gnats.go.text import text_bytes
from gnats.nkeys.identity import server_hash
from gnats.options.options import Options
from gnats.options.values.accounts import AccountConfig, ServiceLatency
from gnats.options.values.auth import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT
from gnats.options.values.limits import UNLIMITED
from gnats.options.values.mappings import (
    Row,
    compile_account_mappings,
    compile_mappings,
    default_domain_mappings,
    domain_mappings,
)
from gnats.options.values.sharing import (
    JETSTREAM_API,
    RESPONSE_THRESHOLD,
    CheckActivation,
    Complain,
    Exchange,
    Party,
)
from gnats.runtime.dispatch import EventTable

GATEWAY_TIMEOUT = 504
LOOK_INTERVAL = 1.0
"""Seconds between two checks whether removed accounts can be freed."""

Measured = Callable[[Account, ServiceLatency, int, bytes, float], None]


def ignore(account: Account, latency: ServiceLatency, status: int, data: bytes, seconds: float) -> None:
    """Ignore a measurement."""


@dataclass(slots=True)
class Removed:
    """A removed account that waits to be freed (see "How memory is freed" in docs/locks.md).

    Clients, pollers, queued events, shadows of subscriptions and expected responses may still point to it.
    """

    account: Account
    services: list[ExportedService]
    """The services that it exported."""
    number: int
    """A number of core.runtime.quiesce. When all pollers have passed it, no new pointer to the account
    appears."""
    quiet: bool = False
    """True if the account was found unused at `number`."""

    def is_free(self) -> bool:
        """Check whether nothing points to the account any more; call again until True."""
        account = self.account
        if not passed(self.number):
            return False
        if (
            account.clients
            or account.leafs
            or account.exchanges
            or any(service.in_use for service in self.services)
        ):
            self.quiet = False
            return False
        if not self.quiet:  # a poller may have read a pointer to it just before
            self.quiet, self.number = True, advance()
            return False
        return True


def _json(name: str) -> bytes:
    """Return the name as JSON. Bytes that are not UTF-8 become lone surrogates: json.loads restores them."""
    return json.dumps(name, ensure_ascii=False).encode("utf-8", "backslashreplace")


class Accounts(dict[str, Account]):
    """Accounts by name: global account, system account, accounts of the options, accounts of JWTs.

    There is no system account when the options disable it. Used in the loop's thread.

    Raises OptionError for options that contradict each other. `log_error` gets a text for each system service
    that an account of the options cannot import. An export, import or mapping of a JWT that is not valid is
    left out, and `complain` is called for it.
    """

    def __init__(
        self,
        opts: Options,
        server_name: str = "",
        check_activation: CheckActivation | None = None,
        complain: Complain | None = None,
        log_error: Callable[[str], object] = len,
    ) -> None:
        super().__init__()
        self._log_error = log_error
        self._check_activation = check_activation
        self._complain = complain or (lambda name, what, why: None)
        self._cluster = opts.cluster.name
        self._hash = server_hash(server_name).encode()
        self._removed: dict[str, Removed] = {}
        self.registry = AccountRegistry()
        """The same accounts, for the data plane."""
        self._looking: Timer | None = None
        self.no_events: Callable[[], bool] = lambda: True
        """Returns True if no event waits that may name an account. The server sets it; _let_go calls it
        before it frees accounts."""
        self._exports: dict[int, tuple[Account, ExportedService, ServiceLatency | None]] = {}
        self.measured: Measured = ignore
        """Called with each measurement of a service. The server sets it."""
        self.added: Callable[[Account], object] = lambda account: None
        """Called with each account that is new, or was removed before. The server sets it."""
        self.rebuilt: Callable[[], object] = lambda: None
        """Called when mappings, exports and imports of accounts may have changed. The server sets it."""
        self._timers: dict[int, Timer] = {}
        self._linked: set[str] = set()
        """Names of accounts whose mappings map_domain() has extended."""
        self._claims: dict[str, AccountConfig] = {}
        """Accounts of JWTs, by name."""
        self._importers: dict[str, set[str]] = {}
        """By exporting account: the accounts of JWTs whose claims import from it, even where refused."""
        self._exchange = Exchange()
        self._system = ""
        self.system_account: Account | None = None
        self.configure(opts)
        self.global_account = self[GLOBAL_ACCOUNT]

    def rename_cluster(self, name: str) -> None:
        """Use a new name of the cluster, which mappings may depend on."""
        self._cluster = name
        mappings = [*self._options.mappings]
        mappings += [each for config in self._options.accounts for each in config.mappings]
        if any(dest.cluster for mapping in mappings for dest in mapping.dests):
            self.configure(self._options)
        scoped = [
            name
            for name, config in self._claims.items()
            if any(dest.cluster for mapping in config.mappings for dest in mapping.dests)
        ]
        if scoped:
            self.refresh(scoped)

    def configure(self, opts: Options) -> None:
        """Apply the options: create, change and remove accounts. Remaining accounts and clients keep working.

        The caller handles the clients of removed accounts. Raises OptionError for options that cannot be
        used, and changes no account then.
        """
        configs = {config.name: config for config in opts.accounts}
        system = opts.system_account or (SYSTEM_ACCOUNT if SYSTEM_ACCOUNT in configs else "")
        if not system and (opts.jetstream.enabled or not opts.no_system_account):
            system = SYSTEM_ACCOUNT
        self._options = opts
        configs.setdefault(GLOBAL_ACCOUNT, AccountConfig(GLOBAL_ACCOUNT, mappings=opts.mappings))
        if system:
            configs.setdefault(system, AccountConfig(system))
        if opts.jetstream.enabled and not opts.accounts_by_jwt and configs.keys() <= {GLOBAL_ACCOUNT, system}:
            configs[GLOBAL_ACCOUNT] = replace(configs[GLOBAL_ACCOUNT], jetstream=UNLIMITED)
        own = [config for config in configs.values() if config.name not in self._claims]
        rows = {
            config.name: compile_account_mappings(config.name, config.mappings, self._cluster)
            for config in own
        }
        exchange = Exchange(self._check_activation)
        exchange.add(own)
        exchange.add(self._claims.values(), self._complain)
        served: set[str] = set()
        if system:
            for problem in exchange.add_system_exports(system):
                self._log_error(problem)
            served = self._add_jetstream(exchange, system, [*own, *self._claims.values()])
        for name in served | self._linked | {system}:
            if name in rows:
                rows[name] += domain_mappings(
                    opts.jetstream.domain, system=name == system, besides=rows[name]
                )
        for config in own:
            rows[config.name] = self._with_default_domain(config, rows[config.name])
        self._exchange, self._system = exchange, system
        for name in self.keys() - exchange.parties.keys():
            self._remove(name)
        for config in own:
            account = self._register(config.name)
            account.set_mappings(rows[config.name])
            account.set_limits(config.limits)
            account.set_trace_dest(text_bytes(config.trace_dest), config.trace_sampling)
            account.jetstream_limits = config.jetstream
        self.system_account = self[system] if system else None
        for account in self.values():
            account.is_system = account is self.system_account
        self._build(exchange.parties)

    def map_domain(self, account: Account) -> None:
        """Map the API subjects of this server's domain in an account that other servers connect.

        Accounts with this server's JetStream have these mappings; others get them here, to keep them.
        """
        if account.name in self._linked:
            return
        self._linked.add(account.name)
        rows = account.mappings
        added = domain_mappings(self._options.jetstream.domain, system=False, besides=rows)
        if added:
            account.set_mappings(rows + added)
            self.rebuilt()

    def _with_default_domain(self, config: AccountConfig, rows: list[Row]) -> list[Row]:
        """Return an account's mappings with those of its domain in default_js_domain, if it has one."""
        domain = self._options.default_js_domain.get(config.name, "")
        if domain and config.jetstream and config.name != GLOBAL_ACCOUNT:
            self._complain(config.name, "default domain", "the account has JetStream of this server")
            return rows
        return default_domain_mappings(domain, rows) if domain else rows

    def _add_jetstream(self, exchange: Exchange, system: str, configs: Iterable[AccountConfig]) -> set[str]:
        """Make accounts import the JetStream API where it exists. Return their names. Raises OptionError."""
        configs = list(configs)
        configured = [config.name for config in configs if config.jetstream and config.name != system]
        enabled = self._options.jetstream.enabled
        if not configured and not enabled:
            return set()
        others = [config.name for config in configs if not config.jetstream] if enabled else []
        try:
            return exchange.add_jetstream(system, configured, others)
        except ValueError as exc:
            raise OptionError(f"Error setting up jetstream service imports for account: {exc}") from None

    def _build(self, names: Iterable[str]) -> None:
        """Apply exports and imports: first all exports, because imports refer to them."""
        parties = [self._exchange.parties[name] for name in names]
        for party in parties:
            self._export(self[party.name], party)
        for party in parties:
            self._import(self[party.name], party)
        self.rebuilt()

    # -- accounts of JWTs ------------------------------------------------------------------------------------

    def update_claims(self, configs: Iterable[AccountConfig]) -> set[str]:
        """Create or change these accounts of JWTs. Return the accounts that refresh() rebuilt."""
        configs = list(configs)
        for config in configs:
            self._note_imports(config)
            account = self._register(config.name)
            account.updated = time_ns()
            account.set_limits(config.limits)
            account.jetstream_limits = config.jetstream
        return self.refresh(config.name for config in configs)

    def forget(self, name: str) -> None:
        """Remove an account of a JWT. The caller handles its clients."""
        self._note_imports(AccountConfig(name))
        self.refresh([name])
        del self._claims[name]
        self._exchange.remove(name)
        self._remove(name)

    def refresh(self, names: Iterable[str]) -> set[str]:
        """Apply the exports, imports and mappings of accounts of JWTs, and of JWT accounts that import from
        them. Return the names of all these accounts."""
        names = set(names)
        every = self._system in names
        affected = set(self._claims) if every else names.union(*(self._importers.get(n, ()) for n in names))
        exchange = self._exchange
        for name in affected:
            exchange.remove(name)
        exchange.add([self._claims[name] for name in sorted(affected)], self._complain)
        if every:
            exchange.add_system_exports(self._system)
        elif self._system:
            for name in affected:
                exchange.add_system_imports(name, self._system)
        served: set[str] = set()
        if self._system:
            served = self._add_jetstream(exchange, self._system, [self._claims[name] for name in affected])
        for name in affected:
            rows = self._claimed_mappings(self._claims[name])
            if name in served or name in self._linked or name == self._system:
                domain = self._options.jetstream.domain
                rows += domain_mappings(domain, system=name == self._system, besides=rows)
            self[name].set_mappings(self._with_default_domain(self._claims[name], rows))
        self._build(exchange.parties if every else affected)
        return affected

    def _note_imports(self, config: AccountConfig) -> None:
        """Store the configuration of an account of a JWT, and note the accounts that it imports from."""
        before = self._claims.get(config.name)
        for item in before.imports if before else ():
            self._importers[item.account].discard(config.name)
        for item in config.imports:
            self._importers.setdefault(item.account, set()).add(config.name)
        self._claims[config.name] = config

    def _claimed_mappings(self, config: AccountConfig) -> list[Row]:
        """Compile the mappings of an account of a JWT; leave out those that are not valid."""
        rows = []
        for mapping in config.mappings:
            try:
                rows += compile_mappings([mapping], self._cluster)
            except ValueError as exc:
                self._complain(config.name, "mapping", str(exc))
        return rows

    def _register(self, name: str) -> Account:
        """Return the account with a name: the present one, a removed one not freed yet, or a new one."""
        account = self.get(name)
        if account is None:
            removed = self._removed.get(name)
            if removed:
                account = removed.account
            else:
                account = Account(name)
                account.set_identity(text_bytes(name), _json(name), self._hash)
            self.registry.add(text_bytes(name), account)
            self._removed.pop(name, None)
            self[name] = account
            self.added(account)
        return account

    def _remove(self, name: str) -> None:
        """Remove an account from the registry and close its imports and exports; _let_go() frees it later."""
        account = self.pop(name)
        self._linked.discard(name)
        self.registry.remove(text_bytes(name))
        services = list(account.services.values())
        account.set_mappings([])
        self._import(account, Party(name))
        self._export(account, Party(name))
        account.clients_elsewhere.clear()
        self._removed[name] = Removed(account, services, advance())
        if self._looking is None:
            self._look_later()

    def _look_later(self) -> None:
        self._looking = call_later(LOOK_INTERVAL, self._let_go)

    def _let_go(self) -> None:
        """Free the removed accounts that nothing points to any more."""
        self._looking = None
        # Ask for events before is_free(): a batch posts its events before its poller passes the number.
        drained = self.no_events()
        for removed in [each for each in self._removed.values() if drained and each.is_free()]:
            account = removed.account
            del self._removed[account.name]
            account.detach()
            for service in removed.services:
                self._exports.pop(service.id, None)
                if timer := self._timers.pop(service.id, None):
                    timer.cancel()
            if account.internal:
                account.internal.close()
                account.internal = None
        if self._removed:
            self._look_later()

    # -- exports and imports ---------------------------------------------------------------------------------

    def _export(self, account: Account, party: Party) -> None:
        """Apply the account's service exports. Services that remain keep their expected responses."""
        for subject, old in list(account.services.items()):
            export = party.service_exports.get(subject)
            if export is None or export.response_type != old.response_type:
                del account.services[subject]
                old.close()
                self.expect_responses(old.id)
        for subject, export in party.service_exports.items():
            threshold = export.threshold or RESPONSE_THRESHOLD
            service = account.services.get(subject)
            if service is None:
                service = ExportedService(account, export.response_type, threshold)
                account.services[subject] = service
            service.threshold = threshold
            latency = export.latency
            sampling = latency.sampling if latency else 0
            service.allow_trace(export.allow_trace)
            service.measure(sampling, by_header=latency is not None and sampling < 100)
            self._exports[service.id] = account, service, latency

    def _import(self, account: Account, party: Party) -> None:
        """Apply the account's imports. Imports that remain are not touched."""
        wanted = {}
        for route in party.service_imports:
            wanted[route.key] = route, self[route.exporter].services[route.export]
        for key, old in list(account.service_imports.items()):
            if key not in wanted or wanted[key][1] is not old.export:
                account.service_imports.pop(key).close()
        for key, (route, export) in wanted.items():
            if service := account.service_imports.get(key):
                service.share = route.share
            else:
                account.service_imports[key] = ImportedService(
                    account,
                    export,
                    text_bytes(route.subject),
                    text_bytes(route.to),
                    route.transform,
                    use_published=route.use_published,
                    share=route.share,
                    to_system=self[route.exporter] is self.system_account,
                    sid=account.next_sid(),
                )
        account.shares_details = any(
            route.share
            and (self[route.exporter] is not self.system_account or route.subject == JETSTREAM_API)
            for route in party.service_imports
        )
        if account.shares_details:
            for session in (*account.clients.values(), *account.leafs.values()):
                session.share_details()
        streams = {route.key: route for route in party.stream_imports}
        if streams.keys() != account.stream_imports:
            account.set_stream_imports(
                [
                    (
                        self[r.exporter],
                        text_bytes(r.subject),
                        text_bytes(r.to),
                        r.transform,
                        r.use_published,
                        r.allow_trace,
                    )
                    for r in streams.values()
                ]
            )
            for session in account.clients.values():
                if session.client:
                    session.client.renew_imports()
            for subscriber in account.internals or ():  # streams, and the copies of mirrors and sources
                subscriber.renew_imports()
            account.stream_imports = set(streams)  # last: without memory, the next reload does it all again

    # -- responses -------------------------------------------------------------------------------------------

    def serve(self, events: EventTable) -> None:
        """Handle the events about responses of exported services."""
        events.on(EV_RESPONSES, lambda source, a, b, data: self.expect_responses(a))
        events.on(EV_LATENCY, self._on_latency)

    def _on_latency(self, source: object, export_id: int, status: int, data: object) -> None:
        if isinstance(data, bytes):
            self.report(export_id, status, data)

    def expect_responses(self, export_id: int) -> None:
        """Drop the expired responses of a service, report them, and set a timer for the next to expire."""
        if export_id not in self._exports:
            return
        _, export, _ = self._exports[export_id]
        wait, lost = export.check_expired_responses()
        for measured in lost:
            self.report(export_id, GATEWAY_TIMEOUT, measured)
        if wait is None and export.closed:
            del self._exports[export_id]
        elif wait is not None and export_id not in self._timers:
            self._timers[export_id] = call_later(wait, self._expire, export_id)

    def report(self, export_id: int, status: int, data: bytes) -> None:
        """Pass on the measurement of a request to a service; gnats.events.latency reads `data`."""
        account, service, latency = self._exports.get(export_id, (None, None, None))
        if account and service and latency:
            self.measured(account, latency, status, data, service.threshold)

    def _expire(self, export_id: int) -> None:
        del self._timers[export_id]
        self.expect_responses(export_id)

    def close(self) -> None:
        """Cancel all timers."""
        if self._looking:
            self._looking.cancel()
            self._looking = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
