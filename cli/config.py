"""`refold config`: which settings this process would run with.

Law of this module: secrets are hidden, always; there is no option to show them.
"""

import json
from typing import Annotated

import typer

from refold.topics.settings import load_settings
from refold.topics.settings import show as shown

app = typer.Typer(no_args_is_help=True, help="Say which settings are in force.")


@app.callback()
def config() -> None:
    """Say which settings are in force."""


@app.command()
def show(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print every setting, from refold.toml and REFOLD_*, secrets hidden."""
    settings = dict(shown(load_settings()))
    if as_json:
        typer.echo(json.dumps(settings, indent=2))
        return
    for name, value in settings.items():
        typer.echo(f"{name} = {value}")
