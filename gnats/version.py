"""The versions (const.go) of gnats and of the nats-server whose behaviour it has: clients look at that."""

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
"""nats-server's, with the values they have there unless the configuration changes them."""
SETTABLE_FLAGS = frozenset({"js_ack_fc_v2"})
"""Those that may have another value here."""


def feature_flags(configured: dict[str, bool]) -> dict[str, bool]:
    """All that are known, with their values (getMergedFeatureFlags)."""
    return FEATURE_FLAGS | {name: value for name, value in configured.items() if name in FEATURE_FLAGS}
