"""An agent: it thinks, acts and observes, within bounds, and asks people where it must."""

from refold.examples.agent.graph import agent

__all__ = ["agent"]
