"""The networks, their windows and losses, and the online memory, on plain tables of numbers. Knows no frames."""
