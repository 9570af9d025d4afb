"""The contracts: names and limits, errors, envelopes, Avro schemas and their evolution."""
