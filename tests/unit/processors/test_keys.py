"""Idempotency keys: golden vectors that must never change, and that no two can be equal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.processors.keys import action_part, compensate_key, derived_bytes, encoded, key_of
from refold.schemas.envelope import event_identity
from refold.schemas.errors import Code, UsageError
from refold.schemas.limits import KEY_BYTES

LONG = "".join(chr(0x4E00 + n) for n in range(42))  # 126 bytes of UTF-8, 378 encoded

GOLDEN = [
    (
        ("acme", "order", "order-1", "reserving", "Reserve", "/shop", "e1"),
        "r1:acme:order:order-1:reserving:Reserve:%2Fshop%1Fe1:forward",
    ),
    (  # delimiters inside ids
        ("acme", "order", "a:b/c|d%7C", "reserving", "Reserve", "https://x.y/z?q=1", "e:1"),
        "r1:acme:order:a%3Ab%2Fc%7Cd%257C:reserving:Reserve"
        ":https%3A%2F%2Fx.y%2Fz%3Fq%3D1%1Fe%3A1:forward",
    ),
    (  # the same state entered again by another event
        ("acme", "order", "order-1", "reserving", "Reserve", "/shop", "e2"),
        "r1:acme:order:order-1:reserving:Reserve:%2Fshop%1Fe2:forward",
    ),
    (  # a discriminator
        ("acme", "order", "order-1", "reserving", action_part("Reserve", "item 7"), "/shop", "e1"),
        "r1:acme:order:order-1:reserving:Reserve.item%207:%2Fshop%1Fe1:forward",
    ),
    (  # letters beyond ASCII
        ("acme", "order", "Bestellung-ä", "reserving", "Reserve", "/shop", "é"),
        "r1:acme:order:Bestellung-%C3%A4:reserving:Reserve:%2Fshop%1F%C3%A9:forward",
    ),
    (  # over-long ids
        ("acme", "order", LONG, "reserving", "Reserve", "/shop", "e1"),
        "r2:acme:order:%E4%B8%80%E4%B8%81%E4%B8%82%E4%B8%83%E4%B8%84%E4%B8%85%E4%B8%86%E4%B8%87"
        "%E4%B8%88%E4%B8%89%E4%B8%8A%E4%B8%8B%E4%B8%8C%E4%B8%8D%E4%B8%8E%E4%B8%8F%E4%B8%90%E4%B8%91"
        "%E4:"
        "c3116477743bd0a3ba1bf43a4476aa723c6b976ece5c4d00fb48b0a69b203ec0:forward",
    ),
]


@pytest.mark.parametrize(("parts", "key"), GOLDEN)
def test_a_golden_key_never_changes(parts: tuple[str, ...], key: str) -> None:
    assert key_of(*parts) == key


@pytest.mark.parametrize(("parts", "key"), GOLDEN)
def test_a_compensation_differs_from_its_action_in_the_last_part_only(
    parts: tuple[str, ...], key: str
) -> None:
    forward = key_of(*parts)
    undo = compensate_key(forward)
    assert undo.rpartition(":")[0] == forward.rpartition(":")[0]
    assert undo.endswith(":compensate")
    assert len(undo) <= KEY_BYTES


def test_a_compensation_of_a_compensation_is_refused() -> None:
    with pytest.raises(UsageError, match="is not the key of a forward action") as refused:
        compensate_key(compensate_key(key_of(*GOLDEN[0][0])))
    assert refused.value.code is Code.BAD_KEY


def test_a_key_whose_compensation_would_not_fit_is_a_digest_both_ways() -> None:
    fits = next(
        n for n in range(1, 300) if key_of("t", "w", "i" * n, "s", "a", "/s", "e")[:2] != "r1"
    )
    longest = key_of("t", "w", "i" * (fits - 1), "s", "a", "/s", "e")
    assert len(compensate_key(longest)) == KEY_BYTES
    assert key_of("t", "w", "i" * fits, "s", "a", "/s", "e").startswith("r2:")


NAMES = st.text("abz09_-", min_size=1, max_size=64)
IDS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=128
)
ACTIONS = st.tuples(NAMES, st.none() | IDS).map(lambda a: action_part(*a))
PARTS = st.tuples(NAMES, NAMES, IDS, NAMES, ACTIONS, IDS, IDS)


@given(PARTS, PARTS)
def test_two_actions_have_one_key_only_if_all_their_parts_are_equal(
    one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    assert (key_of(*one) == key_of(*other)) == (one == other)
    assert len(key_of(*one)) <= KEY_BYTES
    assert key_of(*one).isascii()


@given(IDS, IDS, IDS, IDS)
def test_a_delimiter_inside_an_id_moves_nothing_into_its_neighbour(
    instance: str, source: str, event: str, joint: str
) -> None:
    for mark in (":", "|", "/", "%1F", "%3A", joint):
        first = key_of("t", "w", instance + mark, "s", "a", source, event)
        moved = key_of("t", "w", instance, "s", "a", mark + source, event)
        again = key_of("t", "w", instance, "s", "a", source + mark, event)
        after = key_of("t", "w", instance, "s", "a", source, mark + event)
        assert len({first, moved, again, after}) == len(
            {(instance + mark, source, event), (instance, mark + source, event),
             (instance, source + mark, event), (instance, source, mark + event)}
        )  # fmt: skip


@given(IDS)
def test_encoding_leaves_unreserved_characters_only(text: str) -> None:
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%")
    assert set(encoded(text)) <= allowed


def test_derived_bytes_never_change() -> None:
    drawn = derived_bytes("acme", "order", "order-1", event_identity("/shop", "e1"), 0)
    assert drawn.hex() == "7b1c060ff7eb36af4f037edb6b93f201"
