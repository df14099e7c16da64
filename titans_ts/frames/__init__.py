"""From the rows of a user to a table of series on one time axis, and back. Knows no network."""
