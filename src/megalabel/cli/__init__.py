"""The command line: `megalabel COMMAND`. Each command calls the library and shows the answer."""

from __future__ import annotations

import errno
import signal
import sys

EXIT_CODES = (
    "Exit codes: 0 done, 1 a fault in megalabel, 2 wrong usage or parameters, 3 bad data, "
    "4 bad model folder, 5 not enough memory or disk, 130 interrupted."
)


def main() -> None:
    """Run the command line; errors meant for people are shown as one line, without a traceback."""
    # a reader of our output that goes away ends us quietly, as it does other commands
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        run()
    except KeyboardInterrupt:  # while modules are still being loaded
        sys.exit(130)


def run() -> None:
    """Run the command line and turn errors into exit codes."""
    from megalabel import errors
    from megalabel.cli.app import app
    from megalabel.cli.output import complain

    try:
        app(prog_name="megalabel", standalone_mode=True)
    except (errors.ParameterError, errors.MissingExtraError) as error:
        sys.exit(complain(error, 2))
    except errors.StoreError as error:
        sys.exit(complain(error, 4))
    except errors.NotEnoughMemoryError as error:
        sys.exit(complain(error, 5))
    except errors.MegalabelError as error:
        sys.exit(complain(error, 3))
    except MemoryError:
        sys.exit(complain("out of memory; `megalabel plan` says what a job needs", 5))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            sys.exit(complain("the disk is full", 5))
        name = f"{error.filename}: " if error.filename else ""
        sys.exit(complain(f"{name}{error.strerror or error}", 3))
    except KeyboardInterrupt:
        sys.exit(complain("interrupted; nothing was written", 130))
