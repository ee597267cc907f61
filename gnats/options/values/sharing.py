"""Exports and imports between accounts, with their checks (accounts.go).

An Exchange knows the names and subjects of all accounts; gnats.accounts.accounts applies it to the accounts.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gnats.core.subjects.subject import (
    collide,
    has_wildcard,
    subset_match,
    valid_publish_subject,
    valid_subject,
)
from gnats.core.subjects.transform import SubjectTransform, transform_tokenize, transform_untokenize
from gnats.errors import OptionError
from gnats.go.text import quote
from gnats.options.values.accounts import (
    AccountConfig,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)

MAX_ACCOUNT_CYCLE_SEARCH_DEPTH = 1024
RESPONSE_THRESHOLD = 120.0
"""Seconds that a response may take when the export has no threshold."""

CheckActivation = Callable[[str, str, StreamImport | ServiceImport, str], bool]
"""Called with (importer, exporter, import, subject of the export): returns True if the import has a valid
activation token."""

Complain = Callable[[str, str, str], None]
"""Called for an item that was left out: account, kind of the item ("stream export"...), reason."""


def _destination(transform: SubjectTransform | None) -> str:
    return transform.dest.decode("utf-8", "surrogateescape") if transform else ""


@dataclass(frozen=True, slots=True)
class StreamRoute:
    """An imported stream: subscriptions to `to` receive messages of `subject` in the account `exporter`."""

    exporter: str
    subject: str
    to: str
    transform: SubjectTransform | None
    use_published: bool
    """True if messages keep their subject."""
    allow_trace: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        traced = "traced" if self.allow_trace else ""
        return self.exporter, self.subject, self.to, _destination(self.transform), traced


@dataclass(frozen=True, slots=True)
class ServiceRoute:
    """An imported service: requests to `subject` go to `to` in the account `exporter`.

    `export` is the subject of the export that allows it.
    """

    exporter: str
    subject: str
    to: str
    transform: SubjectTransform | None
    use_published: bool
    share: bool
    export: str

    @property
    def key(self) -> tuple[str, ...]:
        return self.exporter, self.subject, self.to, self.export, _destination(self.transform)


@dataclass(slots=True)
class Party:
    """The exports of one account, by subject, and its imports."""

    name: str
    stream_exports: dict[str, StreamExport] = field(default_factory=dict)
    service_exports: dict[str, ServiceExport] = field(default_factory=dict)
    stream_imports: list[StreamRoute] = field(default_factory=list)
    service_imports: list[ServiceRoute] = field(default_factory=list)

    def exports_service(self, subject: str) -> bool:
        """Check for a service export that covers all that `subject` matches."""
        return any(subset_match(subject, export) for export in self.service_exports)

    def exports_stream(self, subject: str) -> bool:
        """Check for a stream export that covers all that `subject` matches."""
        return any(subset_match(subject, export) for export in self.stream_exports)

    def service_export(self, subject: str) -> ServiceExport | None:
        """Return the export that covers a subject, or None."""
        export = self.service_exports.get(subject)
        if export is None:
            export = next((e for s, e in self.service_exports.items() if subset_match(subject, s)), None)
        return export


SYSTEM_EXPORTS = (
    ServiceExport("$SYS.REQ.ACCOUNT.*.CONNZ", account_token_position=4, response_type="stream"),
    ServiceExport("$SYS.REQ.ACCOUNT.*.STATZ", account_token_position=4, response_type="stream"),
    ServiceExport("$SYS.DEBUG.SUBSCRIBERS"),
    ServiceExport("$SYS.REQ.USER.*.INFO"),
)
"""The services that the system account exports to all accounts."""
JETSTREAM_API = "$JS.API.>"
"""The service that the system account exports for JetStream."""
JETSTREAM_INFO = "$JS.API.INFO"
_NO_IMPORT = "Error setting up system service import"


def system_imports(name: str, system: str) -> list[ServiceImport]:
    """Return the services that every account imports from the system account."""
    imports = []
    if name != system:
        for what, via in (("CONNZ", "ACCOUNT"), ("CONNZ", "SERVER"), ("STATZ", "ACCOUNT")):
            subject = f"$SYS.REQ.ACCOUNT.{name}.{what}"
            imports.append(ServiceImport(system, subject, f"$SYS.REQ.{via}.PING.{what}"))
    imports.append(ServiceImport(system, f"$SYS.REQ.USER.{name}.INFO", "$SYS.REQ.USER.INFO", share=True))
    return imports


class Exchange:
    """The exports and imports of all accounts. Errors are ValueErrors with nats-server's texts."""

    def __init__(self, check_activation: CheckActivation | None = None) -> None:
        self.parties: dict[str, Party] = {}
        self._check_activation = check_activation or (lambda importer, exporter, item, subject: False)

    def add_accounts(self, names: Iterable[str]) -> None:
        """Make accounts known by name, without exports and imports."""
        for name in names:
            self.parties.setdefault(name, Party(name))

    def steps(self) -> tuple[tuple[str, type, Callable[[str, Any], None]], ...]:
        """Return the kinds of items in the order of adding: name for errors, class, method that adds one."""
        return (
            ("stream export", StreamExport, self.add_stream_export),
            ("service export", ServiceExport, self.add_service_export),
            ("stream import", StreamImport, self.add_stream_import),
            ("service import", ServiceImport, self.add_service_import),
        )

    def add(self, configs: Iterable[AccountConfig], complain: Complain | None = None) -> None:
        """Add configured accounts: first the exports of all, then the imports.

        An item that is not valid is left out and given to `complain`; without `complain`, raises OptionError.
        """
        configs = list(configs)
        self.add_accounts(config.name for config in configs)
        for kind, cls, add in self.steps():
            for config in configs:
                for item in (*config.exports, *config.imports):
                    if isinstance(item, cls):
                        try:
                            add(config.name, item)
                        except ValueError as exc:
                            if complain:
                                complain(config.name, kind, str(exc))
                                continue
                            where = f"account {quote(config.name)}"
                            raise OptionError(
                                f"{where}: Error adding {kind} {quote(item.subject)}: {exc}"
                            ) from None

    def _party(self, name: str) -> Party:
        party = self.parties.get(name)
        if party is None:
            raise ValueError("account missing")
        return party

    # -- exports ---------------------------------------------------------------------------------------------

    def add_stream_export(self, name: str, export: StreamExport) -> None:
        """Add a stream export to an account. Raises ValueError."""
        self._check_export(export)
        self._party(name).stream_exports[export.subject] = export

    def add_service_export(self, name: str, export: ServiceExport) -> None:
        """Add a service export to an account. Raises ValueError."""
        self._check_export(export)
        party = self._party(name)
        if export.latency:
            if not 0 <= export.latency.sampling <= 100:
                raise ValueError("bad sampling percentage, should be 1-100")
            results = export.latency.subject
            if not valid_publish_subject(results) or party.exports_service(results):
                raise ValueError("invalid publish subject")
            if export.response_type != "singleton":
                raise ValueError("bad service response type")
        party.service_exports[export.subject] = export

    def _check_export(self, export: StreamExport | ServiceExport) -> None:
        position = export.account_token_position
        if position > 0:
            tokens = export.subject.split(".")
            if len(tokens) < position or tokens[position - 1] != "*":
                raise ValueError("invalid subject")
        for name in export.accounts or ():
            self._party(name)

    def _authorized(
        self,
        exports: dict[str, StreamExport] | dict[str, ServiceExport],
        importer: str,
        exporter: str,
        item: StreamImport | ServiceImport,
    ) -> bool:
        """Check that an export covers the import, and that the importing account may use it."""
        subject = item.subject
        if not valid_subject(subject):
            return False
        tokens: list[str] = []
        export = exports.get(subject)
        if export is None:
            tokens = subject.split(".")
            export = next((e for s, e in exports.items() if subset_match(subject, s)), None)
        if export is None:
            return False
        if position := export.account_token_position:
            return position <= len(tokens) and tokens[position - 1] == importer
        if export.accounts is None:
            return True
        return importer in export.accounts or (
            not export.accounts and self._check_activation(importer, exporter, item, export.subject)
        )

    # -- imports of streams ----------------------------------------------------------------------------------

    def add_stream_import(self, name: str, item: StreamImport) -> None:
        """Add a stream import to an account. Raises ValueError: not authorized, a cycle, a duplicate."""
        importer, exporter = self._party(name), self._party(item.account)
        if not self._authorized(exporter.stream_exports, name, item.account, item):
            raise ValueError("stream import not authorized")
        subject, to = item.subject, item.to or item.subject
        if item.prefix:
            if has_wildcard(item.prefix):
                raise ValueError("stream import prefix can not contain wildcard tokens")
            to = item.prefix.removesuffix(".") + "." + subject
        self._check_stream_cycles(exporter, to, {name})
        self._check_stream_cycles(exporter, subject, {name})
        transform = None
        if has_wildcard(subject) and to != subject:
            try:
                transform = SubjectTransform(subject, transform_tokenize(to), strict=True)
            except ValueError as exc:
                raise ValueError(
                    "failed to create mapping transform for stream import subject from"
                    f" {quote(subject)} to {quote(to)}: {exc}"
                ) from None
            to = transform_untokenize(to)[0].decode()
        if any((r.exporter, r.subject) == (item.account, subject) for r in importer.stream_imports):
            raise ValueError("stream import already exists")
        same = has_wildcard(subject) and transform is None
        importer.stream_imports.append(
            StreamRoute(item.account, subject, to, transform, same, item.allow_trace)
        )

    def _check_stream_cycles(self, party: Party, to: str, visited: set[str]) -> None:
        """Follow the imports of `party` that overlap `to`. Raises ValueError at a visited account."""
        if len(visited) >= MAX_ACCOUNT_CYCLE_SEARCH_DEPTH:
            raise ValueError("search cycle depth exhausted")
        if not party.exports_stream(to):
            return
        for route in party.stream_imports:
            if collide(to, route.to):
                if route.exporter in visited:
                    raise ValueError("import forms a cycle")
                visited.add(party.name)
                further = route.to if subset_match(route.to, to) else to
                self._check_stream_cycles(self._party(route.exporter), further, visited)

    # -- imports of services ---------------------------------------------------------------------------------

    def add_service_import(self, name: str, item: ServiceImport, *, internal: bool = False) -> None:
        """Add a service import to an account. An `internal` one needs no authorization. Raises ValueError."""
        importer, exporter = self._party(name), self._party(item.account)
        source, to = item.to or item.subject, item.subject
        if not valid_subject(source) or not valid_subject(to):
            raise ValueError("invalid subject")
        if not internal and not self._authorized(exporter.service_exports, name, item.account, item):
            raise ValueError("service import not authorized")
        heard = transform_untokenize(source)[0].decode() if has_wildcard(to) else source
        self._check_service_cycles(exporter, heard, {name})
        export = exporter.service_export(to)
        if export is None:
            raise ValueError("service missing")
        transform = None
        if has_wildcard(to) and to != source:
            to = transform_untokenize(to)[0].decode()
            try:
                # nats-server makes the transform from `to` to `source`, and reverses it
                back = SubjectTransform(to, transform_tokenize(source), strict=True)
                source = transform_untokenize(source)[0].decode()
                transform = back.reverse()
            except ValueError as exc:
                raise ValueError(
                    "failed to create mapping transform for service import subject from"
                    f" {quote(source)} to {quote(to)}: {exc}"
                ) from None
        for route in importer.service_imports:
            if (route.exporter, route.subject) == (item.account, source):
                raise ValueError(
                    f"duplicate service import subject {quote(source)}, previously used in import for account"
                    f" {quote(route.exporter)}, subject {quote(route.to)}"
                )
        same = has_wildcard(to) and transform is None
        importer.service_imports.append(
            ServiceRoute(item.account, source, to, transform, same, item.share, export.subject)
        )

    def _check_service_cycles(self, party: Party, source: str, visited: set[str]) -> None:
        """Follow the imports of `party` that overlap `source`. Raises ValueError at a visited account."""
        if len(visited) >= MAX_ACCOUNT_CYCLE_SEARCH_DEPTH:
            raise ValueError("search cycle depth exhausted")
        for route in party.service_imports:
            if collide(source, route.to):
                if route.exporter in visited:
                    raise ValueError("import forms a cycle")
                visited.add(party.name)
                further = route.subject if subset_match(route.subject, source) else source
                self._check_service_cycles(self._party(route.exporter), further, visited)

    def imports_service(self, name: str, exporter: str, subject: str) -> bool:
        """Check whether an account imports a service from `exporter` under `subject`."""
        routes = self.parties[name].service_imports
        return any((route.exporter, route.subject) == (exporter, subject) for route in routes)

    def remove(self, name: str) -> None:
        """Remove an account with its exports and imports."""
        self.parties.pop(name, None)

    # -- the system account ----------------------------------------------------------------------------------

    def add_system_exports(self, system: str) -> list[str]:
        """Export the services of the system account, and make all accounts import them.

        An export that the configuration has remains. Returns the texts of add_system_imports().
        """
        party = self._party(system)
        for export in SYSTEM_EXPORTS:
            if not party.exports_service(export.subject):
                self.add_service_export(system, export)
        return [text for name in self.parties for text in self.add_system_imports(name, system)]

    def add_jetstream(self, system: str, configured: Iterable[str], others: Iterable[str]) -> set[str]:
        """Make accounts import the JetStream API from the system account. Return the names of these accounts.

        `configured` accounts have JetStream. `others` do not: they import the API for its error answers,
        unless they import some account's API already. Raises ValueError.
        """
        party = self._party(system)
        if not party.exports_service(JETSTREAM_API):
            self.add_service_export(system, ServiceExport(JETSTREAM_API))
        names = set(configured)
        for name in others:
            routes = self.parties[name].service_imports
            if not any(subset_match(JETSTREAM_INFO, route.subject) for route in routes):
                names.add(name)
        names.discard(system)
        item = ServiceImport(system, JETSTREAM_API, JETSTREAM_API, share=True)
        for name in names:
            if not self.imports_service(name, system, JETSTREAM_API):
                self.add_service_import(name, item, internal=True)
        return names

    def add_system_imports(self, name: str, system: str) -> list[str]:
        """Make an account import the services of the system account. Return a log text for each failure.

        An import fails when the account's name is not a token of a valid subject.
        """
        problems = []
        for item in system_imports(name, system):
            what = f"{item.to} -> {item.subject} for account" if name != system else item.subject
            if not valid_subject(item.subject):
                problems.append(f"{_NO_IMPORT} {what}: sublist: invalid subject")
            elif not self.imports_service(name, system, item.to) and self._serves(system, item.subject):
                try:
                    self.add_service_import(name, item, internal=True)
                except ValueError as exc:
                    problems.append(f"{_NO_IMPORT} {what}: {exc}")
        return problems

    def _serves(self, exporter: str, subject: str) -> bool:
        return self.parties[exporter].service_export(subject) is not None
