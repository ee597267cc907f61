"""An account that a JWT describes (accounts.go): the checks of its users, and its AccountConfig.

The same code builds accounts from JWTs and from a configuration file: both become an AccountConfig.
"""

import math

from gnats.clock import monotonic, unix_time
from gnats.core.subjects.subject import valid_publish_subject
from gnats.go.text import MAX_INT32, SECOND
from gnats.jwt import claims as jwt
from gnats.jwt.account import (
    AccountClaims,
    Export,
    Import,
    JetStreamLimits,
    UserScope,
    WeightedMapping,
    is_revoked,
)
from gnats.options.values.accounts import (
    AccountConfig,
    AccountLimits,
    MapDest,
    Mapping,
    ServiceExport,
    ServiceImport,
    ServiceLatency,
    StreamExport,
    StreamImport,
)
from gnats.options.values.auth import Permissions, ResponsePermission, SubjectPermission
from gnats.options.values.limits import DEFAULT_TIER, JetStreamAccountLimits, Tiers

_RESPONSE_TYPES = {"Stream": "stream", "Chunked": "chunked"}
_NOTHING = AccountLimits(max_connections=0, max_leafnodes=0, max_subscriptions=0, max_payload=0)


class AccountError(Exception):
    """An account is missing, invalid or expired; the text is nats-server's."""


class ClaimAccount:
    """An account and the claims of its JWT. A system account lacks the JWT until it is fetched.

    `name` is the public key. `updated` is the time of the last change (monotonic seconds). `incomplete` is
    set when an account that it imports from could not be found.
    """

    def __init__(self, name: str, issuer: str) -> None:
        self.name = name
        self.issuer = issuer
        self.token = ""
        self.claims = AccountClaims(sub=name)
        self.signing_keys: dict[str, UserScope | None] = {name: None}
        self.updated = -math.inf
        self.incomplete = False
        self.removed = False
        """The JWT was deleted: no client may connect until there is a new one."""

    def update(self, claims: AccountClaims, token: str, *, strict: bool) -> None:
        """Replace the claims with those of a JWT; `strict`: the account's own key may not sign users."""
        self.issuer = claims.iss
        self.token = token
        self.claims = claims
        self.signing_keys = dict(claims.nats.signing_keys)
        if not strict:
            self.signing_keys[self.name] = None
        self.updated = monotonic()
        self.removed = False

    def remove(self) -> None:
        """Note that the JWT was deleted."""
        self.removed = True
        self.token = ""
        self.updated = monotonic()

    def __str__(self) -> str:
        """Return the account's name in logs."""
        return f"{self.name}/{self.claims.name}" if self.claims.name else self.name

    @property
    def is_expired(self) -> bool:
        return self.removed or 0 < self.claims.exp <= unix_time()

    @property
    def disallow_bearer(self) -> bool:
        return self.claims.nats.limits.disallow_bearer

    @property
    def external_auth(self) -> bool:
        """Whether an auth callout service decides about the users (hasExternalAuth)."""
        return self.claims.nats.authorization.enabled

    def is_external_auth_user(self, user: str) -> bool:
        """Whether a user (a public key) connects without a request to the auth callout."""
        return user in (self.claims.nats.authorization.auth_users or ())

    def is_allowed_account(self, account: str) -> bool:
        """Whether this account's auth callout may place users in `account` (isAllowedAcount)."""
        allowed = self.claims.nats.authorization.allowed_accounts or ()
        return self.external_auth and (allowed == (jwt.ALL,) or account in allowed)

    def is_user_revoked(self, user: str, issued_at: int) -> bool:
        return is_revoked(self.claims.nats.revocations, user, issued_at)

    @property
    def default_permissions(self) -> Permissions | None:
        return build_permissions(self.claims.nats.default_permissions)

    def export(self, kind: str, subject: str) -> Export | None:
        """Return the export of kind "stream" or "service" with exactly this subject, None without one."""
        exports = self.claims.nats.exports
        return next((each for each in exports if (each.type, each.subject) == (kind, subject)), None)

    @property
    def imported_accounts(self) -> list[str]:
        """The accounts that this one imports from, each once."""
        return list(dict.fromkeys(each.account for each in self.claims.nats.imports))

    def config(self) -> AccountConfig:
        """Return the account in the form of a configuration file's accounts."""
        account = self.claims.nats
        trace, sampling = account.trace, 100
        trace_dest = trace.dest if trace and valid_publish_subject(trace.dest) else ""
        if trace and 0 < trace.sampling <= 100:
            sampling = trace.sampling
        return AccountConfig(
            name=self.name,
            default_permissions=self.default_permissions,
            exports=[_export(each) for each in account.exports],
            imports=[_import(each) for each in account.imports],
            mappings=[_mapping(source, account.mappings[source]) for source in account.mappings],
            limits=self._limits(),
            trace_dest=trace_dest,
            trace_sampling=sampling,
            jetstream=self._jetstream(),
        )

    def _jetstream(self) -> Tiers | None:
        limits = self.claims.nats.limits
        if self.removed or not self.token or not limits.jetstream_enabled():
            return None
        if limits.disk_storage or limits.mem_storage:
            return {DEFAULT_TIER: _jetstream_limits(limits)}
        return {tier: _jetstream_limits(each) for tier, each in limits.tiered_limits.items()}

    def _limits(self) -> AccountLimits:
        if self.removed:
            return _NOTHING
        if not self.token:
            return AccountLimits()
        limits = self.claims.nats.limits
        return AccountLimits(
            max_connections=clamp(limits.conn),
            max_leafnodes=clamp(limits.leaf),
            max_subscriptions=clamp(limits.subs),
            max_payload=clamp(limits.payload),
        )


def _jetstream_limits(limits: JetStreamLimits) -> JetStreamAccountLimits:
    def unlimited(value: int) -> int:
        return value if value > 0 else -1

    return JetStreamAccountLimits(
        max_memory=limits.mem_storage,
        max_storage=limits.disk_storage,
        max_streams=limits.streams,
        max_consumers=limits.consumer,
        max_ack_pending=unlimited(limits.max_ack_pending),
        memory_max_stream_bytes=unlimited(limits.mem_max_stream_bytes),
        storage_max_stream_bytes=unlimited(limits.disk_max_stream_bytes),
        max_bytes_required=limits.max_bytes_required,
    )


def build_permissions(permissions: jwt.Permissions) -> Permissions | None:
    """Convert a JWT's permissions; None when it has none (buildPermissionsFromJwt)."""
    publish, subscribe = _subjects(permissions.pub), _subjects(permissions.sub)
    if permissions.resp is None:
        return Permissions(publish, subscribe) if publish or subscribe else None
    default = ResponsePermission()
    response = ResponsePermission(
        max_msgs=permissions.resp.max or default.max_msgs,
        expires=permissions.resp.ttl / SECOND or default.expires,
    )
    # A user with response permissions may publish nothing but responses, unless subjects are allowed.
    if publish is None or publish.allow is None:
        publish = SubjectPermission((), publish.deny if publish else ())
    return Permissions(publish, subscribe, response)


def _subjects(permission: jwt.Permission) -> SubjectPermission | None:
    if not permission.allow and not permission.deny:
        return None
    return SubjectPermission(permission.allow, permission.deny or ())


def clamp(limit: int) -> int:
    """Clamp a limit to 32 bits, as nats-server stores it."""
    return max(-MAX_INT32 - 1, min(MAX_INT32, limit))


def _export(export: Export) -> StreamExport | ServiceExport:
    accounts = () if export.token_req else None
    if export.type == "stream":
        return StreamExport(export.subject, accounts, export.account_token_position)
    latency = export.service_latency
    return ServiceExport(
        export.subject,
        accounts,
        export.account_token_position,
        _RESPONSE_TYPES.get(export.response_type, "singleton"),
        export.response_threshold / SECOND,
        ServiceLatency(latency.results, latency.sampling) if latency else None,
        export.allow_trace,
    )


def _import(each: Import) -> StreamImport | ServiceImport:
    if each.type == "stream":
        prefix = "" if each.local_subject else each.to
        return StreamImport(
            each.account, each.subject, each.local_subject, prefix, each.allow_trace, each.token
        )
    if each.to and not each.local_subject:  # the old form: `subject` is the importer's, `to` the exporter's
        return ServiceImport(each.account, each.to, each.subject, each.share, each.token)
    return ServiceImport(each.account, each.subject, each.local_subject, each.share, each.token)


def _mapping(source: str, dests: tuple[WeightedMapping, ...]) -> Mapping:
    return Mapping(source, tuple(MapDest(dest.subject, dest.weight or 100, dest.cluster) for dest in dests))
