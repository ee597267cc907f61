"""What leaf nodes mean for JetStream: its subjects stay in each domain (addLeafNodeConnection)."""

from typing import TYPE_CHECKING

from gnats.go.text import quote

if TYPE_CHECKING:
    from gnats.accounts.accounts import Accounts
    from gnats.leafnodes.leaf import Leaf
    from gnats.log.logger import Logger
    from gnats.options.options import Options

_CLIENTS = ("$JS.API.>", "$KV.>", "$OBJ.>")
_ALL = ("$JSC.>", "$NRG.>", *_CLIENTS)
_WILL_EXTEND = "will_extend"


def keep_domains_apart(leaf: "Leaf", opts: "Options", accounts: "Accounts", log: "Logger") -> None:
    """Find out which subjects of JetStream a connection does not carry, and log it.

    Each domain's requests have their own subjects, $JS.<domain>.API, which the account's mappings lead here.
    An account whose default domain is empty (default_js_domain) uses its peer's JetStream without a domain.
    """
    jetstream, account, system = opts.jetstream, leaf.account.name, accounts.system_account
    is_system = leaf.account is system
    domain, theirs, defaults = jetstream.domain, leaf.peer_domain, opts.default_js_domain
    if not is_system and defaults.get(account) == "":
        text = f"Skipping deny {quote(_CLIENTS[0])} for account {quote(account)} due to default domain"
        log.debug(f"{leaf} - {text}")
        leaf.js_denials = (), ()
        return
    apart = system is None or domain != theirs
    if not (jetstream.enabled or domain or jetstream.extension_hint == _WILL_EXTEND):
        apart = True
    if is_system and "" in defaults.values():
        why = "due to presence of empty default domain"
        log.notice(f"{leaf} - Not extending remote JetStream domain {quote(theirs)} {why}")
        apart = True
    denied = _denied(leaf, domain, log, apart=apart, is_system=is_system)
    sent = denied
    if domain and jetstream.enabled:
        if not is_system:
            accounts.map_domain(leaf.account)
        if apart:
            own = f"$JS.{domain}.API.>"
            sent = (*denied, own)
            log.debug(f"{leaf} - Adding deny {quote(own)} for outgoing messages to account {quote(account)}")
    leaf.js_denials = sent, denied


def _denied(leaf: "Leaf", domain: str, log: "Logger", *, apart: bool, is_system: bool) -> tuple[str, ...]:
    """Return the subjects that are carried in neither direction."""
    theirs = quote(leaf.peer_domain)
    if apart and is_system:
        log.notice(f"{leaf} - System account connected from {leaf.decorated_peer}")
        log.notice(f"{leaf} - JetStream not extended, domains differ")
        return _ALL
    if apart:
        log.notice(f"{leaf} - JetStream using domains: local {quote(domain)}, remote {theirs}")
        return _CLIENTS
    if is_system:
        peer = leaf.decorated_peer
        log.notice(f"Extending JetStream domain {theirs} as System Account connected from server {peer}")
        return ()
    log.debug(f"{leaf} - Adding deny [{' '.join(_CLIENTS)}] for account {quote(leaf.account.name)}")
    return _CLIENTS
