"""An order: placed, reserved, charged. The smallest workflow that must not do anything twice."""

from refold.examples.order.graph import order

__all__ = ["order"]
