"""The versions of gnats and of the nats-server that it behaves as, and feature flags (const.go)."""

import sys

__version__ = "0.1.0"
NATS_VERSION = "2.15.1"
PROTO = 1
JS_API_LEVEL = 5
RUNTIME = "python" + ".".join(map(str, sys.version_info[:3]))
FEATURE_FLAGS = {
    "js_ack_fc_v2": False,
    "js_api_reply_v2": False,
    "js_raft_delete_range": True,
    "js_snapshot_sources": False,
}
"""nats-server's feature flags with their defaults."""
SETTABLE_FLAGS = frozenset({"js_ack_fc_v2"})
"""The flags that the configuration may change in gnats."""


def feature_flags(configured: dict[str, bool]) -> dict[str, bool]:
    """Return all known flags with their values (getMergedFeatureFlags)."""
    return FEATURE_FLAGS | {name: value for name, value in configured.items() if name in FEATURE_FLAGS}
