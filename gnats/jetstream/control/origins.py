"""The origins of a stream (stream.go): their start, changes and end, and their positions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from gnats.go.json import Json
from gnats.jetstream.control.sources import MIRROR, SOURCE, ConsumerNames, Origin, TargetStream
from gnats.jetstream.disk.sources_state import SourcesState, read_sources_state
from gnats.jetstream.settings.config import FILE, StreamConfig, StreamSource
from gnats.jetstream.stream.sourcing import last_sourced
from gnats.runtime.steps import in_slices


class Origins:
    """The origin of a mirror, or the origins of a stream's sources. Used from the loop's thread."""

    def __init__(self, stream: TargetStream) -> None:
        self.stream = stream
        self.mirror: Origin | None = None
        self.sources: dict[str, Origin] = {}
        self._names = ConsumerNames(stream)
        self._had_sources = False
        """Whether the file with the positions may still list sources that were removed."""
        self._begun = self._stopped = False
        self._changing = asyncio.Lock()

    @property
    def all(self) -> tuple[Origin, ...]:
        return (self.mirror, *self.sources.values()) if self.mirror else tuple(self.sources.values())

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Continue to copy messages from the last positions (setupSourceConsumers)."""
        async with self._changing:
            if self._stopped:
                return
            self._begun = True
            config = self.stream.config
            if config.mirror:
                self.mirror = Origin(self.stream, config.mirror, MIRROR, self._names)
                self.mirror.begin()
            await self._add_sources(config.sources)

    async def _add_sources(self, added: Iterable[StreamSource | None]) -> None:
        """Copy messages from more sources, from their last positions on."""
        sources: dict[str, Origin] = {}
        async for source in in_slices(added):
            if source:
                sources[source.index_name()] = Origin(self.stream, source, SOURCE, self._names)
        await self._find_positions(sources)
        self.sources |= sources
        async for origin in in_slices(sources.values()):
            if not self._stopped:  # stop() may have been called meanwhile
                origin.begin()

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
        async with self._changing:
            await self._update(old)

    async def _update(self, old: StreamConfig) -> None:
        self._had_sources = self._had_sources or bool(self.sources)
        stream = self.stream
        if old.mirror and not stream.config.mirror:
            if self.mirror:
                self.mirror.leave()
                self.mirror = None
            stream.native.answer_for("")
        elif stream.config.mirror and stream.config.mirror_direct != old.mirror_direct:
            stream.native.answer_for(stream.config.mirror.name if stream.config.mirror_direct else "")
        if not self._begun:
            return  # another server copies the messages
        wanted: dict[str, StreamSource] = {}
        names: dict[str, tuple[str, str]] = {}
        async for source in in_slices(stream.config.sources):
            if source:
                name = source.index_name()
                wanted[name] = source
                names[name] = source.header_name(), self._names.of(source, mirror=False)
        await self._leave_sources(names)
        await self._add_sources(source for name, source in wanted.items() if name not in self.sources)

    async def _leave_sources(self, names: dict[str, tuple[str, str]]) -> None:
        """Leave the sources, and begin those again whose consumers get other names.

        `names` are the wanted sources with the names of their streams and consumers.
        """
        kept = set(names.values())
        async for name, origin in in_slices(list(self.sources.items())):
            before = origin.source.header_name(), origin.consumer_name
            if names.get(name) == before or self._stopped:
                continue
            if before in kept:
                origin.stop()
            else:
                origin.leave()
            if name in names:
                origin.begin()
            else:
                del self.sources[name]

    async def reach(self) -> None:
        """Request the consumers that are missing: a server that was away may have the origins."""
        async for origin in in_slices(self.all):
            if not self._stopped:
                origin.reach()

    def stop(self) -> None:
        """Stop copying messages, for good. Idempotent."""
        self._stopped = True
        for origin in self.all:
            origin.stop()

    async def wind_down(self) -> None:
        """Stop copying messages, as stop(), and let the loop do other work meanwhile."""
        self._stopped = True
        async for origin in in_slices(self.all):
            origin.stop()

    # -- positions and information ---------------------------------------------------------------------------

    def state(self) -> SourcesState | None:
        """Return the sources' positions, to be written; None when there is nothing to write.

        A replicated stream's include messages that its group has not stored yet: the headers of its messages
        alone say where it goes on.
        """
        stream = self.stream
        if stream.config.storage != FILE or stream.replicated or not (self.sources or self._had_sources):
            return None
        self._had_sources = bool(self.sources)
        # Read the stamp before the positions: recovery searches the messages from the stamp on, so it also
        # finds those that are stored in between.
        stamp = stream.store.state().last_seq + 1
        positions = {name: origin.position() for name, origin in self.sources.items()}
        return SourcesState(stamp, {name: each for name, each in positions.items() if each[0]})

    def mirror_info(self) -> Json | None:
        """Describe the mirror's origin as responses do; None for another stream."""
        return self.mirror.info() if self.mirror else None

    def sources_info(self) -> list[Json]:
        """Describe each source as responses do."""
        return [origin.info() for origin in self.sources.values()]

    async def sources_info_in_slices(self) -> list[Json]:
        """Describe each source as responses do, and let the loop do other work meanwhile."""
        return [origin.info() async for origin in in_slices(list(self.sources.values()))]
