"""Messages for a replica that a snapshot has put behind."""

from gnats.core.accounts.account import Account
from gnats.jetstream.engine.engine import Engine, StreamBase
from gnats.jetstream.stream.stream import Stream

CATCHUP_ENDED: int
"""The number of an EV_JETSTREAM: no more comes, or is sent."""
CATCHUP_FAILED: int
"""The same; `failure` says why."""

class Catchup(StreamBase):
    """One end of it. For the control loop's thread."""

    messages: int
    """How many were sent, or stored."""

    def close(self) -> None:
        """Send or take no more. Idempotent."""
    @property
    def failure(self) -> str:
        """Why it has failed; empty when it has not."""

class CatchupSender(Catchup):
    """Send the messages from `first` to `last` to the inbox `to`; answers come below `ack_root`.

    `account` is the system account. CATCHUP_ENDED follows when all are sent. Raises MemoryError.
    """

    def __init__(
        self,
        engine: Engine,
        account: Account,
        stream: Stream,
        *,
        cid: int,
        to: bytes,
        ack_root: bytes,
        first: int,
        last: int,
    ) -> None: ...
    def start(self) -> None:
        """Send the first messages."""

class CatchupReceiver(Catchup):
    """Store the messages that come to `inbox` behind the last one of the stream.

    `account` is the system account. CATCHUP_ENDED follows at the end. Nothing else may store messages
    meanwhile. Raises MemoryError.
    """

    def __init__(
        self, engine: Engine, account: Account, stream: Stream, *, cid: int, inbox: bytes
    ) -> None: ...
