"""A parcel: the example of docs/workflows.md, with every part of a graph in it."""

from refold.examples.parcel.graph import parcel

__all__ = ["parcel"]
