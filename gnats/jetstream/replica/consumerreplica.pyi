"""The log of a consumer with replicas: its Raft group."""

from gnats.jetstream.consumer.consumer import Consumer
from gnats.jetstream.replica.raftnode import RaftNode
from gnats.jetstream.settings.config import ConsumerConfig
from gnats.jetstream.stream.stream import Stream

class ConsumerReplica:
    """Keep what a Raft group has decided about a consumer.

    It puts the group behind the Consumer that delivers. Call join() before node.recover().
    """

    node: RaftNode
    stream: Stream
    name: str

    def __init__(self, stream: Stream, name: str, config: ConsumerConfig) -> None: ...
    def join(self, node: RaftNode) -> None:
        """Carry out what a group decides. Call it once."""
    def close(self) -> None:
        """Leave the stream's list. Close the node before."""
    def configure(self, config: ConsumerConfig) -> None:
        """Apply a changed configuration."""
    def lead(self, consumer: Consumer, term: int) -> bool:
        """Have a Consumer deliver in a term, which was made with state(), and is not started.

        False: this server does not lead in that term any more. Raises MemoryError.
        """
    def follow(self) -> None:
        """Forget the Consumer. Call it before that is closed. Idempotent."""
    def propose_reset(self, seq: int, reply: bytes) -> bool:
        """Have the Consumer begin anew at a stream sequence, and propose that. False: none delivers here.

        Raises MemoryError.
        """
    def reset(self, seq: int) -> None:
        """Apply a reset that the group has decided: begin anew at a stream sequence."""
    def forget_unneeded(self) -> None:
        """Have the stream remove messages that no consumer is interested in any more.

        After this consumer was deleted or its filter has changed, if this server decides about that. Any
        thread.
        """
    def check_state_for_interest_stream(self) -> None:
        """Have the stream remove what was acknowledged, if this server decides about that. Any thread."""
    def state(self) -> bytes | None:
        """Return what the group has decided, as an o.dat, unsealed; None: nothing yet. Raises MemoryError."""
    def snapshot(self, first: int) -> tuple[int, bytes]:
        """Return the last index that is applied, and the state without messages below `first`.

        Any thread. Raises MemoryError.
        """
    def restore(self, data: bytes) -> None:
        """Become what a snapshot says. Raises ValueError, MemoryError."""
