"""The same jobs in other systems, each in an environment of its own."""
