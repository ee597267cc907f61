"""The sources of account JWTs (accounts.go): memory, a URL, a directory."""

from gnats.options.options import Options
from gnats.resolver.base import Log, Resolver, SystemRequests

ACCOUNTS_PATH = "/accounts"
"""The path that is added to an operator's account server URL."""


def build_resolver(
    opts: Options, account_server_url: str, log: Log, others: SystemRequests
) -> Resolver | None:
    """Make the resolver of the options; without one, that of the operator's account server URL, or None.

    Raises ResolverError.
    """
    options = opts.resolver
    if options is None:
        if not account_server_url:
            return None
        from gnats.options.values.auth import ResolverOptions

        options = ResolverOptions("url", url=account_server_url + ACCOUNTS_PATH)
    if options.kind == "url":
        from gnats.resolver.url import URLResolver

        return URLResolver(options.url, options.timeout, opts.resolver_tls)
    if options.kind == "mem":
        from gnats.resolver.memory import MemoryResolver

        return MemoryResolver()
    from gnats.resolver.directory import DirectoryResolver

    return DirectoryResolver(options, log, others)
