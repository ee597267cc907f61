"""The log that a server's options ask for: stderr, a file or syslog (log.go)."""

import os

from gnats.log.logger import Logger
from gnats.options.options import Options


def logs_somewhere(opts: Options) -> bool:
    """Whether the options ask for another log than stderr."""
    return bool(opts.log_file or opts.syslog or opts.remote_syslog)


def configure_logger(opts: Options) -> Logger:
    """The log that the options ask for: a file, syslog, or stderr, in colours on a terminal.

    Raises ServerError when the file cannot be opened, or there is no syslog to speak to.
    """
    switches = {"debug": opts.debug, "trace": opts.trace, "logtime": opts.logtime, "utc": opts.logtime_utc}
    if opts.log_file:
        from gnats.log.file import FileLogger

        limit, files = opts.log_size_limit, opts.log_max_num
        return FileLogger(opts.log_file, size_limit=limit, max_num=files, **switches)
    if opts.syslog or opts.remote_syslog:
        from gnats.log.syslog import SyslogLogger

        return SyslogLogger(opts.remote_syslog, debug=opts.debug, trace=opts.trace)
    return Logger(lambda line: os.write(2, line), colors=os.isatty(2), **switches)
