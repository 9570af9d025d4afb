"""`refold explain`: the page of an error code, where there is no repository at hand.

Law of this module: shows what ships with the package, word for word; a terminal gets it set, a
pipe gets the Markdown.
"""

import re
from importlib import resources
from typing import Annotated, Final

import typer
from rich.markdown import Markdown

from refold.cli import telling
from refold.schemas.errors import Code, unknown

app = typer.Typer()

INDEX: Final = "README"
"""The page that lists every code with one line."""
_TO_PAGE: Final = re.compile(r"\[([^\]]+)\]\(([A-Z_]+)\.md[^)]*\)")
_TO_DOCS: Final = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([\w./-]+\.md)[^)]*\)")


@app.command("explain")
def explain(
    code: Annotated[
        str, typer.Argument(metavar="CODE", help="Error code; without it all are listed.")
    ] = "",
) -> None:
    """Say what an error code means, what is safe, and what to do."""
    text = page(code.upper())
    if telling.out.is_terminal:
        telling.out.print(Markdown(text, hyperlinks=False))
    else:
        typer.echo(text)


def page(code: str) -> str:
    """The page of a code, or the list of all for an empty one; links are told in words.

    Raises:
        UsageError: NOT_FOUND, there is no such code.
    """
    if code and code not in set(Code):
        raise unknown("error code", code, "in this release", Code)
    file = resources.files("refold.pages") / f"{code or INDEX}.md"
    text = file.read_text(encoding="utf-8").rstrip()
    text = _TO_PAGE.sub(
        lambda link: link[1] if link[1] == link[2] else f"{link[1]} ({link[2]})", text
    )
    return _TO_DOCS.sub(r"\1 (docs/\2)", text)
