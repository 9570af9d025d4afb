"""A trip: hotel, flight, payment; whatever goes wrong, everything is undone."""

from refold.examples.travel.graph import trip

__all__ = ["trip"]
