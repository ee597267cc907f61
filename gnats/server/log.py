"""Make the log that a server's options configure: stderr, a file or syslog (log.go)."""

import os

from gnats.log.logger import Logger
from gnats.options.options import Options


def logs_somewhere(opts: Options) -> bool:
    """Whether the options name a log file or syslog, rather than stderr."""
    return bool(opts.log_file or opts.syslog or opts.remote_syslog)


def configure_logger(opts: Options) -> Logger:
    """Open the log that the options configure: a file, syslog, or stderr (in colours on a terminal).

    Raises ServerError when the file cannot be opened or syslog cannot be reached.
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
