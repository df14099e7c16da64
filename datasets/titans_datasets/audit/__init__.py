"""Does a published split leak? Overlapping intervals, shared k-mers, and the score of a lookup table.

    overlap     a test interval and a train interval contain the same bases of the genome, on either strand
    lookup      copy the label of the train interval that covers most of a test interval, without any model
    k-mers      two sequences share k consecutive bases, on either strand; needs no coordinates
    groups      sequences connected by shared k-mers, directly or through others; GroupKFold must keep them together
    clean       test rows that share nothing with train, the only rows on which a score is reliable

A shared k-mer need not be a copy of the same place. Common repeats (Alu, runs of CT) connect sequences from all over a
genome and appear as one very large group. What a lookup gains from repeats is a feature that a model may legitimately
learn. Coordinates can tell copies from repeats; k-mers cannot.

Coordinates are 0-based half-open. The audits need only NumPy and SciPy.
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
