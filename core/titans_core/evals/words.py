"""Keys and word values for needles: an adjective and a noun with a hyphen, as in RULER; the lists are ours."""

import numpy as np

_ADJECTIVES = (
    "agile amber ample ancient arctic autumn azure bold brave breezy bright brisk calm candid careful charming clever "
    "cosmic crimson curious daring distant eager earnest elegant fabled fearless fierce fluffy fragile gentle gilded "
    "golden graceful happy hidden humble icy ivory jolly keen lively lucky mellow mighty misty modest noble patient "
    "playful polite proud quiet rapid rustic scarlet silent silver sleepy smooth snowy solemn spotted steady sturdy "
    "sunny swift tender tidy tranquil velvet vivid wandering whimsical wise witty"
)
_NOUNS = (
    "acorn anchor badger bakery basket beacon bison blossom bridge bucket cactus candle canyon castle cedar chapel "
    "cobra comet compass coral cottage cricket dolphin drum eagle ember falcon feather fiddle forest fountain galaxy "
    "glacier hammer harbor hazel heron igloo island jacket kettle ladder lagoon lantern lemon lizard magnet maple "
    "meadow mirror nectar orchard otter panther parrot pebble pepper pillow planet quartz rabbit ribbon river saddle "
    "sparrow spindle teapot temple thistle tiger trumpet tulip turnip valley violin walnut willow window zebra"
)
ADJECTIVES = tuple(_ADJECTIVES.split())
NOUNS = tuple(_NOUNS.split())


def word(rng: np.random.Generator) -> str:
    return f"{ADJECTIVES[rng.integers(len(ADJECTIVES))]}-{NOUNS[rng.integers(len(NOUNS))]}"
