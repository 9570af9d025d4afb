"""Small laws of the command line that need no server."""

from tests.unit.processors.cases import graph

from refold.cli.rejected import Kept
from refold.cli.telling import tenant_of
from refold.processors.definition import Workflow
from refold.schemas.verdicts import DECIDED


def test_the_verdicts_that_can_be_chosen_are_those_that_are_kept() -> None:
    assert {each.value for each in Kept} == {each.value for each in DECIDED}


def test_the_tenant_is_the_one_given_else_the_definitions_else_default() -> None:
    plain, shop = graph(), graph()
    shop.spec.tenant = "shop"
    assert tenant_of("given", Workflow("case", [shop.build()])) == "given"
    assert tenant_of("", Workflow("case", [shop.build()])) == "shop"
    assert tenant_of("", Workflow("case", [plain.build()])) == "default"
