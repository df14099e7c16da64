"""Small encoders, for the tests."""

from titans_dna.network.encoder import Encoder, EncoderConfig

SMALL = dict(dim=16, num_layers=1, chunk_size=8, kernel_size=9, pool=2, dropout=0.2, memory_depth=2, positions=False)


def encoder_of(**changes):
    return Encoder(EncoderConfig(**SMALL | changes))
