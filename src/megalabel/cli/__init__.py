"""The command line: `megalabel COMMAND`. Each command calls the library and shows the answer."""

from __future__ import annotations

import signal
import sys

EXIT_CODES = (
    "Exit codes: 0 done, 1 a fault in megalabel, 2 wrong usage or parameters or a place that "
    "cannot be written to, 3 bad data, 4 bad model folder, 5 not enough memory or disk, "
    "130 interrupted."
)


def main() -> None:
    """Run the command line; errors meant for people are shown as one line, without a traceback."""
    # a reader of our output that goes away ends us quietly, as it does other commands
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        run()
    except KeyboardInterrupt:
        from megalabel.cli.output import complain

        sys.exit(complain("interrupted", 130))


def run() -> None:
    """Run the command line and turn errors into exit codes."""
    from megalabel import errors
    from megalabel.cli.app import app
    from megalabel.cli.output import complain
    from megalabel.outputs import NO_ROOM, reason_of

    try:
        try:
            app(prog_name="megalabel", standalone_mode=True)
        except SystemExit as ended:
            if ended.code == 130:  # which typer makes of an interrupt
                raise KeyboardInterrupt from ended
            raise
        finally:
            if sys.stdout is not None:  # closed by who called
                sys.stdout.flush()  # so that an error of the last lines is one of ours
    except (errors.ParameterError, errors.MissingExtraError) as error:
        sys.exit(complain(error, 2))
    except errors.OutputError as error:
        sys.exit(complain(error, 5 if error.errno in NO_ROOM else 2))
    except errors.StoreError as error:
        sys.exit(complain(error, 4))
    except errors.NotEnoughMemoryError as error:
        sys.exit(complain(error, 5))
    except errors.MegalabelError as error:
        sys.exit(complain(error, 3))
    except MemoryError:
        sys.exit(complain("out of memory; `megalabel plan` says what a job needs", 5))
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        if error.errno in NO_ROOM:  # of a checkpoint, a file in /tmp or the output of the command
            sys.exit(complain(f"{name}{reason_of(error)}", 5))
        sys.exit(complain(f"{name}{error.strerror or error}", 3))
