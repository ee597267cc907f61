"""The streams that a stream takes messages from (stream.go): found again, begun, changed, stopped."""

from __future__ import annotations

import asyncio

from gnats.go.json import Json
from gnats.jetstream.control.sources import Mirror, Origin, Source, TargetStream, consumer_name
from gnats.jetstream.disk.sources_state import SourcesState, read_sources_state
from gnats.jetstream.settings.config import FILE, StreamConfig
from gnats.jetstream.stream.sourcing import last_sourced


class Origins:
    """What a stream is a mirror of, or its sources. Used from the loop's thread."""

    def __init__(self, stream: TargetStream) -> None:
        self.stream = stream
        self.mirror: Mirror | None = None
        self.sources: dict[str, Source] = {}
        self._had_sources = False
        """Something may be written down about sources."""
        self._stopped = False

    @property
    def all(self) -> tuple[Origin, ...]:
        return (self.mirror, *self.sources.values()) if self.mirror else tuple(self.sources.values())

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take messages from where it was left (setupSourceConsumers)."""
        config = self.stream.config
        if config.mirror:
            self.mirror = Mirror(self.stream, config.mirror)
            self.mirror.begin()
        sources = [Source(self.stream, source) for source in config.sources if source]
        self.sources = {source.source.index_name(): source for source in sources}
        await self._find_positions(self.sources)
        self._begin(self.sources)

    async def _find_positions(self, sources: dict[str, Source]) -> None:
        """Find out how far sources have come: as was written down, and by the headers of later messages."""
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
        """The stream has another configuration (updateWithAdvisory); a mirror may be one no more."""
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
        new = {name: Source(stream, source) for name, source in wanted.items() if name not in self.sources}
        await self._find_positions(new)
        self.sources |= new
        self._begin(new)

    def _begin(self, sources: dict[str, Source]) -> None:
        if not self._stopped:  # while their positions were looked for
            for origin in sources.values():
                origin.begin()

    def stop(self) -> None:
        """Take no more, for good. Idempotent."""
        self._stopped = True
        for origin in self.all:
            origin.stop()

    # -- what is written down --------------------------------------------------------------------------------

    def state(self) -> SourcesState | None:
        """How far the sources have come; None where that is not written down."""
        if self.stream.config.storage != FILE or not (self.sources or self._had_sources):
            return None
        self._had_sources = bool(self.sources)
        # Before the positions are asked for: messages that come in between are found behind it.
        stamp = self.stream.store.state().last_seq + 1
        positions = {name: origin.position() for name, origin in self.sources.items()}
        return SourcesState(stamp, {name: each for name, each in positions.items() if each[0]})

    # -- what is told ----------------------------------------------------------------------------------------

    def mirror_info(self) -> Json | None:
        """How far a mirror is."""
        return self.mirror.info() if self.mirror else None

    def sources_info(self) -> list[Json]:
        """How far each of the sources is."""
        return [origin.info() for origin in self.sources.values()]
