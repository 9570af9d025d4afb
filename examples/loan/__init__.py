"""A loan application at a bank: decisions of the bank, work of its people."""

from refold.examples.loan.graph import loan

__all__ = ["loan"]
