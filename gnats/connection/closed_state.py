"""The reasons for which connections are closed (monitor.go), in nats-server's order and with its texts."""

from enum import IntEnum


class ClosedState(IntEnum):
    """A reason for closing; `str()` returns its text in connz and in the log."""

    CLIENT_CLOSED = 1
    AUTHENTICATION_TIMEOUT = 2
    AUTHENTICATION_VIOLATION = 3
    TLS_HANDSHAKE_ERROR = 4
    SLOW_CONSUMER_PENDING_BYTES = 5
    SLOW_CONSUMER_WRITE_DEADLINE = 6
    WRITE_ERROR = 7
    READ_ERROR = 8
    PARSE_ERROR = 9
    STALE_CONNECTION = 10
    PROTOCOL_VIOLATION = 11
    BAD_CLIENT_PROTOCOL_VERSION = 12
    WRONG_PORT = 13
    MAX_ACCOUNT_CONNECTIONS_EXCEEDED = 14
    MAX_CONNECTIONS_EXCEEDED = 15
    MAX_PAYLOAD_EXCEEDED = 16
    MAX_CONTROL_LINE_EXCEEDED = 17
    MAX_SUBSCRIPTIONS_EXCEEDED = 18
    DUPLICATE_ROUTE = 19
    ROUTE_REMOVED = 20
    SERVER_SHUTDOWN = 21
    AUTHENTICATION_EXPIRED = 22
    WRONG_GATEWAY = 23
    MISSING_ACCOUNT = 24
    REVOCATION = 25
    INTERNAL_CLIENT = 26
    MSG_HEADER_VIOLATION = 27
    NO_RESPONDERS_REQUIRES_HEADERS = 28
    CLUSTER_NAME_CONFLICT = 29
    DUPLICATE_REMOTE_LEAFNODE_CONNECTION = 30
    DUPLICATE_CLIENT_ID = 31
    DUPLICATE_SERVER_NAME = 32
    MINIMUM_VERSION_REQUIRED = 33
    CLUSTER_NAMES_IDENTICAL = 34
    KICKED = 35
    PROXY_NOT_TRUSTED = 36
    PROXY_REQUIRED = 37

    def __str__(self) -> str:
        return _TEXTS.get(self, self.name.replace("_", " ").title())


_TEXTS = {
    ClosedState.AUTHENTICATION_VIOLATION: "Authentication Failure",
    ClosedState.TLS_HANDSHAKE_ERROR: "TLS Handshake Failure",
    ClosedState.SLOW_CONSUMER_PENDING_BYTES: "Slow Consumer (Pending Bytes)",
    ClosedState.SLOW_CONSUMER_WRITE_DEADLINE: "Slow Consumer (Write Deadline)",
    ClosedState.WRONG_PORT: "Incorrect Port",
    ClosedState.MAX_PAYLOAD_EXCEEDED: "Maximum Message Payload Exceeded",
    ClosedState.MAX_CONTROL_LINE_EXCEEDED: "Maximum Control Line Exceeded",
    ClosedState.MAX_ACCOUNT_CONNECTIONS_EXCEEDED: "Maximum Account Connections Exceeded",
    ClosedState.MAX_CONNECTIONS_EXCEEDED: "Maximum Connections Exceeded",
    ClosedState.MAX_SUBSCRIPTIONS_EXCEEDED: "Maximum Subscriptions Exceeded",
    ClosedState.REVOCATION: "Credentials Revoked",
    ClosedState.MSG_HEADER_VIOLATION: "Message Header Violation",
    ClosedState.DUPLICATE_REMOTE_LEAFNODE_CONNECTION: "Duplicate Remote LeafNode Connection",
    ClosedState.DUPLICATE_CLIENT_ID: "Duplicate Client ID",
}


def count_by_kind(total: int, routes: int = 0, gateways: int = 0, leafs: int = 0) -> dict[str, int]:
    """Return the number of closed connections by kind (SlowConsumersStats): those of links, and clients."""
    clients = max(total - routes - gateways - leafs, 0)
    return {"clients": clients, "routes": routes, "gateways": gateways, "leafs": leafs}
