"""What the client reports, in refold's own errors: away (tried again) or refused (a person acts).

Law of this module: a table from the client's codes to ours; it catches nothing and logs nothing.
"""

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from refold.schemas.errors import Code, ServerError

_REFUSALS: Final[dict[int, tuple[Code, str]]] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        Code.KAFKA_REFUSED,
        "Grant the rights that docs/security.md lists for this role.",
    ),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (
        Code.KAFKA_REFUSED,
        "Grant READ on the consumer group (docs/security.md).",
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        Code.KAFKA_REFUSED,
        "Grant the rights that docs/security.md lists for this role.",
    ),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        Code.KAFKA_REFUSED,
        "Grant WRITE and DESCRIBE on the transactional id prefix (docs/security.md).",
    ),
    KafkaError.SASL_AUTHENTICATION_FAILED: (
        Code.KAFKA_REFUSED,
        "Check user and password under [kafka] (sasl.username, sasl.password, sasl.mechanism).",
    ),
    KafkaError._AUTHENTICATION: (
        Code.KAFKA_REFUSED,
        "Check user and password under [kafka] (sasl.username, sasl.password, sasl.mechanism).",
    ),
    KafkaError._SSL: (
        Code.KAFKA_REFUSED,
        "Check the certificates and security.protocol under [kafka].",
    ),
    KafkaError.UNKNOWN_TOPIC_OR_PART: (Code.TOPIC_MISSING, "Run `refold topics create`."),
    KafkaError._UNKNOWN_TOPIC: (Code.TOPIC_MISSING, "Run `refold topics create`."),
    KafkaError._UNKNOWN_PARTITION: (Code.TOPIC_MISSING, "Run `refold topics check`."),
    KafkaError.POLICY_VIOLATION: (Code.KAFKA_REFUSED, "Ask the owner of the cluster."),
    KafkaError.INVALID_CONFIG: (Code.KAFKA_REFUSED, "Ask the owner of the cluster."),
    KafkaError.INVALID_REPLICATION_FACTOR: (
        Code.KAFKA_REFUSED,
        "Ask for no more replicas than there are brokers.",
    ),
}


def kafka_error(error: KafkaException | KafkaError, doing: str, **where: object) -> ServerError:
    """The error that a person sees for what the client reported.

    Args:
        error: As raised by, or handed over by, the client.
        doing: What was being done, as in "creating topic orders".
        where: Coordinates.
    """
    cause = error.args[0] if isinstance(error, KafkaException) else error
    code, cure = _REFUSALS.get(
        cause.code(), (Code.KAFKA_AWAY, "Check that the brokers of kafka.bootstrap answer.")
    )
    return ServerError(code, f"{doing}: {cause.name()}: {cause.str()}.", cure, **where)


def words(failure: BaseException) -> str:
    """What a failure says, without its full stop; a time-out says nothing by itself."""
    said = str(failure).strip(" .")
    if said:
        return said
    return "no answer in time" if isinstance(failure, TimeoutError) else type(failure).__name__
