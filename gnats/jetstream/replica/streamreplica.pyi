"""The log of a replicated stream: its Raft group."""

from gnats.jetstream.replica.raftnode import RaftNode
from gnats.jetstream.stream.stream import Stream

class StreamReplica:
    """Put a Raft group behind a stream: messages are stored when the group has committed them.

    Make it before node.recover(). The stream may be subscribed while this server leads.
    """

    node: RaftNode
    stream: Stream
    refused: int
    """Messages that the group has committed, and that were not stored."""

    def __init__(self, stream: Stream, node: RaftNode) -> None: ...
    def close(self) -> None:
        """Take the log away from the stream again. Close the node before."""
    def set_refused(self, refused: int) -> None:
        """Take over how many messages were refused up to a snapshot."""
    def decide(self) -> None:
        """While this server leads, decide which messages no consumer needs: all assigned ones are here."""
    @property
    def waiting(self) -> int:
        """The number of messages that are proposed, and not stored."""
