"""What a poller lends to its connections."""

from gnats.core.runtime.inbox import Inbox
from gnats.core.runtime.state import ServerState

class PollerBase:
    @property
    def inbox(self) -> Inbox: ...
    @property
    def state(self) -> ServerState: ...
