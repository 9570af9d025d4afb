"""An incident of a service desk: waits, updates, reopening, and people told once."""

from refold.examples.incident.graph import incident

__all__ = ["incident"]
