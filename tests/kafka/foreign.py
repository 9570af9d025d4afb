"""A producer that writes header names which are not UTF-8: librdkafka itself, by ctypes.

Such names are legal on the wire; Java cannot write them and confluent-kafka neither, others can.
"""

import ctypes
from pathlib import Path

import confluent_kafka

TOPIC, PARTITION, VALUE, KEY, HEADER, END = 1, 3, 4, 5, 9, 0
PRODUCER = 0


def library() -> ctypes.CDLL:
    """The librdkafka that confluent-kafka brings, or the system's where it was built against it."""
    root = Path(confluent_kafka.__file__).parent.parent
    found = sorted(root.glob("confluent_kafka.libs/librdkafka*"))
    rdkafka = ctypes.CDLL(str(found[0]) if found else "librdkafka.so.1")
    rdkafka.rd_kafka_conf_new.restype = ctypes.c_void_p
    rdkafka.rd_kafka_new.restype = ctypes.c_void_p
    rdkafka.rd_kafka_new.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t,
    ]  # fmt: skip
    rdkafka.rd_kafka_conf_set.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t,
    ]  # fmt: skip
    rdkafka.rd_kafka_flush.argtypes = [ctypes.c_void_p, ctypes.c_int]
    rdkafka.rd_kafka_destroy.argtypes = [ctypes.c_void_p]
    return rdkafka


def produce(bootstrap: str, topic: str, key: bytes, value: bytes, header_name: bytes) -> None:
    """Write one record with one header to partition 0."""
    rdkafka = library()
    said = ctypes.create_string_buffer(512)
    conf = rdkafka.rd_kafka_conf_new()
    assert rdkafka.rd_kafka_conf_set(conf, b"bootstrap.servers", bootstrap.encode(), said, 512) == 0
    producer = rdkafka.rd_kafka_new(PRODUCER, conf, said, 512)
    assert producer, said.value
    text, size, number = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
    error = rdkafka.rd_kafka_producev(
        ctypes.c_void_p(producer),
        number(TOPIC), text(topic.encode()),
        number(PARTITION), ctypes.c_int32(0),
        number(VALUE), text(value), size(len(value)),
        number(KEY), text(key), size(len(key)),
        number(HEADER), text(header_name), text(b"1"), ctypes.c_ssize_t(1),
        number(END),
    )  # fmt: skip
    assert error == 0
    assert rdkafka.rd_kafka_flush(producer, 20_000) == 0
    rdkafka.rd_kafka_destroy(producer)
