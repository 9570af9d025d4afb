"""refold: event-sourced stream processing for workflows on Kafka and PostgreSQL."""

__version__ = "0.1.0"
