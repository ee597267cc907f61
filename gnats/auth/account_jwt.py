"""An account that a JWT describes (accounts.go): what its users are checked against, and its AccountConfig.

Accounts of JWTs and of a configuration are built by the same code, from AccountConfig.
"""

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
    """An account that is not there, not valid or expired; the text is nats-server's."""


class ClaimAccount:
    """An account by its JWT; without one, what a system account is until its JWT can be fetched.

    `name` is the public key, `updated` the monotonic time of the last change, `incomplete` whether an account
    it imports from could not be found.
    """

    def __init__(self, name: str, issuer: str) -> None:
        self.name = name
        self.issuer = issuer
        self.token = ""
        self.claims = AccountClaims(sub=name)
        self.signing_keys: dict[str, UserScope | None] = {name: None}
        self.updated = 0.0
        self.incomplete = False
        self.removed = False
        """Its JWT was deleted: nobody may connect until there is one again."""

    def update(self, claims: AccountClaims, token: str, *, strict: bool) -> None:
        """Take over the claims of a JWT; `strict`: the account's own key may not sign users."""
        self.issuer = claims.iss
        self.token = token
        self.claims = claims
        self.signing_keys = dict(claims.nats.signing_keys)
        if not strict:
            self.signing_keys[self.name] = None
        self.updated = monotonic()
        self.removed = False

    def remove(self) -> None:
        """The JWT was deleted."""
        self.removed = True
        self.token = ""
        self.updated = monotonic()

    def __str__(self) -> str:
        """As the log names it."""
        return f"{self.name}/{self.claims.name}" if self.claims.name else self.name

    @property
    def is_expired(self) -> bool:
        return self.removed or 0 < self.claims.exp <= unix_time()

    @property
    def disallow_bearer(self) -> bool:
        return self.claims.nats.limits.disallow_bearer

    @property
    def external_auth(self) -> bool:
        """Does an auth callout service decide about the users? (hasExternalAuth)"""
        return self.claims.nats.authorization.enabled

    def is_external_auth_user(self, user: str) -> bool:
        """Is the user, by its public key, one that the auth callout is not asked about?"""
        return user in (self.claims.nats.authorization.auth_users or ())

    def is_allowed_account(self, account: str) -> bool:
        """May the auth callout of this account place users in that one? (isAllowedAcount)"""
        allowed = self.claims.nats.authorization.allowed_accounts or ()
        return self.external_auth and (allowed == (jwt.ALL,) or account in allowed)

    def is_user_revoked(self, user: str, issued_at: int) -> bool:
        return is_revoked(self.claims.nats.revocations, user, issued_at)

    @property
    def default_permissions(self) -> Permissions | None:
        return build_permissions(self.claims.nats.default_permissions)

    def export(self, kind: str, subject: str) -> Export | None:
        """The export of a "stream" or a "service" with exactly this subject."""
        exports = self.claims.nats.exports
        return next((each for each in exports if (each.type, each.subject) == (kind, subject)), None)

    @property
    def imported_accounts(self) -> list[str]:
        """The accounts it imports from, once each."""
        return list(dict.fromkeys(each.account for each in self.claims.nats.imports))

    def config(self) -> AccountConfig:
        """The account in the form that a configuration has it in."""
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
    """A JWT's permissions, None when there are none (buildPermissionsFromJwt)."""
    publish, subscribe = _subjects(permissions.pub), _subjects(permissions.sub)
    if permissions.resp is None:
        return Permissions(publish, subscribe) if publish or subscribe else None
    default = ResponsePermission()
    response = ResponsePermission(
        max_msgs=permissions.resp.max or default.max_msgs,
        expires=permissions.resp.ttl / SECOND or default.expires,
    )
    # Who may publish answers may publish nothing else, unless something is allowed.
    if publish is None or publish.allow is None:
        publish = SubjectPermission((), publish.deny if publish else ())
    return Permissions(publish, subscribe, response)


def _subjects(permission: jwt.Permission) -> SubjectPermission | None:
    if not permission.allow and not permission.deny:
        return None
    return SubjectPermission(permission.allow, permission.deny or ())


def clamp(limit: int) -> int:
    """A limit as nats-server keeps it: 32 bits."""
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
    if each.to and not each.local_subject:  # the old way round: `subject` is the importer's
        return ServiceImport(each.account, each.to, each.subject, each.share, each.token)
    return ServiceImport(each.account, each.subject, each.local_subject, each.share, each.token)


def _mapping(source: str, dests: tuple[WeightedMapping, ...]) -> Mapping:
    return Mapping(source, tuple(MapDest(dest.subject, dest.weight or 100, dest.cluster) for dest in dests))
