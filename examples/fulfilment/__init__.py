"""An order that is paid, fulfilled and told about, or undone: every step has its accident."""

from refold.examples.fulfilment.graph import order

__all__ = ["order"]
