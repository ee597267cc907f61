"""Checks of default_js_domain (validateJetStreamOptions in jetstream.go)."""

from typing import TYPE_CHECKING

from gnats.core.subjects.subject import valid_subject
from gnats.errors import OptionError
from gnats.go.text import quote, text_bytes
from gnats.options.values.auth import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT

if TYPE_CHECKING:
    from gnats.options.values.fields import OptionFields


def validate_default_domains(opts: "OptionFields") -> None:
    """Check the accounts and domains of default_js_domain. Raises OptionError."""
    for account, domain in opts.default_js_domain.items():
        _check_account(opts, account, domain)
        if account == (opts.system_account or SYSTEM_ACCOUNT):
            raise OptionError(f"system account {quote(account)} can not be in default_js_domain")
        if domain and not valid_subject(text_bytes(f"$JS.{domain}.API.>")):
            raise OptionError(
                f"default_js_domain contains account {quote(account)} with invalid domain name"
                f" {quote(domain)}"
            )


def _check_account(opts: "OptionFields", name: str, domain: str) -> None:
    """Check that the account can have a domain that is not this server's."""
    if opts.trusted_operators:
        from gnats.nkeys.nkeys import Prefix, is_valid_public_key

        if not is_valid_public_key(name, Prefix.ACCOUNT):
            raise OptionError(
                f"default_js_domain contains account name {quote(name)}, which is not a valid public account"
                " nkey"
            )
        return
    if name == GLOBAL_ACCOUNT:
        return
    found = [account for account in opts.accounts if account.name == name]
    if not found:
        raise OptionError(
            f"in non operator mode, `default_js_domain` references non existing account {quote(name)}"
        )
    if found[0].jetstream and domain:
        raise OptionError(f"default_js_domain contains account name {quote(name)} with enabled JetStream")
