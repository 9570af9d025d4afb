import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.schemas.errors import InvariantViolation
from refold.topics.partition import VECTORS, murmur2, partition_of, prove_partitioner


@pytest.mark.parametrize(("key", "count", "partition"), VECTORS)
def test_a_key_is_where_librdkafka_puts_it(key: bytes, count: int, partition: int) -> None:
    assert partition_of(key, count) == partition


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_hash_is_the_one_of_kafkas_own_test(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


def test_the_keys_that_tell_murmur2_from_crc32_are_told_apart_b001() -> None:
    assert partition_of(b"order-1001", 12) == 6  # CRC32 says 9
    assert partition_of(b"TT0124", 15) == 10  # CRC32 says 9


def test_another_partitioner_does_not_pass_the_proof() -> None:
    prove_partitioner()
    with pytest.raises(InvariantViolation, match="TT0124"):
        prove_partitioner(lambda key, count: sum(key) % count)


@given(st.binary(min_size=1, max_size=200), st.integers(1, 10_000))
def test_every_key_has_a_partition_of_the_topic(key: bytes, count: int) -> None:
    assert 0 <= partition_of(key, count) < count
