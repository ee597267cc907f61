"""/subsz: the subscription tables, and the subscriptions in them (Subsz in monitor.go)."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from gnats.accounts.account import Account
from gnats.clock import time_ns
from gnats.core.accounts.listing import account_of, column, matching, shadows
from gnats.core.accounts.subscriber import Subscriber
from gnats.core.subjects.subject import valid_literal_subject
from gnats.errors import RequestError
from gnats.go.text import rfc3339
from gnats.monitor.pages.connz import SubRow, sub_detail
from gnats.monitor.pages.options import DEFAULT_LIMIT, SubszOptions
from gnats.monitor.pages.render import Named, Page, number
from gnats.runtime.steps import Steps, finish

if TYPE_CHECKING:
    from gnats.accounts.accounts import Accounts
    from gnats.accounts.internal_clients import InternalClients
    from gnats.client.session import Session
    from gnats.cluster.cluster import Cluster
    from gnats.core.accounts.listing import Row
    from gnats.runtime.pollers import Pollers


class SubszServer(Named, Protocol):
    """The server as this page sees it: with the subscriptions of its clients and its own."""

    @property
    def accounts(self) -> "Accounts": ...
    @property
    def clients(self) -> "Mapping[int, Session]": ...
    @property
    def internal_clients(self) -> "InternalClients": ...
    @property
    def pollers(self) -> "Pollers | None": ...
    @property
    def cluster(self) -> "Cluster | None": ...


def subsz(server: SubszServer, options: SubszOptions) -> Page:
    """Describe the subscription tables and, if requested, list a page of the subscriptions.

    Raises RequestError.
    """
    return finish(subsz_steps(server, options))


def subsz_steps(server: SubszServer, options: SubszOptions) -> Steps[Page]:
    """Make the page of subsz() in steps."""
    if options.test and not valid_literal_subject(options.test):
        raise RequestError(f"invalid test subject, must be valid publish subject: {options.test}")
    offset = max(options.offset, 0)
    limit = options.limit if options.limit > 0 else DEFAULT_LIMIT
    accounts = [account for name, account in server.accounts.items() if options.account in ("", name)]
    page: Page = {"server_id": server.id, "now": rfc3339(time_ns())}
    page |= sublist_stats(accounts, server if not options.account else None)
    page |= {"total": 0, "offset": offset, "limit": limit}
    if options.subscriptions:
        listing = (
            _matching(server, accounts, options.test, offset, limit)
            if options.test
            else _all(server, accounts, offset, limit)
        )
        total, details = yield from listing
        page["total"] = total
        if details:
            page["subscriptions_list"] = details
    return page


def sublist_stats(accounts: Iterable[Account], server: SubszServer | None = None) -> Page:
    """Add up the counters of the accounts' tables (SublistStats in sublist.go).

    Pollers cache results for all accounts together: `num_cache` and `cache_hit_rate` are those of `server`, 0
    without it.
    """
    stats = [account.sublist.stats() for account in accounts]
    matches = sum(stat["num_matches"] for stat in stats)
    results = sum(stat["num_results"] for stat in stats)
    cached, hit_rate = 0, 0.0
    if server and server.pollers:
        traffic = server.pollers.stats()
        cached = traffic["cache_entries"]
        # Each incoming message is one lookup; a lookup without a cached result is a miss.
        looked_up = max(traffic["in_msgs"], traffic["cache_hits"] + traffic["cache_misses"])
        hit_rate = 1 - traffic["cache_misses"] / looked_up if looked_up else 0.0
    return {
        "num_subscriptions": sum(stat["num_subscriptions"] for stat in stats),
        "num_cache": cached,
        "num_inserts": sum(stat["num_inserts"] for stat in stats),
        "num_removes": sum(stat["num_removes"] for stat in stats),
        "num_matches": matches,
        "cache_hit_rate": number(hit_rate),
        "max_fanout": max((stat["max_fanout"] for stat in stats), default=0),
        "avg_fanout": number(results / matches if matches else 0.0),
    }


Listing = tuple[int, list[Page]]
"""The number of subscriptions, and the details of those on the page."""


def _matching(
    server: SubszServer, accounts: list[Account], subject: str, offset: int, limit: int
) -> Steps[Listing]:
    total = 0
    details: list[Page] = []
    routes = {route.cid for route in server.cluster.routes} if server.cluster else set()
    for account in accounts:
        rows = matching(account.sublist, subject.encode("utf-8", "surrogateescape"))
        rows = [row for row in rows if row[5] not in routes]  # other servers list theirs
        for row in rows[max(offset - total, 0) :][: limit - len(details)]:
            details.append(_row_detail(server, account, row))
        total += len(rows)
        yield
    return total, details


def _all(server: SubszServer, accounts: list[Account], offset: int, limit: int) -> Steps[Listing]:
    """List a page of all subscriptions, by connection. Reads only the subscriptions that it shows."""
    chosen = {id(account) for account in accounts}
    clients: list[tuple[Subscriber, Account]] = []
    for internal in server.internal_clients:
        account = account_of(internal.client)
        if isinstance(account, Account) and id(account) in chosen:
            clients.append((internal.client, account))
    clients += [
        (session.client, session.account)
        for session in server.clients.values()
        if session.client and id(session.account) in chosen
    ]
    counts = column([client for client, _ in clients], "subscriptions")
    own: list[tuple[Account, Row]] = []
    imported = any(account.stream_imports for account in server.accounts.values())
    for account in accounts:
        own += [(account, (*sub, 0, None)) for sub in account.own_subscriptions()]
        if imported:  # without imports there are no shadows, so no table must be searched
            own += [(account, row) for row in shadows(account.sublist)]
            yield
    details = [_row_detail(server, account, row) for account, row in own[offset : offset + limit]]
    skip = max(offset - len(own), 0)
    for (client, account), count in zip(clients, counts, strict=True):
        if len(details) >= limit:
            break
        if skip >= count:
            skip -= count
            continue
        for sub in client.subscriptions()[skip : skip + limit - len(details)]:
            details.append(_detail(account, client.cid, sub))
        skip = 0
        yield
    return len(own) + sum(counts), details


def _row_detail(server: SubszServer, account: Account, row: "Row") -> Page:
    """Describe a subscription in an account's table; a shadow belongs to the importing account."""
    cid, owner = row[5:]
    if isinstance(owner, Account):
        return _detail(owner, cid, row[:5])
    return _detail(account, server.internal_clients.cid_of(account), row[:5])


def _detail(account: Account, cid: int, sub: SubRow) -> Page:
    return {"account": account.name, "account_tag": account.name_tag} | sub_detail(cid, sub)
