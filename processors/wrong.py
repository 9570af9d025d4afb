"""How a check tells what is wrong with a definition.

Law of this module: one sentence with the workflow, one with the cure, and the coordinates.
"""

from refold.processors.spec import Spec
from refold.schemas.errors import Code, DefinitionError


def wrong(spec: Spec, what: str, cure: str, **where: object) -> DefinitionError:
    """The error about a definition: what does not hold, and the cure."""
    return DefinitionError(
        Code.DEFINITION_INVALID, f"{spec.name} version {spec.version}: {what}.", cure, **where
    )
