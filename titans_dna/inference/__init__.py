"""What the methods of a language model do, one module for each."""
