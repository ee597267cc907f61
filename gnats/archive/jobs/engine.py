"""Run the tasks of a job: in Spark, or in processes on this machine."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import cached_property
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gnats.archive.errors import ArchiveError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
POLL = 0.3
"""Seconds between two queries of Spark's progress."""

Done = Callable[[int], object]
"""Called with the number of completed tasks."""


class Engine(Protocol):
    """Runs a function for each task, and returns the results in the order of the tasks."""

    @property
    def parallelism(self) -> int: ...

    def run(self, function: Callable[[T], R], tasks: Sequence[T], done: Done) -> list[R]: ...

    def close(self) -> None: ...


class Inline:
    """Runs one task after the other in this process."""

    parallelism = 1

    def run(self, function: Callable[[T], R], tasks: Sequence[T], done: Done) -> list[R]:
        def results() -> Iterator[R]:
            for count, task in enumerate(tasks, 1):
                yield function(task)
                done(count)

        return list(results())

    def close(self) -> None:
        pass


def _end_with(lifeline: Connection) -> None:
    """End this process when the other end of a pipe is closed: by its parent, or by the parent's death.

    Otherwise it would wait for tasks for ever.
    """

    def watch() -> None:
        lifeline.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block Ctrl-C for threads and processes started in the context; the main thread gets it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Processes:
    """Runs tasks in processes on this machine. An exception ends them; the next run starts new ones."""

    def __init__(self, count: int | None = None) -> None:
        self.parallelism = count or len(os.sched_getaffinity(0))
        self._started: tuple[ProcessPoolExecutor, Connection, Connection] | None = None

    def _pool(self) -> ProcessPoolExecutor:
        if self._started is None:
            resource_tracker.ensure_running()  # now, because its start would unblock interrupts
            context = get_context("spawn")
            theirs, ours = context.Pipe(duplex=False)
            pool = ProcessPoolExecutor(
                self.parallelism, mp_context=context, initializer=_end_with, initargs=(theirs,)
            )
            self._started = pool, ours, theirs
        return self._started[0]

    def run(self, function: Callable[[T], R], tasks: Sequence[T], done: Done) -> list[R]:
        try:
            pool = self._pool()
            with _interrupts_held():
                futures = [pool.submit(function, task) for task in tasks]
            for count, _ in enumerate(as_completed(futures), 1):
                done(count)
            return [future.result() for future in futures]
        except BrokenProcessPool:
            self._end(at_once=True)
            raise ArchiveError("a process of the archive was ended from outside (out of memory?)") from None
        except BaseException:
            self._end(at_once=True)
            raise

    def _end(self, at_once: bool) -> None:
        if self._started is None:
            return
        pool, ours, theirs = self._started
        self._started = None
        if at_once:
            ours.close()
        pool.shutdown(cancel_futures=True)
        ours.close()
        theirs.close()

    def close(self) -> None:
        self._end(at_once=False)


@contextmanager
def _interrupts_ours() -> Iterator[None]:
    """Restore our handler of Ctrl-C: PySpark's calls the JVM, maybe in the middle of another call to it."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _interrupts_noted() -> Iterator[threading.Event]:
    """Set an event at Ctrl-C; raise only at a second one: Py4J's finalizers would swallow an exception."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        if noted.is_set():
            raise KeyboardInterrupt
        noted.set()
        with suppress(KeyboardInterrupt):
            if callable(before):
                before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


class Spark:
    """Runs tasks in a Spark session: the given one (spark-submit), or one that is started on first use."""

    def __init__(self, master: str | None = None, session: SparkSession | None = None) -> None:
        self._master = master
        self._own = session is None
        if session is not None:
            self.__dict__["session"] = session

    @cached_property
    def session(self) -> SparkSession:
        try:
            from pyspark.errors import PySparkException
            from pyspark.sql import SparkSession
        except ImportError:
            raise ArchiveError("PySpark is needed: pip install gnats[spark], or --engine processes") from None
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks need this Python's packages
        builder = SparkSession.builder.appName("gnats archive")
        if self._master:
            builder = builder.master(self._master)
        if (self._master or "").startswith("local"):
            builder = builder.config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        if "SPARK_CONF_DIR" not in os.environ and "SPARK_HOME" not in os.environ:
            logging = Path(__file__).parents[1] / "spark" / "log4j2.properties"
            builder = builder.config(
                "spark.driver.defaultJavaOptions", f"-Dlog4j2.configurationFile={logging.as_uri()}"
            )
        try:
            with _interrupts_held(), _interrupts_ours():
                session = builder.getOrCreate()
        except (PySparkException, OSError) as exc:
            raise ArchiveError(f"Spark does not start: {str(exc).partition(chr(10))[0]}") from None
        session.sparkContext.setLogLevel("ERROR")
        return session

    @property
    def parallelism(self) -> int:
        return int(self.session.sparkContext.defaultParallelism)

    def run(self, function: Callable[[T], R], tasks: Sequence[T], done: Done) -> list[R]:
        from py4j.protocol import Py4JError
        from pyspark import InheritableThread
        from pyspark.errors import PySparkException

        context = self.session.sparkContext
        group = f"gnats-archive-{uuid.uuid4().hex}"
        outcome: list[Any] = []
        over = threading.Event()

        def collect() -> None:
            try:
                context.setJobGroup(group, "gnats archive", interruptOnCancel=True)
                outcome.append(context.parallelize(list(tasks), len(tasks)).map(function).collect())
            except (Py4JError, PySparkException) as exc:
                outcome.append(exc)
            finally:
                over.set()

        thread = InheritableThread(target=collect)
        with _interrupts_noted() as interrupted:
            thread.start()
            try:
                while not over.wait(POLL) and not interrupted.is_set():
                    with suppress(Py4JError):  # the JVM is gone: the tasks report that, too
                        done(self._completed(group))
            finally:
                if not over.is_set():
                    with suppress(Py4JError):  # the same Ctrl-C may have ended the JVM
                        context.cancelJobGroup(group)
                thread.join()
                if interrupted.is_set():
                    raise KeyboardInterrupt
        if not outcome or isinstance(outcome[0], Exception):
            raise ArchiveError(f"Spark could not run the tasks: {_reason(outcome)}")
        done(len(tasks))
        results: list[R] = outcome[0]
        return results

    def _completed(self, group: str) -> int:
        tracker = self.session.sparkContext.statusTracker()
        stages = [
            tracker.getStageInfo(stage)
            for job in map(tracker.getJobInfo, tracker.getJobIdsForGroup(group))
            if job is not None
            for stage in job.stageIds
        ]
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)

    def close(self) -> None:
        if self._own and "session" in self.__dict__:
            from py4j.protocol import Py4JError

            with suppress(Py4JError):  # the JVM is gone
                self.session.stop()


def _reason(outcome: list[Any]) -> str:
    """Return the line of an error: of an exception in a task the one after the traceback, else the first."""
    if not outcome:
        return "it was interrupted"
    lines = str(outcome[0]).splitlines()
    own = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b", line)]
    return (own or lines)[-1 if own else 0]
