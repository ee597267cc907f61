"""The options of a server (opts.go), their defaults and their checks."""

import os
import warnings
from dataclasses import fields, replace

from gnats.errors import OptionError
from gnats.go.hostport import RANDOM_PORT, parse_host_port
from gnats.go.text import MAX_INT32, duration_of, quote
from gnats.options.values.auth import (
    GLOBAL_ACCOUNT,
    SYSTEM_ACCOUNT,
    NkeyUser,
    User,
    check_permissions,
)
from gnats.options.values.fields import OptionFields
from gnats.options.values.jetstream import NO_EXTEND, WILL_EXTEND, check_jetstream
from gnats.options.values.tls import default_auth_timeout

ANY_HOST = "0.0.0.0"
"""All interfaces: the default host of the command gnats-server, as in nats-server."""
MAX_PAYLOAD_WARNING = 8 << 20
MAX_SUB_TOKENS = 255
MAX_IO_THREADS = 63
"""A connection has one bit of a 64-bit word for each poller that waits for it; one poller is the loop's."""

_ZERO_MEANS_DEFAULT = (
    "host",
    "port",
    "max_conn",
    "max_control_line",
    "max_payload",
    "max_pending",
    "write_deadline",
    "ping_interval",
    "ping_max",
    "max_closed_clients",
    "lame_duck_duration",
    "lame_duck_grace_period",
)


class Options(OptionFields):
    """A server's options, with nats-server's names. Durations are seconds, sizes bytes.

    As in nats-server, an empty host and a zero mean the default, but `max_subs` 0 is unlimited. A negative
    `max_conn` refuses every connection; `max_payload` -1 is unlimited. The default host is loopback, so that
    other machines reach an embedded server only if its program asks for it. (The command gnats-server listens
    on all interfaces.)
    """

    __slots__ = ()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "Options":
        """Read the options of a configuration file; options that it does not name have their defaults.

        Warnings about the file, such as keys without effect, become Python warnings. Raises OptionError with
        all errors of the file, one line each with file, line and position.
        """
        opts = cls()
        for doubt in read_config(opts, os.fspath(path)):
            warnings.warn(doubt, stacklevel=2)
        return opts

    def baseline(self) -> "Options":
        """Return a checked copy, with defaults in place of empty and zero values. Raises OptionError."""
        check_jetstream(self.jetstream)
        opts = replace(self)
        for option in fields(self):
            if option.name in _ZERO_MEANS_DEFAULT and not getattr(opts, option.name):
                setattr(opts, option.name, option.default)
        opts.http_host = opts.http_host or opts.host
        opts.https_host = opts.https_host or opts.host
        if not opts.auth_timeout:
            opts.auth_timeout = default_auth_timeout(opts.tls)
        opts.validate()
        system = opts.system_account or ("" if opts.no_system_account else SYSTEM_ACCOUNT)
        opts.leafnodes = opts.leafnodes.baseline(_leafnode_accounts(opts))
        if opts.leafnodes.port:
            opts.gateway.check_system_account(opts.system_account)
        opts.gateway = opts.gateway.baseline()
        name = opts.gateway.cluster_name(opts.cluster.name)
        opts.cluster = replace(opts.cluster, name=name).baseline(system)
        check_supported(opts)
        return opts

    def validate(self) -> None:
        """Check the options as nats-server does. Raises OptionError, one line, for the first error."""
        if self.lame_duck_grace_period >= self.lame_duck_duration:
            raise OptionError(
                f"lame duck grace period ({duration_of(self.lame_duck_grace_period)}) should be strictly"
                f" lower than lame duck duration ({duration_of(self.lame_duck_duration)})"
            )
        if self.max_payload > self.max_pending:
            raise OptionError(
                f"max_payload ({self.max_payload}) cannot be higher than max_pending ({self.max_pending})"
            )
        for name in ("max_payload", "max_control_line", "max_subs", "ping_max"):
            if getattr(self, name) > MAX_INT32:
                raise OptionError(f"{name} value is too big")
        for name in ("max_control_line", "max_pending", "max_subs", "write_deadline", "ping_interval"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name} cannot be negative")
        if self.config_file and not self.config_digest:
            raise OptionError(
                f"config_file {quote(self.config_file)} names a file that was not read: use"
                " Options.from_file()"
            )
        if " " in self.server_name:
            raise OptionError("server name cannot contain spaces")
        for name in ("port", "http_port", "https_port", "prof_port"):
            if not RANDOM_PORT <= getattr(self, name) <= 65535:
                raise OptionError(f"{name} {getattr(self, name)} is not a port: -1 (a free one) to 65535")
        if self.http_port and self.https_port:
            raise OptionError(
                f"can't specify both HTTP ({self.http_port}) and HTTPs ({self.https_port}) ports"
            )
        if self.http_port or self.https_port:
            _check_base_path(self.http_base_path)
        if self.https_port and not (self.tls and (self.tls.cert_file or self.tls.certificates)):
            raise OptionError("TLS cert and key required for HTTPS")
        if not 0 <= self.max_sub_tokens <= MAX_SUB_TOKENS:
            raise OptionError(
                f"max_sub_tokens {self.max_sub_tokens} is not a number from 0 to {MAX_SUB_TOKENS}"
            )
        if self.accounts_by_jwt or self.default_sentinel or self.resolver:
            from gnats.options.operators import validate_trust  # reads JWTs

            validate_trust(self)
        validate_auth(self)
        validate_accounts(self)
        if self.default_js_domain:
            from gnats.options.domains import validate_default_domains

            validate_default_domains(self)
        self.jetstream.validate()
        if self.jetstream.enabled and self.cluster.port:
            self._check_jetstream_cluster()
        if self.client_advertise:
            parse_host_port(self.client_advertise, self.port)
        threads = self.io_threads
        if not (threads == "auto" or (isinstance(threads, int) and 0 <= threads <= MAX_IO_THREADS)):
            raise OptionError(
                f'io_threads {threads} is neither a number from 0 to {MAX_IO_THREADS} nor "auto"'
            )

    def _check_jetstream_cluster(self) -> None:
        """Check what a cluster with JetStream must have (validateJetStreamOptions). Raises OptionError."""
        if not self.server_name:
            raise OptionError("jetstream cluster requires `server_name` to be set")
        if not self.cluster.name or self.cluster.generated:
            raise OptionError("jetstream cluster requires `cluster.name` to be set")
        hint = self.jetstream.extension_hint
        if hint not in ("", NO_EXTEND, WILL_EXTEND):
            raise OptionError(f"expected 'no_extend' for string value, got '{hint}'")


def check_supported(opts: Options) -> None:
    """Refuse what the options can say and this server cannot do yet. Raises OptionError."""
    if not opts.jetstream.enabled or not (opts.cluster.port or opts.gateway.configured):
        return
    if not opts.cluster.port:
        raise OptionError(
            "JetStream cluster requires configured routes or solicited leafnode for the system account"
        )
    if opts.jetstream.extension_hint != NO_EXTEND and any(
        (remote.account or GLOBAL_ACCOUNT) == (opts.system_account or SYSTEM_ACCOUNT)
        for remote in opts.leafnodes.remotes
    ):
        raise OptionError("a JetStream cluster that extends another one over leaf nodes is not supported yet")


def _leafnode_accounts(opts: Options) -> set[str] | None:
    """Return the names of the accounts that leaf nodes may use; None: JWTs define them."""
    if opts.trusted_operators:
        return None
    names = {account.name for account in opts.accounts} | {GLOBAL_ACCOUNT}
    if not (opts.system_account or opts.no_system_account):
        names.add(SYSTEM_ACCOUNT)
    return names


def _check_base_path(path: str) -> None:
    """Check that nats-server could serve the path. Raises OptionError."""
    names = set()
    for part in path.split("/"):
        if "{" not in part and "}" not in part:
            continue
        name = part[1:-1]
        if part != f"{{{name}}}" or not (name.isascii() and name.isidentifier()) or name in names:
            raise OptionError(
                f"http_base_path {quote(path)}: {quote(part)} cannot be in it; a part with a"
                " brace is {name}, with another name in each"
            )
        names.add(name)


def read_config(opts: Options, path: str) -> list[str]:
    """Set the options that a configuration file names. Return warnings.

    Raises OptionError as Options.from_file() does.
    """
    from gnats.conf import parse_file
    from gnats.options.keys import apply_config

    return apply_config(opts, parse_file(path), path)


def validate_auth(opts: Options) -> None:
    """Check that permissions are subjects, and that no_auth_user and the system account exist.

    Raises OptionError.
    """
    users: list[User | NkeyUser] = [*opts.users, *opts.nkeys]
    for user in users:
        kind, name = ("user", user.username) if isinstance(user, User) else ("nkey", user.nkey)
        try:
            check_permissions(user.permissions)
        except ValueError as exc:
            raise OptionError(f"invalid permissions for {kind} {quote(name)}: {exc}") from None
    if opts.no_auth_user:
        if opts.trusted_operators:
            raise OptionError("no_auth_user not compatible with Trusted Operator")
        names = {user.username for user in opts.users} | {user.nkey for user in opts.nkeys}
        if not names:
            raise OptionError(f'no_auth_user: "{opts.no_auth_user}" present, but users/nkeys are not defined')
        if opts.no_auth_user not in names:
            raise OptionError(
                f'no_auth_user: "{opts.no_auth_user}" not present as user or nkey in authorization block'
                " or account configuration"
            )
    if opts.system_account and not opts.accounts_by_jwt:
        accounts = {account.name for account in opts.accounts} | {GLOBAL_ACCOUNT}
        if opts.system_account not in accounts:
            raise OptionError(f"error resolving system account {quote(opts.system_account)}: account missing")


def validate_accounts(opts: Options) -> None:
    """Check the exports, imports and mappings of all accounts. Raises OptionError."""
    if not opts.accounts and not opts.mappings:
        return
    from gnats.options.values.mappings import compile_account_mappings
    from gnats.options.values.sharing import Exchange

    exchange = Exchange()
    if opts.mappings:
        compile_account_mappings(GLOBAL_ACCOUNT, opts.mappings)
        exchange.add_accounts([GLOBAL_ACCOUNT])
    for account in opts.accounts:
        compile_account_mappings(account.name, account.mappings)
    exchange.add(opts.accounts)
