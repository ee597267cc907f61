"""The keys of a configuration: readers that turn their values into options (opts.go)."""

from gnats.options.keys.apply import apply_config

__all__ = ["apply_config"]
