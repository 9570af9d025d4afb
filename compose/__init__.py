"""refold.local: a real Kafka and a real PostgreSQL from Python packages, and the compose file."""
