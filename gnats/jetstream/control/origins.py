"""The origins of a stream (stream.go): their start, changes and end, and their positions."""

from __future__ import annotations

import asyncio

from gnats.go.json import Json
from gnats.jetstream.control.sources import MIRROR, SOURCE, Origin, TargetStream, consumer_name
from gnats.jetstream.disk.sources_state import SourcesState, read_sources_state
from gnats.jetstream.settings.config import FILE, StreamConfig
from gnats.jetstream.stream.sourcing import last_sourced


class Origins:
    """The origin of a mirror, or the origins of a stream's sources. Used from the loop's thread."""

    def __init__(self, stream: TargetStream) -> None:
        self.stream = stream
        self.mirror: Origin | None = None
        self.sources: dict[str, Origin] = {}
        self._had_sources = False
        """Whether the file with the positions may still list sources that were removed."""
        self._stopped = False

    @property
    def all(self) -> tuple[Origin, ...]:
        return (self.mirror, *self.sources.values()) if self.mirror else tuple(self.sources.values())

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Continue to copy messages from the last positions (setupSourceConsumers)."""
        config = self.stream.config
        if config.mirror:
            self.mirror = Origin(self.stream, config.mirror, MIRROR)
            self.mirror.begin()
        sources = [Origin(self.stream, source, SOURCE) for source in config.sources if source]
        self.sources = {source.source.index_name(): source for source in sources}
        await self._find_positions(self.sources)
        self._begin(self.sources)

    async def _find_positions(self, sources: dict[str, Origin]) -> None:
        """Find the sources' positions: in their file, and in the headers of messages stored after it."""
        if not sources:
            return
        stream, known = self.stream, SourcesState(0, {})
        if stream.config.storage == FILE:
            known = await asyncio.to_thread(read_sources_state, stream.directory, self._warn)
        wanted = [
            (origin.source.header_name(), name, known.stamp if name in known.positions else 0)
            for name, origin in sources.items()
        ]
        found = await asyncio.to_thread(last_sourced, stream.store, wanted)
        for name, origin in sources.items():
            if position := found.get(name) or known.positions.get(name):
                origin.sseq, origin.identity = position
                origin.stored = origin.sseq

    def _warn(self, text: str) -> None:
        shared = self.stream.jsa.shared
        name = f"{self.stream.jsa.name} > {self.stream.name}"
        shared.loop.call_soon_threadsafe(shared.log.warn, f"Stream '{name}': {text}")

    async def update(self, old: StreamConfig) -> None:
        """Apply the stream's changed configuration (updateWithAdvisory); a mirror may become a stream."""
        self._had_sources = self._had_sources or bool(self.sources)
        stream = self.stream
        if self.mirror and not stream.config.mirror:
            self.mirror.leave()
            self.mirror = None
            stream.native.answer_for("")
        elif stream.config.mirror and stream.config.mirror_direct != old.mirror_direct:
            stream.native.answer_for(stream.config.mirror.name if stream.config.mirror_direct else "")
        wanted = {source.index_name(): source for source in stream.config.sources if source}
        names = {
            name: (source.header_name(), consumer_name(stream, source, mirror=False))
            for name, source in wanted.items()
        }
        for name, origin in list(self.sources.items()):
            before = origin.source.header_name(), origin.consumer_name
            if names.get(name) == before:
                continue
            if before in names.values():
                origin.stop()
            else:
                origin.leave()
            if name in wanted:
                origin.begin()
            else:
                del self.sources[name]
        new = {
            name: Origin(stream, source, SOURCE)
            for name, source in wanted.items()
            if name not in self.sources
        }
        await self._find_positions(new)
        self.sources |= new
        self._begin(new)

    def _begin(self, sources: dict[str, Origin]) -> None:
        if not self._stopped:  # stop() may have been called during _find_positions
            for origin in sources.values():
                origin.begin()

    def stop(self) -> None:
        """Stop copying messages, for good. Idempotent."""
        self._stopped = True
        for origin in self.all:
            origin.stop()

    # -- positions and information ---------------------------------------------------------------------------

    def state(self) -> SourcesState | None:
        """Return the sources' positions, to be written; None when there is nothing to write."""
        if self.stream.config.storage != FILE or not (self.sources or self._had_sources):
            return None
        self._had_sources = bool(self.sources)
        # Read the stamp before the positions: recovery searches the messages from the stamp on, so it also
        # finds those that are stored in between.
        stamp = self.stream.store.state().last_seq + 1
        positions = {name: origin.position() for name, origin in self.sources.items()}
        return SourcesState(stamp, {name: each for name, each in positions.items() if each[0]})

    def mirror_info(self) -> Json | None:
        """Describe the mirror's origin as responses do; None for another stream."""
        return self.mirror.info() if self.mirror else None

    def sources_info(self) -> list[Json]:
        """Describe each source as responses do."""
        return [origin.info() for origin in self.sources.values()]
