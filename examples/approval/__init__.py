"""A decision that people make: asked, reminded of, escalated, and on the log with their names."""

from refold.examples.approval.graph import approval

__all__ = ["approval"]
