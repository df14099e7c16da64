"""The command line, and the files that it reads and writes."""
