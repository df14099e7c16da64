"""Parts of the networks of the classifier and of the language model."""
