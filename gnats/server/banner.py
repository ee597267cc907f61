"""The first lines of a server's log: its version, its name and its notable options."""

from collections.abc import Mapping

from gnats.go.text import friendly_bytes, quote
from gnats.log.logger import Logger
from gnats.options.options import MAX_PAYLOAD_WARNING, Options
from gnats.version import FEATURE_FLAGS, NATS_VERSION, RUNTIME, __version__


def print_banner(opts: Options, log: Logger, name: str, server_id: str, *, plaintext_passwords: bool) -> None:
    """Log the server's version, name and id, its configuration file and feature flags, and warnings."""
    log.notice("Starting nats-server")
    log.notice(f"  Version:  {NATS_VERSION}")
    log.notice("  Git:      [not set]")
    log.notice(f"  gnats:    {__version__}")
    log.debug(f"  Go build: {RUNTIME}")
    if opts.cluster.name and not opts.cluster.hidden:
        log.notice(f"  Cluster:  {opts.cluster.name}")
    log.notice(f"  Name:     {name}")
    log.notice(f"  ID:       {server_id}")
    _log_feature_flags(opts.feature_flags, log)
    if plaintext_passwords:
        log.warn("Plaintext passwords detected, use nkeys or bcrypt")
    if opts.config_file:
        log.notice(f"Using configuration file: {opts.config_file} ({opts.config_digest})")
    if opts.max_payload > MAX_PAYLOAD_WARNING:
        limit = friendly_bytes(MAX_PAYLOAD_WARNING)
        log.warn(
            f"Maximum payloads over {limit} are generally discouraged and could lead to poor performance"
        )
    if opts.cluster.port or opts.gateway.configured:
        _log_unnamable(opts, log)
    if opts.default_js_domain:
        log.warn(
            "The option `default_js_domain` is a temporary backwards compatibility measure"
            " and will be removed"
        )


def _log_unnamable(opts: Options, log: Logger) -> None:
    """Warn of accounts that no line between servers can name."""
    for account in opts.accounts:
        if any(blank in account.name for blank in " \t\r\n"):
            log.warn(f"Account {quote(account.name)} is of this server alone: its name has a blank")


def _log_feature_flags(flags: Mapping[str, bool], log: Logger) -> None:
    """Log the configured feature flags (printFeatureFlags)."""
    if not flags:
        return
    words = {(True, True): "enabled", (True, False): "opt-out", (False, True): "opt-in"}
    known = [
        f"{name} ({words.get((FEATURE_FLAGS[name], flags[name]), 'disabled')})"
        for name in sorted(flags.keys() & FEATURE_FLAGS.keys())
    ]
    log.notice("  Feature flags:")
    log.notice(f"    Configured:    {', '.join(known) or 'none'}")
    if unknown := sorted(flags.keys() - FEATURE_FLAGS.keys()):
        log.notice(f"    Unsupported:   {', '.join(unknown)}")
