"""The entry point of `python -m beanstalkd_py` and of the script `beanstalkd-py`.

Starts a server without importing click if its command line is a common one.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from beanstalkd_py.server.options import ServeOptions

_SERVE = "serve"
_STDERR = 2
_INTERRUPTED = 130
"""As server.exits has it, which may be what cannot be imported any more."""
_GROUP_OPTIONS = ("--help", "--version")


def with_command(words: list[str]) -> list[str]:
    """Puts `serve` in front if the first word is an option of it."""
    is_serve = bool(words) and words[0].startswith("-") and words[0] not in _GROUP_OPTIONS
    return [_SERVE, *words] if is_serve else words


def have_standard_descriptors() -> None:
    """Opens what is closed of 0, 1 and 2, before anything else gets their numbers.

    A line for stderr would be written there otherwise, be it a binlog or shared memory.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def main() -> NoReturn:
    """Runs the command line of this process and exits."""
    try:
        _main()
    except KeyboardInterrupt:  # while modules are imported; commands handle their own
        sys.exit(_say("interrupted", _INTERRUPTED))


def _main() -> NoReturn:
    have_standard_descriptors()
    words = with_command(sys.argv[1:])
    if words[:1] == [_SERVE]:
        gc.disable()  # until all is imported: a collection would find nothing
        from beanstalkd_py.cli.server.fast_parse import fast_options

        options = fast_options(words[1:], os.environ)
        if options is not None:
            sys.exit(_serve(options, words[1:]))
        gc.enable()
    from beanstalkd_py.cli.main import main as run

    run()


def _serve(options: ServeOptions, words: list[str]) -> int:
    from beanstalkd_py import errors
    from beanstalkd_py.server.parent.start import serve
    from beanstalkd_py.server.process.exit_status import EXIT_INTERRUPTED, exit_status

    def reread() -> ServeOptions:
        from beanstalkd_py.cli.server.serve import read_again

        return read_again(words)

    def prepare_reread() -> None:
        import beanstalkd_py.cli.server.serve  # noqa: F401 - from now on an upgrade cannot replace it

    try:
        return serve(options, reread, prepare_reread)
    except errors.BeanstalkdError as error:
        return _say(str(error), exit_status(error))
    except KeyboardInterrupt:
        return _say("interrupted", EXIT_INTERRUPTED)


def _say(text: str, status: int) -> int:
    # Without an import, because the user that the server has become may not be able to read one.
    sys.stderr.write(f"beanstalkd-py: {text}\n")
    return status


if __name__ == "__main__":
    main()
