"""Letters to ids and back."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from titans_dna.classification.sequences import reads_of
from titans_dna.genomes.sources import open_source
from titans_dna.genomes.tokenizer import (
    COMPLEMENT,
    LETTERS,
    PAD,
    VOCAB_SIZE,
    N,
    decode,
    encode,
    encode_batch,
    reverse_complement,
    reverse_complement_ids,
)

dna = st.text(alphabet="ACGTN", max_size=80)
iupac = st.text(alphabet="ACGTNRYSWKMBDHVacgtnryswkmbdhv", max_size=80)


@given(dna)
def test_what_is_encoded_is_decoded(sequence):
    assert decode(encode(sequence)) == sequence


@given(iupac)
def test_reverse_complement_twice_is_the_sequence(sequence):
    assert reverse_complement(reverse_complement(sequence)) == sequence
    assert reverse_complement(reverse_complement(sequence.encode())) == sequence.encode()


@given(iupac)
def test_strings_and_ids_have_the_same_reverse_complement(sequence):
    np.testing.assert_array_equal(encode(reverse_complement(sequence)), reverse_complement_ids(encode(sequence)))


@given(st.lists(dna.filter(bool), min_size=1, max_size=6))
def test_a_batch_holds_each_sequence_and_padding_beyond_it(sequences):
    ids, lengths = encode_batch(sequences)
    assert ids.shape == (len(sequences), max(map(len, sequences)))
    for row, length, sequence in zip(ids, lengths, sequences, strict=True):
        np.testing.assert_array_equal(row[:length], encode(sequence))
        assert (row[length:] == PAD).all()


@given(st.lists(dna.filter(bool), min_size=1, max_size=6))
def test_a_padded_batch_is_reversed_within_its_lengths(sequences):
    ids, lengths = encode_batch(sequences)
    np.testing.assert_array_equal(
        reverse_complement_ids(ids, lengths), encode_batch([reverse_complement(s) for s in sequences]).ids
    )


def test_a_base_and_its_complement_add_up_to_three():
    assert decode(np.arange(4)) == "ACGT"
    np.testing.assert_array_equal(COMPLEMENT[:4], 3 - np.arange(4))
    assert COMPLEMENT[N] == N
    assert COMPLEMENT[PAD] == PAD
    assert len(LETTERS) == VOCAB_SIZE == PAD + 1


def test_lower_case_is_the_same_base_and_the_mask_remembers_it():
    ids, mask = encode("acGTnN", return_mask=True)
    np.testing.assert_array_equal(ids, encode("ACGTNN"))
    np.testing.assert_array_equal(mask, [True, True, False, False, True, False])


def test_iupac_codes_become_n():
    np.testing.assert_array_equal(encode("ARYSWKMBDHVNa"), [0] + [N] * 11 + [0])


def test_u_is_t_only_on_request():
    with pytest.raises(ValueError, match=r"'U' at position 2 \(0-based\): U instead of T\. For RNA.*rna=True"):
        encode("ACUG")
    np.testing.assert_array_equal(encode("ACUGu", rna=True), encode("ACTGT"))
    with pytest.raises(ValueError, match=r"'u' at position 2 .* use sequence\.replace\('u', 't'\), or"):
        encode("ACug")


@pytest.mark.parametrize(
    ("sequence", "message"),
    [
        ("ACGX", r"'X' at position 3 \(0-based\); accepted are A C G T N"),
        ("AÄCG", r"'Ä' at position 1"),
        ("AC GT", r"position 2 \(0-based\): white space"),
        ("AC-GT", r"position 2 \(0-based\): a gap"),
        (b"AC1", r"'1' at position 2"),
    ],
)
def test_an_invalid_letter_is_named_with_its_position(sequence, message):
    with pytest.raises(ValueError, match=message):
        encode(sequence)


def test_in_a_batch_the_sequence_is_numbered_too():
    with pytest.raises(ValueError, match=r"sequence 2 has 'E' at position 1 "):
        encode_batch(["ACGT", "A", "CEG", "XX"])
    with pytest.raises(ValueError, match="sequence 1 is empty"):
        encode_batch(["A", ""])
    with pytest.raises(TypeError, match="sequence 1 must be str or bytes, got float"):
        encode_batch(pd.Series(["ACGT", float("nan")], dtype=object))
    with pytest.raises(TypeError, match="list of sequences"):
        encode_batch("ACGT")
    with pytest.raises(ValueError, match="sequences is empty; give at least one"):
        encode_batch([])


def test_a_batch_can_be_padded_to_a_given_length():
    assert encode_batch(pd.Series(["ACG", "A"]), length=5).ids.shape == (2, 5)
    with pytest.raises(ValueError, match="sequence 0 has 3 bases, but length=2"):
        encode_batch(["ACG", "A"], length=2)


def test_u_has_no_complement_in_dna():
    with pytest.raises(ValueError, match="RNA"):
        reverse_complement("ACU")


def test_decode_refuses_invalid_ids():
    with pytest.raises(ValueError, match=r"values 0 to 6"):
        decode(np.array([0, 6]))
    with pytest.raises(ValueError, match=r"shape \[1, 2\]"):
        decode(np.array([[0, 1]]))
    with pytest.raises(TypeError, match=r"must be integers, got an array of float64.*argmax"):
        decode(np.array([0.0, 1.5]))


def test_the_empty_sequence_is_a_sequence():
    assert decode(encode("")) == ""
    assert reverse_complement("") == ""


def test_lengths_must_fit_the_batch():
    with pytest.raises(ValueError, match="lengths must have shape"):
        reverse_complement_ids(np.zeros((2, 3), dtype=np.uint8), np.array([1, 4]))


class Seq:
    """Like Biopython's ``Seq``: letters, and methods of a sequence."""

    def __init__(self, letters):
        self.letters = letters

    def __iter__(self):
        return iter(self.letters)

    def __len__(self):
        return len(self.letters)

    def reverse_complement(self):
        raise NotImplementedError


class SeqRecord(Seq):
    """Like Biopython's ``SeqRecord``: a sequence with a name."""

    def __init__(self, letters):
        super().__init__(letters)
        self.seq = Seq(letters)


def of_biopython():
    try:
        from Bio.Seq import Seq as Real
        from Bio.SeqRecord import SeqRecord as RealRecord
    except ImportError:
        return []
    return [(Real("ACGT"), "str(sequence)"), (RealRecord(Real("ACGT")), "str(record.seq)")]


@pytest.mark.parametrize(
    ("sequence", "advice"), [(Seq("ACGT"), "str(sequence)"), (SeqRecord("ACGT"), "str(record.seq)"), *of_biopython()]
)
def test_a_biopython_sequence_is_refused_with_advice(sequence, advice):
    """Iterated over, it would be many sequences of one base."""
    says = re.escape(advice)
    for refuse in (encode, reverse_complement):
        with pytest.raises(TypeError, match=rf"read 7 must be str or bytes, got Seq.*Give {says}"):
            refuse(sequence, where="read 7")
    for refuse in (encode_batch, reads_of, open_source):
        with pytest.raises(TypeError, match=rf"sequence 1 must be str or bytes, got Seq.*Give {says}"):
            refuse(["ACGT", sequence])
        with pytest.raises(TypeError, match=rf"got one Seq(Record)? instead of a list of sequences: give \[{says}\]"):
            refuse(sequence)
