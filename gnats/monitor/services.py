"""Pages as answers to requests in the system account (events.go); the request's body has the options."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from gnats.accounts.account import Account
from gnats.core.accounts.listing import matching
from gnats.core.subjects.subject import subset_match, valid_literal_subject
from gnats.monitor.pages.accountz import AccountzServer, account_info, account_statz, accountz
from gnats.monitor.pages.connz import ConnzServer, connz_steps, subscriptions
from gnats.monitor.pages.debugz import Polled, expvarz, ipqueuesz
from gnats.monitor.pages.gatewayz import gatewayz
from gnats.monitor.pages.healthz import HealthzServer, healthz
from gnats.monitor.pages.jsz import jsz, jsz_account
from gnats.monitor.pages.leafz import leafz
from gnats.monitor.pages.options import (
    AccountStatzOptions,
    AccountzOptions,
    ConnzOptions,
    GatewayzOptions,
    HealthzOptions,
    IpqueueszOptions,
    JszOptions,
    LeafzOptions,
    RaftzOptions,
    RoutezOptions,
    SubszOptions,
)
from gnats.monitor.pages.raftz import RaftzServer, raft_groups
from gnats.monitor.pages.render import Page
from gnats.monitor.pages.routez import RoutezServer, routez
from gnats.monitor.pages.subsz import SubszServer, subsz_steps
from gnats.monitor.pages.varz import VarzServer, varz
from gnats.runtime.steps import Steps


class PagesServer(
    VarzServer,
    AccountzServer,
    ConnzServer,
    RoutezServer,
    SubszServer,
    HealthzServer,
    RaftzServer,
    Polled,
    Protocol,
):
    """The server as all pages together see it."""


PAGES_IN_STEPS: dict[str, Callable[[PagesServer, bytes], Steps[Page]]] = {
    "SUBSZ": lambda server, body: subsz_steps(server, SubszOptions.from_json(body)),
    "CONNZ": lambda server, body: connz_steps(server, ConnzOptions.from_json(body)),
}
PAGES: dict[str, Callable[[PagesServer, bytes], Page]] = {
    "VARZ": lambda server, body: varz(server),
    "ROUTEZ": lambda server, body: routez(server, RoutezOptions.from_json(body)),
    "GATEWAYZ": lambda server, body: gatewayz(server, GatewayzOptions.from_json(body)),
    "LEAFZ": lambda server, body: leafz(server, LeafzOptions.from_json(body)),
    "ACCOUNTZ": lambda server, body: accountz(server, AccountzOptions.from_json(body)),
    "JSZ": lambda server, body: jsz(server, JszOptions.from_json(body)),
    "HEALTHZ": lambda server, body: healthz(server, HealthzOptions.from_json(body)),
    "EXPVARZ": lambda server, body: expvarz(),
    "IPQUEUESZ": lambda server, body: ipqueuesz(server, IpqueueszOptions.from_json(body)),
    "RAFTZ": lambda server, body: raft_groups(server, RaftzOptions.from_json(body)),
}


def server_page(server: PagesServer, name: str, body: bytes) -> Steps[Page]:
    """Make a page about the server. Raises JSONError for a malformed body, RequestError."""
    if name in PAGES_IN_STEPS:
        return (yield from PAGES_IN_STEPS[name](server, body))
    return PAGES[name](server, body)


def account_page(server: PagesServer, name: str, account: str, body: bytes) -> Steps[Page]:
    """Make a page about an account. Raises JSONError for a malformed body, RequestError."""
    match name:
        case "SUBSZ":
            subs = replace(SubszOptions.from_json(body), subscriptions=True, account=account)
            return (yield from subsz_steps(server, subs))
        case "CONNZ":
            return (yield from connz_steps(server, replace(ConnzOptions.from_json(body), acc=account)))
        case "LEAFZ":
            return leafz(server, replace(LeafzOptions.from_json(body), account=account))
        case "JSZ":
            return jsz_account(server, account, JszOptions.from_json(body))
    return account_info(server, account)


def statz(server: PagesServer, body: bytes, accounts: tuple[str, ...]) -> Page | None:
    """Return the statistics of `accounts`, or of those that the body names; None without any to list."""
    options = AccountStatzOptions.from_json(body)
    page = account_statz(server, replace(options, accounts=accounts or options.accounts))
    return page if page["account_statz"] or options.include_unused else None


def count_subscriptions(
    server: PagesServer, account: Account, subject: str, queue: bytes | None
) -> Steps[int]:
    """Count the clients' subscriptions that match a literal subject, or are subsets of one with wildcards.

    With `queue`, count only those of that queue group.
    """
    if valid_literal_subject(subject):
        found = [row[:2] for row in matching(account.sublist, subject.encode()) if row[5] in server.clients]
        return sum(1 for _, group in found if queue is None or group == queue)
    count = 0
    for session in [server.clients[cid] for cid in account.clients]:
        for subscribed, group, *_ in subscriptions(session):
            if subset_match(subscribed, subject) and (queue is None or (group == queue and group)):
                count += 1
        yield
    return count
