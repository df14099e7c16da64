"""What a classifier is trained on, and a pretrained encoder for it."""
