"""The fold: state graphs, reducers, the partition worker, recovery and replay."""
