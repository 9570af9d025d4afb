"""The log: topic specifications, partitioning, record format, publishing and commands."""
