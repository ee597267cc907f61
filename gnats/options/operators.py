"""Trusted operators, and checks of the options that depend on them (jwt.go)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnats.errors import OptionError
from gnats.go.text import quote
from gnats.jwt.claims import OperatorClaims, UserClaims
from gnats.jwt.token import JWTError, decode_as
from gnats.jwt.validation import parse_server_version
from gnats.nkeys.nkeys import Prefix, is_valid_public_key
from gnats.version import NATS_VERSION

if TYPE_CHECKING:
    from gnats.options.values.fields import OptionFields


def decode_operators(opts: "OptionFields") -> list[OperatorClaims]:
    """Return the claims of the trusted operators. Raises OptionError."""
    operators = []
    for token in opts.trusted_operators:
        try:
            operators.append(decode_as(OperatorClaims, token))
        except JWTError as exc:
            raise OptionError(f"error parsing operator JWT: {exc}") from None
    return operators


def system_account(opts: "OptionFields", operators: list[OperatorClaims]) -> str:
    """Return the system account of the options, else that of the only operator, else ""."""
    if not opts.system_account and len(operators) == 1:
        return operators[0].nats.system_account
    return opts.system_account


def validate_trust(opts: "OptionFields") -> None:
    """Check operators, resolver, and options that exclude them (validateTrustedOperators, configureResolver).

    Raises OptionError with nats-server's text.
    """
    operators = decode_operators(opts)
    if opts.resolver and opts.resolver.kind == "url":
        if opts.resolver_preload:
            raise OptionError(
                "resolver preloads only available for writeable resolver types MEM/DIR/CACHE_DIR"
            )
        if not opts.resolver.url:
            raise OptionError('the account resolver has no address: URL("http://...")')
    if not operators:
        if opts.default_sentinel:
            raise OptionError("default sentinel requires operators and accounts")
        _check_trusted_keys(opts.trusted_keys)
        return
    if opts.default_sentinel:
        _check_sentinel(opts.default_sentinel)
    if opts.resolver is None and not (len(operators) == 1 and operators[0].nats.account_server_url):
        raise OptionError("operators require an account resolver to be configured")
    if opts.accounts or opts.mappings:
        raise OptionError("operators do not allow Accounts to be configured directly")
    if opts.users or opts.nkeys:
        raise OptionError("operators do not allow users to be configured directly")
    if opts.trusted_keys:
        raise OptionError("conflicting options for 'TrustedKeys' and 'TrustedOperators'")
    named = {operator.nats.system_account for operator in operators} - {""}
    if system_account(opts, operators):
        if named and system_account(opts, operators) not in named:
            raise OptionError("system_account in config and operator JWT must be identical")
    elif not operators[0].nats.system_account and opts.resolver and opts.resolver.kind in ("full", "cache"):
        raise OptionError(
            "using nats based account resolver - the system account needs to be specified"
            " in configuration or the operator jwt"
        )
    for operator in operators:
        _check_version(operator)
        _check_trusted_keys(operator.keys)
    for key in opts.resolver_pinned_accounts:
        if not is_valid_public_key(key, Prefix.ACCOUNT):
            raise OptionError(f"pinned account key {quote(key)} is not a valid public account nkey")
    if opts.auth_callout is not None:
        raise OptionError("operators do not allow authorization callouts to be configured directly")


def _check_sentinel(token: str) -> None:
    try:
        claims = decode_as(UserClaims, token)
    except JWTError:
        raise OptionError("default sentinel JWT not valid") from None
    scoped = bool(claims.nats.issuer_account) and claims.has_empty_permissions()
    if not claims.nats.bearer_token and not scoped:
        raise OptionError("default sentinel must be a bearer token")


def _check_version(operator: OperatorClaims) -> None:
    asserted = operator.nats.assert_server_version
    try:
        wanted = parse_server_version(asserted)
    except ValueError as exc:
        raise OptionError(
            f"operator {operator.sub} expects version {asserted} got error instead: {exc}"
        ) from None
    for part, want, have in zip(
        ("major", "minor", "update"), wanted, parse_server_version(NATS_VERSION), strict=True
    ):
        if want > have:
            raise OptionError(
                f"operator {operator.sub} expected {part} version {want} > server {part} version {have}"
            )
        if want < have:
            return


def _check_trusted_keys(keys: Sequence[str]) -> None:
    for key in keys:
        if not is_valid_public_key(key, Prefix.OPERATOR):
            raise OptionError(f"trusted Keys {quote(key)} are required to be a valid public operator nkey")
