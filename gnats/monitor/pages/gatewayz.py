"""/gatewayz: the connections to and from other clusters (Gatewayz in monitor.go)."""

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from gnats.clock import time_ns
from gnats.gateways.gateway import INTEREST_ONLY, Gateway
from gnats.go.text import rfc3339, text_bytes
from gnats.monitor.pages.connz import SubRow, describe, sub_detail, text
from gnats.monitor.pages.options import GatewayzOptions
from gnats.monitor.pages.render import Named, Page, without_empty

if TYPE_CHECKING:
    from gnats.accounts.accounts import Accounts
    from gnats.gateways.gateways import Gateways

THRESHOLD = 1000
"""Subjects without interest after which servers before 2.9 announce all (gatewayMaxRUnsubBeforeSwitch)."""
OPTIMISTIC = "Optimistic"


class GatewayzServer(Named, Protocol):
    """The server as this page sees it."""

    @property
    def gateways(self) -> "Gateways | None": ...
    @property
    def accounts(self) -> "Accounts": ...


def gatewayz(server: GatewayzServer, options: GatewayzOptions) -> Page:
    """List the connections to and from other clusters; null for a cluster that is not connected."""
    now, gateways = time_ns(), server.gateways
    page: Page = {"server_id": server.id, "now": rfc3339(now)}
    if gateways is None:
        return page | {"outbound_gateways": {}, "inbound_gateways": {}}
    host, port = gateways.info.address()
    outbound = {
        gateway.name: _connection(gateway, now, _accounts_of(gateway, options))
        for gateway in gateways.table.nearest_first()
        if options.name in ("", gateway.name) and gateway.session
    }
    inbound: dict[str, list[Page]] = defaultdict(list)
    for gateway in gateways.table.inbound:
        if options.name in ("", gateway.name) and gateway.session:
            accounts = _announced(server.accounts, options)
            inbound[gateway.name].append(_connection(gateway, now, accounts))
    return page | {
        "name": gateways.name,
        "host": host,
        "port": port,
        "outbound_gateways": dict(sorted(outbound.items())) if outbound or not options.name else None,
        "inbound_gateways": dict(sorted(inbound.items())),
    }


def _connection(gateway: Gateway, now: int, accounts: list[Page]) -> Page:
    page: Page = {
        "configured": gateway.remote is not None and gateway.remote.explicit,
        "connection": describe(gateway, now),
        "accounts": accounts,
    }
    return without_empty(page, ("accounts",))


def _announced(accounts: "Accounts", options: GatewayzOptions) -> list[Page]:
    """Describe the accounts of an inbound connection: this server announces all interest in each."""
    if not options.accounts:
        return []
    names = [options.account_name] if options.account_name else sorted(accounts)
    return [_account(name, INTEREST_ONLY) for name in names if name in accounts]


def _account(name: str, mode: str) -> Page:
    return {"name": name, "interest_mode": mode, "interest_only_threshold": THRESHOLD}


def _accounts_of(gateway: Gateway, options: GatewayzOptions) -> list[Page]:
    """Describe the accounts of which the peer of an outbound connection has told."""
    if not options.accounts or gateway.session is None:
        return []
    by_account: dict[bytes, list[SubRow]] = defaultdict(list)
    for row in gateway.session.subscriptions():
        by_account[row[2].split(b" ")[1]].append(row)  # the sid names the account
    names = gateway.modes.keys() | {text(name) for name in by_account}
    if options.account_name:
        names &= {options.account_name}
    return [
        _outbound_account(gateway, name, by_account.get(text_bytes(name), []), options)
        for name in sorted(names)
    ]


def _outbound_account(gateway: Gateway, name: str, rows: list[SubRow], options: GatewayzOptions) -> Page:
    page = _account(name, gateway.modes.get(name, OPTIMISTIC))
    page |= {"num_subs": len(rows), "num_queue_subs": sum(1 for row in rows if row[1])}
    if options.subscriptions:
        page["subscriptions_list"] = [text(row[0]) for row in rows]
    elif options.subscriptions_detail:
        bare = [(subject, queue, b"", delivered, most) for subject, queue, _, delivered, most in rows]
        page["subscriptions_list_detail"] = [sub_detail(gateway.cid, row) for row in bare]
    lists = "subscriptions_list", "subscriptions_list_detail"
    return without_empty(page, ("num_subs", "num_queue_subs", *lists))
