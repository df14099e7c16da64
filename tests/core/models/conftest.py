"""Each architecture by its name."""

import pytest

NAMES = ("lmm", "mac", "mag", "mal", "transformer", "gated-deltanet")


@pytest.fixture(params=NAMES)
def name(request):
    return request.param
