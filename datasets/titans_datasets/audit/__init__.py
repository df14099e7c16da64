"""Does a published split leak? Overlap of intervals, shared k-mers, and what a lookup table would score.

    overlap     a test interval and a train interval hold the same bases of the genome, on either strand
    lookup      copy the label of the train interval that covers most of a test interval; needs no model at all
    k-mers      two sequences share k bases in a row, read on either strand; needs no coordinates
    groups      sequences joined by shared k-mers, directly or through others: what GroupKFold must keep together
    clean       test rows that share nothing with train: the rows on which a score means what it says

A shared k-mer need not be a copy of one place: common repeats (Alu, runs of CT) join sequences from all over a genome,
and show as one very large group. What a lookup gains by them is a feature that a model may rightly learn; coordinates
tell the two apart, k-mers do not.

Coordinates are 0-based half-open. Nothing here needs more than numpy and scipy.
"""

from titans_datasets.audit.intervals import IntervalAudit, Lookup, Spans, audit_intervals, best_overlap, lookup_labels
from titans_datasets.audit.kmers import KmerAudit, audit_kmers, kmer_groups, shared_kmers
from titans_datasets.audit.report import CleanScore, SplitAudit, score_clean

__all__ = [
    "CleanScore",
    "IntervalAudit",
    "KmerAudit",
    "Lookup",
    "Spans",
    "SplitAudit",
    "audit_intervals",
    "audit_kmers",
    "best_overlap",
    "kmer_groups",
    "lookup_labels",
    "score_clean",
    "shared_kmers",
]
