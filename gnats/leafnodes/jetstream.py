"""What leaf nodes mean for JetStream: its subjects stay in each domain (addLeafNodeConnection)."""

from typing import TYPE_CHECKING

from gnats.go.text import quote

if TYPE_CHECKING:
    from gnats.leafnodes.leaf import Leaf
    from gnats.log.logger import Logger
    from gnats.options.options import Options

_CLIENTS = ("$JS.API.>", "$KV.>", "$OBJ.>")
_ALL = ("$JSC.>", "$NRG.>", *_CLIENTS)


def keep_domains_apart(leaf: "Leaf", opts: "Options", log: "Logger", *, is_system: bool) -> None:
    """Find out which subjects of JetStream a connection does not carry, and log it.

    Each domain's requests have their own subjects, $JS.<domain>.API, which the account's mappings lead here.
    """
    jetstream, account = opts.jetstream, leaf.account.name
    domain, theirs = jetstream.domain, leaf.peer_domain
    forced = False
    if is_system and "" in opts.default_js_domain.values():
        log.notice(
            f"{leaf} - Not extending remote JetStream domain {quote(theirs)}"
            " due to presence of empty default domain"
        )
        forced = True
    elif opts.default_js_domain.get(account) == "" and not is_system:
        log.debug(f'{leaf} - Skipping deny "$JS.API.>" for account {quote(account)} due to default domain')
        leaf.js_denials = (), ()
        return
    sent: tuple[str, ...]
    announced: tuple[str, ...]
    apart = domain != theirs or not (jetstream.enabled or domain) or forced
    if apart and is_system:
        log.notice(f"{leaf} - System account connected from {leaf.decorated_peer}")
        log.notice(f"{leaf} - JetStream not extended, domains differ")
        sent = announced = _ALL
    elif apart:
        log.notice(f"{leaf} - JetStream using domains: local {quote(domain)}, remote {quote(theirs)}")
        sent = announced = _CLIENTS
    elif is_system:
        log.notice(
            f"Extending JetStream domain {quote(theirs)} as System Account connected from server"
            f" {leaf.decorated_peer}"
        )
        sent = announced = ()
    else:
        log.debug(f"{leaf} - Adding deny [{' '.join(_CLIENTS)}] for account {quote(account)}")
        sent = announced = _CLIENTS
    if domain and jetstream.enabled and apart:
        own = f"$JS.{domain}.API.>"
        sent = (*sent, own)
        log.debug(f"{leaf} - Adding deny {quote(own)} for outgoing messages to account {quote(account)}")
    leaf.js_denials = sent, announced
