"""The entry point of `python -m beanstalkd_py` and of the script `beanstalkd-py`.

Starts a server with a common command line without the slow import of click.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # avoids the slow import of typing before main() handles Ctrl-C
if TYPE_CHECKING:
    from typing import NoReturn

    from beanstalkd_py.server.options import ServeOptions

_SERVE = "serve"
_INTERRUPTED = 130
"""The value of EXIT_INTERRUPTED, whose import Ctrl-C may interrupt."""


def main() -> NoReturn:
    try:
        _main()
    except KeyboardInterrupt:  # only during the first imports, because commands handle it
        sys.exit(_fail("interrupted", _INTERRUPTED))


def _main() -> NoReturn:
    from beanstalkd_py.cli.startup import (
        exiting_on_interrupt,
        open_standard_descriptors,
        with_command,
    )

    open_standard_descriptors()
    words = with_command(sys.argv[1:])
    if words[:1] == [_SERVE]:
        gc.disable()  # because garbage collections during imports free nothing
        with exiting_on_interrupt():
            from beanstalkd_py.cli.server.fast_parse import fast_options

        options = fast_options(words[1:], os.environ)
        if options is not None:
            sys.exit(_serve(options))
        gc.enable()
    with exiting_on_interrupt():
        from beanstalkd_py.cli.main import main as run

    run()


def _serve(options: ServeOptions) -> int:
    from beanstalkd_py.cli.startup import exiting_on_interrupt

    with exiting_on_interrupt():
        from beanstalkd_py import errors
        from beanstalkd_py.server.parent.start import serve
        from beanstalkd_py.server.process.exit_status import EXIT_INTERRUPTED, exit_status

    try:
        # Without a file and variables a reload reads the same options.
        return serve(options, lambda: options)
    except errors.BeanstalkdError as error:
        return _fail(str(error), exit_status(error))
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)


def _fail(text: str, status: int) -> int:
    # Imports nothing, because the user of -u may be unable to read modules.
    sys.stderr.write(f"beanstalkd-py: {text}\n")
    return status


if __name__ == "__main__":
    main()
