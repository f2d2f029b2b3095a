"""All commands in one application."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

import megalabel
from megalabel.cli import (
    EXIT_CODES,
    corpora,
    deciding,
    demonstration,
    evaluating,
    explaining,
    exporting,
    missing,
    output,
    planning,
    relabelling,
    reporting,
    shaping,
    tagging,
    training,
    vocabularies,
)

app = typer.Typer(
    help="Tag texts with the right few of thousands to millions of labels.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"megalabel {megalabel.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what is done.")] = False,
) -> None:
    """Options of every command."""
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    else:
        logging.basicConfig(level=logging.WARNING, handlers=[output.Noting()])


for command in (
    training.train,
    tagging.tag,
    explaining.explain,
    evaluating.evaluate,
    deciding.decide,
    reporting.report,
    shaping.merge,
    shaping.mix,
    shaping.prune,
    shaping.calibrate,
    exporting.export,
    corpora.info,
    corpora.convert,
    corpora.split,
    missing.propensities,
    planning.systems,
    planning.plan,
    demonstration.demo,
):
    app.command()(command)

app.add_typer(vocabularies.app, name="vocabulary")
app.add_typer(relabelling.app, name="labels")
