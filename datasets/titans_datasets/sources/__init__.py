"""What is published where, with checksums. Facts only: nothing here reads a file or uses the network.

Addresses are pinned to a commit, so that checksum and address always refer to the same bytes. No data is shipped with
the package, because several licences forbid it.
"""
