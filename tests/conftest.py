"""Fixtures for all tests: the servers (see `refold.testing.servers`)."""

pytest_plugins = ["refold.testing.servers"]
