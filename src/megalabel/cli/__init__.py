"""The command line: `megalabel COMMAND`. Each command calls the library and shows the answer."""

from __future__ import annotations

import os
import sys

EXIT_CODES = (
    "Exit codes: 0 done, 1 a fault in megalabel, 2 wrong usage or parameters, 3 bad data, "
    "4 bad model folder, 5 not enough memory, 130 interrupted."
)


def main() -> None:
    """Run the command line; errors meant for people are shown as one line, without a traceback."""
    # imported here so that a shell asking for completions gets them quickly
    from megalabel import errors
    from megalabel.cli.app import app
    from megalabel.cli.output import complain

    try:
        app(prog_name="megalabel", standalone_mode=True)
    except (errors.ParameterError, errors.MissingExtraError) as error:
        sys.exit(complain(error, 2))
    except errors.StoreError as error:
        sys.exit(complain(error, 4))
    except errors.MegalabelError as error:
        sys.exit(complain(error, 3))
    except MemoryError:
        sys.exit(complain("out of memory; `megalabel plan` says what a job needs", 5))
    except KeyboardInterrupt:
        sys.exit(complain("interrupted", 130))
    except BrokenPipeError:
        # the reader of our output has gone: not an error, and nothing more can be said
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
