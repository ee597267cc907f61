"""Checks the contents of claims: the rules of the jwt library's Validate methods.

A server refuses claims with a blocking issue. A time check blocks only if the caller asks for it; a warning
never blocks.
"""

import ipaddress
import re
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gnats.clock import unix_time
from gnats.go.text import quote
from gnats.jwt.account import Account, AccountClaims, Export, ExternalAuthorization, Import, MsgTrace
from gnats.jwt.claims import (
    ALL,
    NO_LIMIT,
    ActivationClaims,
    AuthorizationRequestClaims,
    AuthorizationResponseClaims,
    Claims,
    OperatorClaims,
    Permission,
    Permissions,
    UserClaims,
    UserPermissionLimits,
)
from gnats.jwt.token import JWTError, decode_as
from gnats.nkeys.nkeys import Prefix, is_valid_public_key

LOCAL = "Local"
"""The name of the machine's own time zone."""
_MAX_INFO_LENGTH = 8 * 1024
_CLOCK = re.compile(r"(?:[01]?\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d+)?")
_REFERENCE = re.compile(r"\$[+-]?\d{1,18}")
"""A token that refers to a wildcard by its number; no subject has wildcards for numbers with more digits."""
_SERVICE_SCHEMES = ("nats", "tls", "ws", "wss")


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue found in claims; `time_check`: about the time of validity, blocking only on request."""

    description: str
    blocking: bool = True
    time_check: bool = False


@dataclass(slots=True)
class Issues:
    """The issues found in claims (ValidationResults)."""

    issues: list[Issue] = field(default_factory=list)

    def error(self, description: str) -> None:
        self.issues.append(Issue(description))

    def warning(self, description: str) -> None:
        self.issues.append(Issue(description, blocking=False))

    def time_check(self, description: str) -> None:
        self.issues.append(Issue(description, blocking=False, time_check=True))

    def is_blocking(self, *, time_checks: bool) -> bool:
        return any(issue.blocking or (time_checks and issue.time_check) for issue in self.issues)

    @property
    def errors(self) -> list[str]:
        return [issue.description for issue in self.issues if issue.blocking]

    def __str__(self) -> str:
        return "; ".join(issue.description for issue in self.issues)


def validate(claims: Claims) -> Issues:
    """Check claims, with the present time. Return all issues."""
    issues = Issues()
    match claims:
        case AuthorizationRequestClaims():
            _validate_request(claims, issues)
        case AuthorizationResponseClaims():
            _validate_response(claims, issues)
    _validate_times(claims, issues)
    match claims:
        case AccountClaims():
            _validate_account(claims, issues)
        case UserClaims():
            _validate_user_limits(claims.nats, issues)
            _validate_issuer_account(claims.nats.issuer_account, issues)
        case OperatorClaims():
            _validate_operator(claims, issues)
        case ActivationClaims():
            _validate_activation(claims, issues)
    return issues


def _validate_times(claims: Claims, issues: Issues) -> None:
    now = int(unix_time())
    if 0 < claims.exp < now:
        issues.time_check("claim is expired")
    if claims.nbf > 0 and claims.nbf > now:
        issues.time_check("claim is not yet valid")


# users


def _validate_user_limits(limits: UserPermissionLimits, issues: Issues) -> None:
    _validate_permissions(limits, issues)
    for cidr in limits.src or ():
        if parse_cidr(cidr) is None:
            issues.error(f"invalid cidr {quote(cidr)} in user src limits")
    for each in limits.times or ():
        for name, clock in (("start", each.start), ("end", each.end)):
            if not clock:
                issues.error(f"time ranges {name} must contain {'a start' if name == 'start' else 'an end'}")
            elif not _CLOCK.fullmatch(clock):
                issues.error(f"{name} in time range is invalid {quote(clock)}")
    if limits.times_location not in ("", LOCAL) and load_location(limits.times_location) is None:
        issues.error(f"could not parse iana time zone by name: unknown time zone {limits.times_location}")


def _validate_issuer_account(key: str, issues: Issues) -> None:
    if key and not is_valid_public_key(key, Prefix.ACCOUNT):
        issues.error("account_id is not an account public key")


def _validate_permissions(permissions: Permissions, issues: Issues) -> None:
    _validate_permission(permissions.sub, issues, queue=True)
    _validate_permission(permissions.pub, issues, queue=False)


def _validate_permission(permission: Permission, issues: Issues, *, queue: bool) -> None:
    for entry in (permission.allow or ()) + (permission.deny or ()):
        words = entry.split(" ")
        if len(words) > 2:
            issues.error(f'Permission Subject "{entry}" contains too many spaces')
            continue
        for word in words:
            _validate_subject(word, issues)
        if len(words) == 2 and not queue:
            issues.error(f'Permission Subject "{entry}" is not allowed to contain queue')


def parse_cidr(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Parse address/bits; None for other text."""
    if not text.partition("/")[2].isdecimal():
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def load_location(name: str) -> ZoneInfo | None:
    """Return the time zone of an IANA name, or None."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


# operators


def _validate_operator(claims: OperatorClaims, issues: Issues) -> None:
    operator = claims.nats
    url = operator.account_server_url
    if url:
        parsed = _parse_url(url)
        if parsed is None:
            issues.error(f"error parsing account server url: {url}")
        elif not parsed.scheme:
            issues.error(f"account server url {quote(url)} requires a protocol")
    for url in operator.operator_service_urls or ():
        if url and (problem := _service_url_problem(url)):
            issues.error(problem)
    for key in operator.signing_keys or ():
        if not is_valid_public_key(key, Prefix.OPERATOR):
            issues.error(f"{key} is not an operator public key")
    if operator.system_account and not is_valid_public_key(operator.system_account, Prefix.ACCOUNT):
        issues.error(f"{operator.system_account} is not an account public key")
    try:
        parse_server_version(operator.assert_server_version)
    except ValueError as exc:
        issues.error(f"assert server version error: {exc}")


def parse_server_version(version: str) -> tuple[int, int, int]:
    """Return the three numbers of a version; zeros for an empty text. Raises ValueError."""
    if not version:
        return 0, 0, 0
    parts = version.split(".")
    if len(parts) != 3:
        raise ValueError("asserted server version must be of the form <major>.<minor>.<update>")
    for part in parts:
        if not re.fullmatch(r"[+-]?\d+", part, re.ASCII):
            raise ValueError(f"asserted server version cant parse {part} to int")
    major, minor, update = (int(part) for part in parts)
    if min(major, minor, update) < 0:
        raise ValueError(f"asserted server version can'b contain negative values: {version}")
    return major, minor, update


def _parse_url(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _service_url_problem(url: str) -> str:
    parsed = _parse_url(url)
    if parsed is None:
        return f"error parsing operator service url {quote(url)}"
    if "@" in parsed.netloc:
        return f"operator service url {quote(url)} - credentials are not supported"
    if parsed.path:
        return f"operator service url {quote(url)} - paths are not supported"
    if parsed.scheme.lower() not in _SERVICE_SCHEMES:
        return (
            f"operator service url {quote(url)} - protocol not supported"
            " (only 'nats', 'tls', 'ws', 'wss' only)"
        )
    return ""


# accounts


def _validate_account(claims: AccountClaims, issues: Issues) -> None:
    account = claims.nats
    _validate_imports(account.imports, claims.sub, issues)
    _validate_exports(account.exports, issues)
    limits = account.limits
    if "" in limits.tiered_limits:
        issues.error('Tiered JetStream Limits can not contain a blank "" tier name')
    _validate_permissions(account.default_permissions, issues)
    _validate_mappings(account, issues)
    _validate_authorization(account.authorization, issues)
    if account.trace is not None:
        _validate_trace(account.trace, issues)
    _validate_counts(account, issues)
    for key, scope in account.signing_keys.items():
        if not is_valid_public_key(key, Prefix.ACCOUNT):
            issues.error(
                f"{key} is not an account public key"
                if scope
                else f"{quote(key)} is not a valid account signing key"
            )
    _validate_info(account.description, account.info_url, issues)
    if account.cluster_traffic not in ("", "system", "owner"):
        issues.error(f"unknown cluster traffic option: {quote(account.cluster_traffic)}")
    if is_valid_public_key(claims.iss, Prefix.ACCOUNT) and limits != type(limits)():
        issues.warning("self-signed account JWTs shouldn't contain operator limits")


def _validate_counts(account: Account, issues: Issues) -> None:
    limits = account.limits
    if limits.imports != NO_LIMIT and len(account.imports) > limits.imports:
        issues.error("the account contains more imports than allowed by the operator")
    if limits.exports != NO_LIMIT:
        if len(account.exports) > limits.exports:
            issues.error("the account contains more exports than allowed by the operator")
        if not limits.wildcards and any(has_wildcards(export.subject) for export in account.exports):
            issues.error("the account contains wildcard exports that are not allowed by the operator")


def _validate_info(description: str, url: str, issues: Issues) -> None:
    if len(description.encode()) > _MAX_INFO_LENGTH:
        issues.error("Description is too long")
    if url:
        if len(url.encode()) > _MAX_INFO_LENGTH:
            issues.error("Info URL is too long")
        parsed = _parse_url(url)
        if parsed is None or not (parsed.hostname and parsed.scheme):
            issues.error("error parsing info url: no hostname or scheme")


def _validate_mappings(account: Account, issues: Issues) -> None:
    for source, dests in account.mappings.items():
        _validate_subject(source, issues)
        totals: Counter[str] = Counter()
        for dest in dests:
            _validate_subject(dest.subject, issues)
            weight = dest.weight or 100
            if weight > 100:
                issues.error(f"Mapping {quote(source)} has a weight {weight} that exceeds 100")
            totals[dest.cluster] += weight
        for cluster, total in totals.items():
            if total > 100:
                where = f" in cluster {quote(cluster)}" if cluster else ""
                issues.error(
                    f"Mapping {quote(source)}{where} exceeds 100% among all of it's weighted to mappings"
                )


def _validate_authorization(authorization: ExternalAuthorization, issues: Issues) -> None:
    users, accounts = authorization.auth_users or (), authorization.allowed_accounts or ()
    if accounts and not users:
        issues.error("External authorization cannot have accounts without users specified")
    for user in users:
        if not is_valid_public_key(user, Prefix.USER):
            issues.error(f"AuthUser {quote(user)} is not a valid user public key")
    for account in accounts:
        if account == ALL:
            if len(accounts) > 1:
                issues.error(f"AllowedAccounts can only be a list of accounts or {quote(ALL)}")
        elif not is_valid_public_key(account, Prefix.ACCOUNT):
            issues.error(f"Account {quote(account)} is not a valid account public key")
    if authorization.xkey and not is_valid_public_key(authorization.xkey, Prefix.CURVE):
        issues.error(f"XKey {quote(authorization.xkey)} is not a valid public xkey")


def _validate_trace(trace: MsgTrace, issues: Issues) -> None:
    about_dest = Issues()
    _validate_subject(trace.dest, about_dest)
    if about_dest.issues:
        issues.error(f"the account Trace.Destination {about_dest.issues[0].description}")
    if has_wildcards(trace.dest):
        issues.error(
            f"the account Trace.Destination subject {quote(trace.dest)} is not a valid publish subject"
        )
    if not 0 <= trace.sampling <= 100:
        issues.error(
            f"the account Trace.Sampling value '{trace.sampling}' is not valid,"
            " should be in the range [1..100]"
        )


# exports


def _validate_exports(exports: tuple[Export, ...], issues: Issues) -> None:
    for export in exports:
        _validate_export(export, issues)
    for kind in ("service", "stream"):
        subjects = [export.subject for export in exports if (export.type == "service") == (kind == "service")]
        seen = set()
        for at, subject in enumerate(subjects):
            for other_at, other in enumerate(subjects):
                if at != other_at and other not in seen and is_contained_in(subject, other):
                    seen.add(other)
                    issues.error(f"{kind} export subject {quote(other)} already exports {quote(subject)}")


def _validate_export(export: Export, issues: Issues) -> None:
    service = export.type == "service"
    if not export.type:
        issues.error('invalid export type: "unknown"')
    if service and export.response_type not in ("", "Singleton", "Stream", "Chunked"):
        issues.error(f"invalid response type for service: {quote(export.response_type)}")
    if export.type == "stream":
        if export.response_type:
            issues.error(f"invalid response type for stream: {quote(export.response_type)}")
        if export.allow_trace:
            issues.error("AllowTrace only valid for service export")
    latency = export.service_latency
    if latency is not None:
        if not service:
            issues.error("latency tracking only permitted for services")
        if not 0 <= latency.sampling <= 100:
            issues.error("sampling percentage needs to be between 1-100")
        _validate_subject(latency.results, issues)
        if has_wildcards(latency.results):
            issues.error("results subject can not contain wildcards")
    if export.response_threshold < 0:
        issues.error("negative response threshold is invalid")
    if export.response_threshold > 0 and not service:
        issues.error("response threshold only valid for services")
    _validate_subject(export.subject, issues)
    if export.account_token_position > 0:
        _validate_token_position(export, issues)
    _validate_info(export.description, export.info_url, issues)


def _validate_token_position(export: Export, issues: Issues) -> None:
    position, tokens = export.account_token_position, export.subject.split(".")
    if not has_wildcards(export.subject):
        issues.error(f"Account Token Position can only be used with wildcard subjects: {export.subject}")
    elif position > len(tokens):
        issues.error(f"Account Token Position {position} exceeds length of subject '{export.subject}'")
    elif tokens[position - 1] != "*":
        issues.error(
            f"Account Token Position {position} matches '{tokens[position - 1]}'"
            f" but must match a * in: {export.subject}"
        )


# imports and activations


def _validate_imports(imports: tuple[Import, ...], account: str, issues: Issues) -> None:
    services: dict[str, list[str]] = {}
    for each in imports:
        if each.type == "service":
            subject = each.to or to_subject(each.local_subject) or each.subject
            taken = services.setdefault(each.account, [])
            for other in taken:
                if is_contained_in(subject, other) or is_contained_in(other, subject):
                    issues.error(
                        f"overlapping subject namespace for {quote(subject)} and {quote(other)}"
                        f" in same account {quote(each.account)}"
                    )
            taken.append(subject)
        validate_import(each, account, issues)


def validate_import(each: Import, account: str, issues: Issues) -> None:
    """Check an import of `account`, a public key; does not check the times of the import's token."""
    service = each.type == "service"
    if not each.type:
        issues.error('invalid import type: "unknown"')
    if service and each.allow_trace:
        issues.error("AllowTrace only valid for stream import")
    if not each.account:
        issues.error("account to import from is not specified")
    if each.to:
        issues.warning("the field to has been deprecated (use LocalSubject instead)")
    _validate_subject(each.subject, issues)
    if each.local_subject:
        _validate_renaming(each.local_subject, each.subject, issues)
        if each.to:
            issues.error("Local Subject replaces To")
    if each.share and not service:
        issues.error(
            "sharing information (for latency tracking) is only valid for services: " + quote(each.subject)
        )
    if each.token:
        _validate_token(each, account, issues)


def _validate_token(each: Import, account: str, issues: Issues) -> None:
    subject = quote(each.subject)
    try:
        activation = decode_as(ActivationClaims, each.token)
    except JWTError:
        issues.error(f"import {subject} contains an invalid activation token")
        return
    if each.account not in (activation.iss, activation.nats.issuer_account):
        issues.error(f"activation token doesn't match account for import {subject}")
    if activation.sub != account:
        issues.error(f"activation token doesn't match account it is being included in, {subject}")
    kind = activation.nats.kind
    if kind != each.type:
        issues.error(
            f"mismatch between token import type {kind or 'unknown'}"
            f" and type of import {each.type or 'unknown'}"
        )
    _validate_activation(activation, issues)
    imported = each.to if each.type == "service" and each.to else each.subject
    if not is_contained_in(imported, activation.nats.subject):
        issues.error(
            f"activation token import subject {quote(activation.nats.subject)} doesn't match import {subject}"
        )


def _validate_activation(claims: ActivationClaims, issues: Issues) -> None:
    if not claims.nats.kind:
        issues.error('invalid import type: "unknown"')
    _validate_subject(claims.nats.subject, issues)
    _validate_issuer_account(claims.nats.issuer_account, issues)


# authorization requests and responses


def _validate_request(claims: AuthorizationRequestClaims, issues: Issues) -> None:
    key = claims.nats.user_nkey
    if not key:
        issues.error("User nkey is required")
    elif not is_valid_public_key(key, Prefix.USER):
        issues.error(f"User nkey {quote(key)} is not a valid user public key")


def _validate_response(claims: AuthorizationResponseClaims, issues: Issues) -> None:
    response = claims.nats
    if not is_valid_public_key(claims.sub, Prefix.USER):
        issues.error("Subject must be a user public key")
    if not is_valid_public_key(claims.aud, Prefix.SERVER):
        issues.error("Audience must be a server public key")
    if not response.error and not response.jwt:
        issues.error("Error or Jwt is required")
    if response.error and response.jwt:
        issues.error("Only Error or Jwt can be set")
    if response.issuer_account and not is_valid_public_key(response.issuer_account, Prefix.ACCOUNT):
        issues.error("issuer_account is not an account public key")


# subjects, by the rules of the jwt library


def _validate_subject(subject: str, issues: Issues) -> None:
    if not subject:
        issues.error("subject cannot be empty")
        return
    if " " in subject:
        issues.error(f"subject {quote(subject)} cannot have spaces")
    if subject.startswith(".") or subject.endswith("."):
        issues.error(f"subject {quote(subject)} cannot start or end with a `.`")
    if ".." in subject:
        issues.error(f"subject {quote(subject)} cannot contain consecutive `.`")


def _validate_renaming(local: str, subject: str, issues: Issues) -> None:
    _validate_subject(local, issues)
    if not subject:
        issues.error("subject cannot be empty")
    if " " in local:
        issues.error(f"subject {quote(local)} cannot have spaces")
    if (local.split(".")[-1] == ">") != (subject.split(".")[-1] == ">"):
        issues.error("both, renaming subject and subject, need to end or not end in >")
    wildcards, used = subject.split(".").count("*"), 0
    for token in local.split("."):
        if token == "*":
            used += 1
        elif _REFERENCE.fullmatch(token):
            if int(token[1:]) > wildcards:
                issues.error(
                    f"Reference {token} in {quote(local)} reference * in {quote(subject)} that do not exist"
                )
            else:
                used += 1
    if used != wildcards:
        issues.error("subject does not contain enough * or reference wildcards $[0-9]")


def to_subject(local: str) -> str:
    """Return a renaming subject with `*` in place of its references."""
    return ".".join("*" if _REFERENCE.fullmatch(token) else token for token in local.split("."))


def has_wildcards(subject: str) -> bool:
    tokens = subject.split(".")
    return "*" in tokens or tokens[-1] == ">"


def is_contained_in(subject: str, other: str) -> bool:
    """Check that `other` matches all of `subject`; both may have wildcards. (IsContainedIn)"""
    tokens, others = subject.split("."), other.split(".")
    if len(tokens) < len(others) or (len(tokens) > len(others) and others[-1] != ">"):
        return False
    if others[-1] == ">":
        others.pop()
    return all(theirs in (mine, "*") for mine, theirs in zip(tokens, others, strict=False))
