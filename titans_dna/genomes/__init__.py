"""Files and coordinates: genomes, intervals, variants, tracks, and sequences as tokens. Knows no network."""
