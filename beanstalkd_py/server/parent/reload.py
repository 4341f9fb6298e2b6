"""Reads the options again and applies those that can change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from beanstalkd_py import errors
from beanstalkd_py.server.logging.setup import LOGGER, set_up_logging
from beanstalkd_py.server.option_changes import FIELDS, Changes, compare
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.parent.shard_folders import with_workers

Reread = Callable[[], ServeOptions]
"""Reads the options as at the start. Raises UsageError."""


class Reloader:
    """`options` are those in force."""

    def __init__(self, options: ServeOptions, reread: Reread | None) -> None:
        self.options = options
        self._reread = reread

    def reload(
        self, apply: Callable[[ServeOptions], None], check: Callable[[ServeOptions], None]
    ) -> Changes:
        """Read again, check and apply. Raises UsageError, and then changes nothing."""
        if self._reread is None:
            raise errors.UsageError("cannot reload: the server was started without a command line")
        try:
            # As many workers as the next start would choose, for a comparison.
            new = with_workers(self._reread())
        except errors.BinlogFolderError as error:
            raise errors.UsageError(str(error)) from error
        changes = compare(self.options, new)
        new_values = {FIELDS[name]: getattr(new, FIELDS[name]) for name in changes.applied}
        options = replace(self.options, **new_values)
        check(options)
        self.options = options
        set_up_logging(options.verbosity, options.log_format)
        apply(options)
        for name, value in changes.applied.items():
            LOGGER.info("reload: %s is %s now", name, value)
        for name, value in changes.waiting.items():
            LOGGER.warning("reload: %s %s needs a restart", name, value)
        return changes
