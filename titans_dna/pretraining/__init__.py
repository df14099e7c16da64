"""What a language model is trained on: windows of a genome, and the masked objective."""
