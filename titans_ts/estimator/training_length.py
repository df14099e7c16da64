"""The length of a training: windows in a batch, and epochs."""

# maximum number of batches in an epoch; minimum and maximum in a default training
EPOCH, LEAST, MOST = 100, 1200, 2000
# a default training sees one window in PART, since neighbouring windows share most of their rows
PART = 3
# with mixed series, at least TOGETHER windows in a batch, as far as they hold at most APART windows of single series
TOGETHER, APART = 16, 1024


def windows_in_batch(batch_size: int, series: int) -> int:
    """Windows per batch if each holds all series; ``batch_size`` counts windows of single series."""
    return max(1, batch_size // series, min(TOGETHER, APART // series))


def default_epochs(batches: int, together: bool) -> int:
    """The default number of epochs, of at most :data:`EPOCH` batches each.

    ``batches`` is one pass over all windows. A training has a third of a pass, or a full one with mixed series, whose
    batches cover fewer points in time; but :data:`LEAST` to :data:`MOST` batches, and at most 200 epochs.
    """
    wanted = batches if together else batches // PART
    return min(200, -(-min(MOST, max(LEAST, wanted)) // min(EPOCH, batches)))
