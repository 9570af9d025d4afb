"""The page of each error code, as `refold explain` shows it: it ships with the package."""
