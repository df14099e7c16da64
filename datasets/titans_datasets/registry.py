"""Registry of all data sets by name. Looking one up reads no file."""

from difflib import get_close_matches
from typing import Any

from titans_datasets.sources import dna, ts
from titans_datasets.sources.entries import DatasetInfo, GenomeInfo, Kind, SequenceInfo, SeriesInfo, TextInfo
from titans_datasets.sources.genomes import GENOMES
from titans_datasets.sources.text import TEXTS

__all__ = ["DatasetInfo", "genome_info", "info", "list_datasets", "sequence_info", "series_info", "text_info"]

_REGISTRY: dict[str, DatasetInfo] = {
    entry.name.lower(): entry for entry in (*ts.SERIES, *dna.SEQUENCES.values(), *GENOMES.values(), *TEXTS)
}
_ALIASES = {**dna.ALIASES, **ts.ALIASES}
_KINDS: dict[Kind, str] = {"ts": "time-series set", "dna": "DNA set", "genome": "genome", "text": "text set"}


def list_datasets(kind: Kind | None = None) -> list[str]:
    """Names that ``load`` and ``info`` accept, spelled as in the literature.

    Args:
        kind: ``"ts"``, ``"dna"``, ``"genome"`` or ``"text"``. None: all.

    Raises:
        ValueError: if the kind is unknown.
    """
    if kind is not None and kind not in _KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, _KINDS))}, or None for all; got {kind!r}.")
    return [entry.name for entry in _REGISTRY.values() if kind in (None, entry.kind)]


def info(name: str) -> Any:
    """Information about a set without loading it: source, checksum, licence, shape, notes.

    Args:
        name: one of ``list_datasets()``; case is ignored. GUE promoters also without ``prom_``.

    Returns:
        A ``DatasetInfo``. Its ``kind`` determines the fields beyond name, licence, citation and note: ``SeriesInfo``,
        ``SequenceInfo``, ``GenomeInfo`` or ``TextInfo`` of ``titans_datasets.sources.entries``.

    Raises:
        ValueError: if the name is unknown; the message lists known names and the closest.
    """
    return _find(name)


def series_info(name: str) -> SeriesInfo:
    """``info`` of a time-series set. Raises a ValueError for an unknown name or another kind of set."""
    entry = _find(name, "ts")
    assert isinstance(entry, SeriesInfo)
    return entry


def sequence_info(name: str) -> SequenceInfo:
    """``info`` of a DNA set. Raises a ValueError for an unknown name or another kind of set."""
    entry = _find(name, "dna")
    assert isinstance(entry, SequenceInfo)
    return entry


def genome_info(name: str) -> GenomeInfo:
    """``info`` of a genome. Raises a ValueError for an unknown name or another kind of set."""
    entry = _find(name, "genome")
    assert isinstance(entry, GenomeInfo)
    return entry


def text_info(name: str) -> TextInfo:
    """``info`` of a text set. Raises a ValueError for an unknown name or another kind of set."""
    entry = _find(name, "text")
    assert isinstance(entry, TextInfo)
    return entry


def _find(name: str, kind: Kind | None = None) -> DatasetInfo:
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, one of {', '.join(list_datasets(kind))}; got {name!r}.")
    key = name.lower()
    entry = _REGISTRY.get(_ALIASES.get(key, key))
    if entry is not None and kind in (None, entry.kind):
        return entry
    what, known = _KINDS[kind] if kind else "data set", list_datasets(kind)
    if entry is not None:
        raise ValueError(f"{entry.name!r} is a {_KINDS[entry.kind]}, not a {what}; known are {', '.join(known)}.")
    names = {of_kind.lower(): of_kind for of_kind in known}
    names |= {alias: alias for alias, full in _ALIASES.items() if full in names}
    close = get_close_matches(key, names, n=1)
    hint = f" Did you mean {names[close[0]]!r}?" if close else ""
    raise ValueError(f"Unknown {what} {name!r}; known are {', '.join(known)}.{hint}")
