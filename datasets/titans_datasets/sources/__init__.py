"""What is published where, and what its bytes are: facts only, nothing here reads a file or the network.

Addresses are pinned to a commit, so that a checksum and an address always speak of the same bytes.
Nothing is shipped with the package: several licences forbid it.
"""
