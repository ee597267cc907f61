"""Where account JWTs come from (accounts.go): memory, a URL, directories."""

from gnats.options.options import Options
from gnats.resolver.base import Log, Resolver, SystemRequests

ACCOUNTS_PATH = "/accounts"
"""What follows an operator's account server URL."""


def build_resolver(
    opts: Options, account_server_url: str, log: Log, others: SystemRequests
) -> Resolver | None:
    """The resolver of the options or, when they have none, of the operator's URL. Raises ResolverError."""
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
