"""/accountz and /accstatz: accounts, their sharing and traffic (Accountz and AccountStatz in monitor.go)."""

import itertools
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from gnats.accounts.account import Account
from gnats.clock import time_ns
from gnats.core.subjects.subject import subset_match
from gnats.errors import RequestError
from gnats.go.text import SECOND, rfc3339
from gnats.monitor.pages.jsz import JszServer
from gnats.monitor.pages.options import AccountStatzOptions, AccountzOptions
from gnats.monitor.pages.render import Page, without_empty
from gnats.monitor.pages.subsz import sublist_stats
from gnats.monitor.pages.varz import name_of
from gnats.options.values.accounts import (
    AccountConfig,
    Mapping,
    ServiceExport,
    ServiceImport,
    ServiceLatency,
    StreamExport,
    StreamImport,
)
from gnats.options.values.auth import GLOBAL_ACCOUNT
from gnats.options.values.sharing import SYSTEM_EXPORTS, system_imports

if TYPE_CHECKING:
    from gnats.auth.account_jwt import ClaimAccount
    from gnats.operator.mode import OperatorMode
    from gnats.options.options import Options

_OMITTED = (
    "is_system",
    "mappings",
    "exports",
    "imports",
    "jwt",
    "issuer_key",
    "tags",
    "validation_result_jwt",
    "revoked_user",
)
_RESPONSES = {"singleton": "Singleton", "stream": "Streamed", "chunked": "Chunked"}


class AccountzServer(JszServer, Protocol):
    """The server as pages about its accounts see it."""

    @property
    def opts(self) -> "Options": ...
    @property
    def system_account(self) -> Account | None: ...
    @property
    def operator_mode(self) -> "OperatorMode | None": ...


def accountz(server: AccountzServer, options: AccountzOptions) -> Page:
    """List the accounts' names, or describe one account.

    Raises RequestError.
    """
    page: Page = {
        "server_id": server.id,
        "now": rfc3339(time_ns()),
        "system_account": name_of(server.system_account),
    }
    if not options.account:
        page["accounts"] = list(server.accounts)
    else:
        page["account_detail"] = account_info(server, options.account)
    return without_empty(page, ("system_account", "accounts"))


def account_info(server: AccountzServer, name: str) -> Page:
    """Describe an account (AccountInfo in monitor.go).

    Raises RequestError for an unknown one.
    """
    account = server.accounts.get(name)
    if account is None:
        raise RequestError(f"Account {name} does not exist")
    claim = server.operator_mode.accounts.get(name) if server.operator_mode else None
    if claim:
        config = claim.config()
    else:
        configs = server.opts.accounts
        config = next((config for config in configs if config.name == name), AccountConfig(name))
    exports, imports = _all_exports(server, account, config), _all_imports(server, account, config)
    mappings = config.mappings or (server.opts.mappings if name == GLOBAL_ACCOUNT else [])
    info: Page = {
        "account_name": name,
        "update_time": rfc3339(account.updated),
        "is_system": name == name_of(server.system_account),
        "expired": claim is not None and claim.is_expired,
        "complete": claim is None or not claim.incomplete,
        "jetstream_enabled": server.jetstream is not None and account.name in server.jetstream.accounts,
        "leafnode_connections": len(account.leafs),
        "client_connections": len(account.clients),
        "subscriptions": account.sublist.count(),
        "mappings": {mapping.source: _destinations(mapping) for mapping in mappings},
        "exports": [_export(export) for export in exports],
        "imports": [_import(server, item) for item in imports],
        "jwt": "",
        "issuer_key": "",
        "name_tag": account.name_tag,
    }
    if claim:
        info |= _claims(claim)
    info["sublist_stats"] = sublist_stats([account])
    return without_empty(info, _OMITTED)


def _claims(claim: "ClaimAccount") -> Page:
    """Return the claims of an account's JWT, and the issues of its validation."""
    from gnats.jwt.schema import to_json
    from gnats.jwt.validation import validate

    nats = claim.claims.nats
    revoked = {key: rfc3339(at * SECOND) for key, at in nats.revocations.items()}
    page: Page = {"jwt": claim.token, "issuer_key": claim.issuer, "tags": list(nats.tags or ())}
    if claim.token:
        page["decoded_jwt"] = to_json(claim.claims)
        page["validation_result_jwt"] = [
            {
                "description": issue.description,
                "blocking": issue.blocking,
                "time_check": issue.time_check,
            }
            for issue in validate(claim.claims).issues
        ]
    return page | {"revoked_user": revoked}


def _all_exports(
    server: AccountzServer, account: Account, config: AccountConfig
) -> list[StreamExport | ServiceExport]:
    """Return the configured exports; of the system account, also its built-in ones."""
    named = {export.subject for export in config.exports}
    own = [e for e in SYSTEM_EXPORTS if e.subject not in named and e.subject in account.services]
    return [*config.exports, *(own if account is server.system_account else ())]


def _all_imports(
    server: AccountzServer, account: Account, config: AccountConfig
) -> list[StreamImport | ServiceImport]:
    """Return the configured imports, and the built-in ones from the system account."""
    if server.system_account is None:
        return config.imports
    taken = {import_.to or import_.subject for import_ in config.imports}
    own = system_imports(account.name, server.system_account.name)
    return [*config.imports, *(item for item in own if item.to not in taken)]


def _destinations(mapping: Mapping) -> list[Page]:
    """Describe a mapping's destinations, with cumulative weights for each cluster.

    What remains of 100 goes to the subject itself, unless it is a destination already.
    """
    page: list[Page] = []
    for cluster in dict.fromkeys(("", *(dest.cluster for dest in mapping.dests))):
        dests = [(dest.weight, dest.subject) for dest in mapping.dests if dest.cluster == cluster]
        rest = 100 - sum(weight for weight, _ in dests)
        if rest and all(dest.subject != mapping.source for dest in mapping.dests):
            dests.append((rest, _identity(mapping.source)))
        weight = 0
        for share, subject in sorted(dests, key=itemgetter(0)):
            weight += share
            dest: Page = {"subject": subject, "weight": weight, "cluster": cluster}
            page.append(without_empty(dest, ("cluster",)))
    return page


def _identity(subject: str) -> str:
    """Return the destination that maps a subject to itself, with its wildcards by number."""
    numbers = itertools.count(1)
    return ".".join(f"${next(numbers)}" if token == "*" else token for token in subject.split("."))


def _latency(latency: ServiceLatency | None) -> Page:
    # A sampling of 0 means that the request's headers decide.
    return {"sampling": latency.sampling or "headers", "results": latency.subject} if latency else {}


def _export(export: StreamExport | ServiceExport) -> Page:
    service = export if isinstance(export, ServiceExport) else None
    page: Page = {
        "subject": export.subject,
        "type": "service" if service else "stream",
        "response_type": _RESPONSES[service.response_type] if service else "",
        "service_latency": _latency(service.latency) if service else {},
        "approved_accounts": list(export.accounts or ()),
    }
    if export.accounts == ():
        page["token_req"] = True
    return without_empty(page, ("response_type", "service_latency", "approved_accounts"))


def _import(server: AccountzServer, item: StreamImport | ServiceImport) -> Page:
    service = item if isinstance(item, ServiceImport) else None
    if isinstance(item, ServiceImport):
        local = item.to or item.subject
    else:
        local = item.to or (f"{item.prefix}.{item.subject}" if item.prefix else item.subject)
    page: Page = {
        "subject": item.subject,
        "account": item.account,
        "to": local if service else "",
        "local_subject": local,
        "type": "service" if service else "stream",
        "invalid": False,
        "share": service is not None and service.share,
        "tracking": False,
        "latency": _latency(_exported_latency(server, service)) if service else {},
    }
    return without_empty(page, ("to", "latency"))


def _exported_latency(server: AccountzServer, item: ServiceImport) -> ServiceLatency | None:
    for config in server.opts.accounts:
        for export in config.exports if config.name == item.account else ():
            if isinstance(export, ServiceExport) and subset_match(item.subject, export.subject):
                return export.latency
    return None


def account_statz(server: AccountzServer, options: AccountStatzOptions) -> Page:
    """Return the connections and traffic of accounts."""
    names = options.accounts or tuple(server.accounts)
    accounts = [account for name in names if (account := server.accounts.get(name))]
    return {
        "server_id": server.id,
        "now": rfc3339(time_ns()),
        "account_statz": [
            account.statz()
            for account in accounts
            if options.include_unused or account.clients or account.leafs
        ],
    }
