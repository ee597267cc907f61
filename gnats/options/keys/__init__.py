"""The keys of a configuration: from what was written to options (opts.go)."""

from gnats.options.keys.apply import apply_config

__all__ = ["apply_config"]
