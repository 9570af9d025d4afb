"""What is shown here is as wide as each test says."""

# Its console keeps the COLUMNS of the moment in which it is made: before the first test sets any.
import refold.cli.telling  # noqa: F401
