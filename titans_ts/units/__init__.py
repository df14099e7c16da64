"""The units of a network: standardisation of series and columns, and profiles."""
