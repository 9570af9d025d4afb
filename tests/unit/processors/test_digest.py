"""Rolling digests: what a successor compares does not depend on how records came in batches."""

from hypothesis import given
from hypothesis import strategies as st

from refold.processors.digest import (
    BLOCK_RECORDS,
    Committed,
    beginning,
    committed,
    unpacked,
)

ENTRIES = st.lists(st.text(st.characters(codec="ascii", exclude_characters="\n")), max_size=300)


@given(ENTRIES, st.lists(st.integers(1, 90), max_size=20))
def test_batch_boundaries_do_not_change_the_digest(entries: list[str], sizes: list[int]) -> None:
    whole = beginning("T").fold.extended(entries)

    pieces, at = beginning("T").fold, 0
    for size in sizes:
        pieces, at = pieces.extended(entries[at : at + size]), at + size
    pieces = pieces.extended(entries[at:])

    assert whole == pieces
    assert whole.value() == pieces.value()


@given(ENTRIES.filter(bool), st.data())
def test_one_other_decision_changes_the_digest(entries: list[str], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(entries) - 1))
    other = [*entries]
    other[place] += "!"

    first, second = (beginning("T").fold.extended(each).value() for each in (entries, other))

    assert first != second


def test_another_log_begins_with_another_digest() -> None:
    assert beginning("T1").fold.value() != beginning("T2").fold.value()


def test_the_open_block_travels_with_the_row() -> None:
    digests = beginning("T")
    digests = type(digests)(digests.fold.extended(["1 a"] * (BLOCK_RECORDS + 7)), digests.command)

    again = unpacked(digests.packed())

    assert again == digests
    assert len(again.fold.open) == 7


def test_metadata_of_ours_is_read_back_and_anything_else_is_not_ours() -> None:
    text = beginning("T").metadata(7)

    found = committed(text)

    assert isinstance(found, Committed)
    assert found.epoch == 7
    for foreign in (None, "", "refold1;x;a;b", "refold2;7;a;b", "moved by kafka-consumer-groups"):
        assert committed(foreign) is None


def test_the_digest_is_the_one_that_was_published() -> None:
    """Golden: successors of another release compare it."""
    digest = beginning("topic-id").fold.extended([f"{offset} a" for offset in range(100)])

    assert digest.value() == "4435595fabe31d3e0f60dc8aea8ad691"
