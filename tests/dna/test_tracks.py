"""Tracks of surprise: definition, streaming, and output files."""

import gzip
import locale
import warnings
from concurrent.futures import ThreadPoolExecutor

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from random_dna import bases

from titans_core import NeuralMemory
from titans_core.nn import momentary_surprise
from titans_core.ops.memory.naive import ACTIVATIONS, read
from titans_dna import Interval, encode, reverse_complement
from titans_dna.genomes.sources import InMemory
from titans_dna.genomes.tracks import plot_track, write_bedgraph
from titans_dna.inference.memory_surprise import listening
from titans_dna.inference.surprise import surprise_of
from titans_dna.language import DNALanguageModel

TEXT = bases(400, seed=0)


@pytest.fixture(scope="module")
def models():
    made = {}

    def get(architecture="lmm"):
        if architecture not in made:
            settings = dict(dim=16, num_layers=2, num_heads=2, chunk_size=8, window=16, length=64, batch_size=8)
            model = DNALanguageModel(architecture, **settings, max_steps=2, device="cpu", verbose=0, random_state=0)
            made[architecture] = model.fit([TEXT])
        return made[architecture]

    return get


def test_the_mean_of_a_track_is_the_bits_per_base(models):
    track = models().surprise(InMemory([TEXT]), "0:100-300")
    assert list(track) == ["chrom", "start", "end", "bits"]
    assert (track["start"].iloc[0], track["end"].iloc[-1]) == (100, 300)
    assert track["bits"].mean() == pytest.approx(models().bits_per_base([TEXT[100:300]]), abs=1e-6)


def test_the_other_strand_is_read_in_reverse_and_aligned_to_positions(models):
    track = models().surprise(InMemory([TEXT]), Interval("0", 100, 300, "-"), memory=True)
    other = models().surprise(InMemory([reverse_complement(TEXT)]), "0:100-300", memory=True)
    assert (np.diff(track["start"]) == 1).all()
    for column in ("bits", "memory"):
        np.testing.assert_allclose(track[column][::-1], other[column], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["lmm", "mac", "mag", "mal"])
def test_a_track_in_pieces_is_the_track_of_one_call(models, architecture):
    network, source, interval = models(architecture).model_, InMemory([TEXT]), Interval("0", 0, len(TEXT))
    with torch.no_grad():
        whole, pieces = (surprise_of(network, source, interval, True, piece) for piece in (len(TEXT) + 1, 37))
    assert np.isfinite(whole["memory"]).all()
    np.testing.assert_allclose(pieces["bits"], whole["bits"], atol=1e-5)
    np.testing.assert_allclose(pieces["memory"], whole["memory"], atol=1e-5)


def test_a_base_affects_the_memory_surprise_only_from_its_position_on(models):
    """Changing one base changes the memory's surprise and the model's bits there and later, but not earlier."""
    changed = TEXT[:200] + {"A": "C", "C": "A", "G": "T", "T": "G"}[TEXT[200]] + TEXT[201:]
    one, two = (models().surprise(InMemory([text]), "0", memory=True) for text in (TEXT, changed))
    for column in ("bits", "memory"):
        np.testing.assert_allclose(one[column][:200], two[column][:200], atol=1e-6)
        assert abs(one[column][200] - two[column][200]) > 1e-4


def test_the_memorys_surprise_is_the_mean_over_memories_and_heads(models):
    network = models().model_
    with torch.no_grad(), listening(network) as heard:
        network.hidden(torch.from_numpy(encode("N" + TEXT)).long()[None])
    each = np.stack([np.concatenate(calls, axis=1)[0, -len(TEXT) :] for calls in heard])
    assert each.shape == (2, len(TEXT), 2)
    track = models().surprise(InMemory([TEXT]), "0", memory=True)
    np.testing.assert_allclose(track["memory"], each.mean(axis=(0, 2)), rtol=1e-5)


def test_what_another_thread_reads_is_not_recorded(models):
    network = models().model_
    with listening(network) as heard, ThreadPoolExecutor(1) as other:
        other.submit(network.hidden, torch.zeros(1, 8, dtype=torch.long)).result()
    assert heard == [[], []]


@pytest.mark.parametrize("chunk_size", [1, 4])
@pytest.mark.parametrize(("depth", "gates"), [(1, "token"), (2, "token"), (3, "token"), (2, "chunk"), (1, "chunk")])
def test_the_memorys_surprise_is_the_norm_of_the_inner_gradient(depth, gates, chunk_size):
    """Computed by autograd at the anchor, token by token, as the memory is defined."""
    torch.manual_seed(0)
    memory = NeuralMemory(8, num_heads=2, depth=depth, chunk_size=chunk_size, gates=gates).double()
    x = torch.randn(1, 11, 8, dtype=torch.float64)
    before = memory(torch.randn(1, 6, 8, dtype=torch.float64))[1]
    found = momentary_surprise(memory, x, before)
    state = before
    for t in range(11):
        _, k, v, _ = memory._project(x[:, t : t + 1], state)
        anchor = tuple(a.detach().requires_grad_() for a in state.memory.anchor)
        error = read(anchor, k.transpose(1, 2), ACTIVATIONS["silu"]) - v.transpose(1, 2)
        gradients = torch.autograd.grad(0.5 * error.square().sum(), anchor)
        expected = sum(g.square().sum((-2, -1)) for g in gradients).sqrt()
        torch.testing.assert_close(found[:, t], expected, rtol=1e-5, atol=1e-6)
        state = memory(x[:, t : t + 1], state)[1].detach()


def test_memory_surprise_of_a_model_without_memory_is_refused(models):
    with pytest.raises(ValueError, match="'transformer' has no memory"):
        models("transformer").surprise(InMemory([TEXT]), "0", memory=True)
    assert len(models("transformer").surprise(InMemory([TEXT]), "0")) == 400


def test_missing_regions_are_refused(models, genome):
    with pytest.raises(ValueError, match=r"chrI:900-1001.* ends beyond chrI, which has 1000 bases"):
        models().surprise(genome, "chrI:900-1001")
    with pytest.raises(ValueError, match=r"no chromosome 'I'\. Did you mean 'chrI'"):
        models().surprise(genome, "I")
    with pytest.raises(ValueError, match="is not valid; write 'IV' or 'IV:1000-2000'"):
        models().surprise(genome, "chrI:abc")


def frame(values, starts=None, chrom="c"):
    starts = np.arange(len(values)) if starts is None else np.array(starts)
    return pd.DataFrame({"chrom": chrom, "start": starts, "end": starts + 1, "bits": values})


def test_a_bedgraph_has_the_values_of_the_track(models, tmp_path, genome):
    track = models().surprise(genome, "chrII")
    write_bedgraph(track, tmp_path / "track.bedgraph", digits=6)
    lines = (tmp_path / "track.bedgraph").read_text().splitlines()
    assert lines[0].startswith("track type=bedGraph")
    values = np.full(len(track), np.nan)
    for line in lines[1:]:
        chrom, start, end, value = line.split("\t")
        assert chrom == "chrII"
        values[int(start) : int(end)] = float(value)
    np.testing.assert_allclose(values, track["bits"], atol=1e-6)
    assert np.isnan(values).sum() == 100


def test_neighbours_with_equal_values_are_one_line(tmp_path):
    write_bedgraph(frame([1, 1, 2, 2, np.nan, 2], chrom="c"), tmp_path / "t")
    body = (tmp_path / "t").read_text().splitlines()[1:]
    assert body == ["c\t0\t2\t1.0", "c\t2\t4\t2.0", "c\t5\t6\t2.0"]
    with pytest.raises(ValueError, match="expected chrom, start, end and 'score'"):
        write_bedgraph(frame([1.0]), tmp_path / "t", "score")
    write_bedgraph(frame([-1e-9, 1e-9], chrom="c"), tmp_path / "zero", digits=6, header=False)
    assert (tmp_path / "zero").read_text() == "c\t0\t2\t0.0\n"
    write_bedgraph(frame([]), tmp_path / "empty")
    assert len((tmp_path / "empty").read_text().splitlines()) == 1


def test_a_plot_shows_the_track_and_the_genes():
    mpl.use("Agg")
    genes = [Interval("c", 1, 3, "+", "g"), Interval("d", 1, 3, "+")]
    axes = plot_track(frame([1.0, 2.0, 3.0, 4.0]), window=2, genes=genes)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [1.5, 3.5])
    assert axes.get_ylabel() == "bits (mean of 2 bases)"
    wide = pd.DataFrame({"chrom": "c", "start": [0, 1, 40_000], "end": [1, 4, 40_001], "bits": [1.0, 5.0, 2.0]})
    axes = plot_track(wide)  # windows are of positions, not of rows, and an average is of bases
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[0.5, 4.0], [40_000, 2.0]])
    assert axes.get_ylabel() == "bits (mean of 10 bases)"
    figures = mpl.pyplot.get_fignums()
    with pytest.raises(ValueError, match="window must be at least 1 base, got 0"):
        plot_track(frame([1.0]), window=0)
    with pytest.raises(ValueError, match="needs a track of one chromosome, got 2"):
        plot_track(pd.concat([frame([1.0]), frame([1.0], chrom="d")]))
    with pytest.raises(TypeError):
        plot_track(frame([1.0]), genes=[("c", 1, 3)])
    assert mpl.pyplot.get_fignums() == figures  # no empty figure is left behind


def test_a_plot_shows_the_mean_of_a_region_shorter_than_a_window():
    mpl.use("Agg")
    axes = plot_track(frame([1.0, 3.0]), window=400)
    (line,) = axes.lines
    pictures = []
    for visible in (True, False):
        line.set_visible(visible)
        axes.figure.canvas.draw()
        pictures.append(np.array(axes.figure.canvas.buffer_rgba()))
    assert (pictures[0] != pictures[1]).any()


def test_a_plot_uses_the_given_column_and_axes():
    mpl.use("Agg")
    _, (above, below) = mpl.pyplot.subplots(2)
    track = frame([1.0, 2.0]).assign(memory=[3.0, 4.0])
    genes = [Interval("c", 0, 1, strand) for strand in "+-."]
    assert plot_track(track, "memory", ax=below, genes=genes) is below
    np.testing.assert_array_equal(below.lines[0].get_ydata(), [3.0, 4.0])  # of few bases each is drawn
    assert below.get_ylabel() == "memory"
    assert not above.lines
    heights = {bar.get_paths()[0].vertices[0, 1] for bar in below.collections}
    assert len(heights) == 3  # one for each strand
    with pytest.raises(ValueError, match="expected chrom, start, end and 'score'"):
        plot_track(track, "score")


def test_genes_of_a_plot_come_in_a_frame_or_a_bed_file_too(tmp_path):
    (tmp_path / "genes.bed").write_text("c\t1\t3\tg\t0\t+\nd\t1\t3\n")
    frame_of_genes = pd.DataFrame({"chrom": ["c", "d"], "start": 1, "end": 3, "strand": ["+", "."]})
    given = ([Interval("c", 1, 3, "+")], tmp_path / "genes.bed", frame_of_genes)
    drawn = [plot_track(frame([1.0, 2.0, 3.0, 4.0]), genes=genes).collections for genes in given]
    bars = [[[path.vertices.tolist() for path in bar.get_paths()] for bar in found] for found in drawn]
    assert bars[0][0][0][0] == [1, -0.04]
    assert bars[0] == bars[1] == bars[2]
    (tmp_path / "genes.gff").write_text("c\ts\tgene\t2\t3\t.\t+\t.\tID=g\n")
    with pytest.raises(ValueError, match="not BED; use read_gff"):
        plot_track(frame([1.0]), genes=tmp_path / "genes.gff")


def test_genes_that_are_all_of_other_chromosomes_are_warned_of():
    mpl.use("Agg")
    track = frame([1.0, 2.0, 3.0, 4.0], chrom="chrI")
    says = r"track is of 'chrI', but the genes are of \['I', 'II'\], so none is drawn"
    with pytest.warns(UserWarning, match=says) as warned:
        plot_track(track, genes=[Interval("II", 1, 3), Interval("I", 1, 3)])
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for genes in ([], [Interval("I", 1, 3), Interval("chrI", 50, 60)]):
            plot_track(track, genes=genes)


def test_a_bedgraph_without_a_track_line_and_an_existing_folder(tmp_path):
    write_bedgraph(frame([1.0, 2.0]), tmp_path / "plain.bedgraph", header=False)
    assert (tmp_path / "plain.bedgraph").read_text().splitlines() == ["c\t0\t1\t1.0", "c\t1\t2\t2.0"]
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder; name the file"):
        write_bedgraph(frame([1.0]), tmp_path / "folder")
    assert {path.name for path in tmp_path.iterdir()} == {"plain.bedgraph", "folder"}


def test_a_bedgraph_named_gz_is_compressed(tmp_path):
    for name in ("plain.bedgraph", "packed.bedgraph.gz"):
        write_bedgraph(frame([1.0, 2.0]), tmp_path / name)
    assert gzip.decompress((tmp_path / "packed.bedgraph.gz").read_bytes()) == (tmp_path / "plain.bedgraph").read_bytes()


def test_a_bedgraph_has_the_same_bytes_whatever_the_locale(tmp_path):
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")
    try:
        named = pd.DataFrame({"chrom": ["ä"], "start": [0], "end": [1], "bits": [1.0]})
        write_bedgraph(named, tmp_path / "t", header=False)
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    assert (tmp_path / "t").read_bytes() == "ä\t0\t1\t1.0\n".encode()


def test_a_track_may_be_a_frame_of_polars(tmp_path):
    mpl.use("Agg")
    polars = pytest.importorskip("polars")
    write_bedgraph(polars.from_pandas(frame([1.0, 2.0])), tmp_path / "polars")
    write_bedgraph(frame([1.0, 2.0]), tmp_path / "pandas")
    assert (tmp_path / "polars").read_bytes() == (tmp_path / "pandas").read_bytes()
    np.testing.assert_array_equal(plot_track(polars.from_pandas(frame([1.0, 2.0]))).lines[0].get_ydata(), [1.0, 2.0])


def test_neither_the_index_of_a_track_nor_the_type_of_its_positions_matters(tmp_path):
    track = frame([1.0, 2.0, 3.0, 4.0])
    binned = track.groupby(track["start"] // 2).agg(
        {"chrom": "first", "start": "min", "end": "max", "bits": "mean"}
    )  # its index is called start, too
    write_bedgraph(binned.astype({"start": float, "end": "Int64"}), tmp_path / "t", header=False)
    assert (tmp_path / "t").read_text().splitlines() == ["c\t0\t2\t1.5", "c\t2\t4\t3.5"]


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_a_track_may_have_the_types_of_pandas_that_hold_missing_values(tmp_path, backend):
    mpl.use("Agg")
    if backend == "pyarrow":
        pytest.importorskip("pyarrow")
    track = frame([1.5, np.nan, 2.5]).convert_dtypes(dtype_backend=backend)
    write_bedgraph(track, tmp_path / "t", header=False)
    assert (tmp_path / "t").read_text().splitlines() == ["c\t0\t1\t1.5", "c\t2\t3\t2.5"]
    np.testing.assert_array_equal(plot_track(track).lines[0].get_ydata(), [1.5, np.nan, 2.5])
    without_end = frame([1.5, 2.5]).assign(end=[1.0, np.nan]).convert_dtypes(dtype_backend=backend)
    with pytest.raises(ValueError, match="positions that are not whole numbers"):
        write_bedgraph(without_end, tmp_path / "unused")


@pytest.mark.parametrize("call", [lambda track: write_bedgraph(track, "unused"), plot_track])
def test_a_track_without_its_columns_or_numbers_is_refused(call):
    track = frame([1.0, 2.0])
    with pytest.raises(ValueError, match=r"has the columns \['end', 'bits'\]; expected chrom, start, end and a column"):
        call(track.set_index(["chrom", "start"]))
    with pytest.raises(ValueError, match=r"column 'gene' has no numbers .* name the column of values"):
        call(track.assign(gene="g")[["chrom", "start", "end", "gene", "bits"]])
    with pytest.raises(ValueError, match="positions that are not whole numbers"):
        call(track.assign(end=[1.0, np.nan]))
    with pytest.raises(ValueError, match=r"1 infinite values in its column 'bits', the first at c:1-2\. .* NaN"):
        call(track.assign(bits=[1.0, -np.inf]))
    for wrong, place in (
        ({"chrom": ["c", None]}, "(None|nan):1-2"),
        ({"start": [0, -1]}, "c:-1-2"),
        ({"end": [0, 2]}, "c:0-0"),
    ):
        with pytest.raises(
            ValueError, match=rf"1 rows without a chromosome or without 0 <= start < .* first {place}\."
        ):
            call(track.assign(**wrong))


def test_a_bedgraph_is_sorted_and_does_not_join_chromosomes(tmp_path):
    track = pd.DataFrame({"chrom": ["d", "c", "c"], "start": [3, 2, 0], "end": [4, 3, 1], "bits": [1.0, 1.0, 2.0]})
    write_bedgraph(track, tmp_path / "t", header=False)
    assert (tmp_path / "t").read_text().splitlines() == ["c\t0\t1\t2.0", "c\t2\t3\t1.0", "d\t3\t4\t1.0"]


def test_a_bedgraph_is_sorted_by_names_whatever_the_order_of_categories(tmp_path):
    track = pd.DataFrame({"chrom": ["d", "c", "10", "9"], "start": 0, "end": 1, "bits": [1.0, 2.0, 3.0, 4.0]})
    track["chrom"] = pd.Categorical(track["chrom"], categories=["9", "d", "10", "c"])
    write_bedgraph(track, tmp_path / "t", header=False)
    assert [line[:2].strip() for line in (tmp_path / "t").read_text().splitlines()] == ["10", "9", "c", "d"]


def test_intervals_of_a_track_that_overlap_are_refused(tmp_path):
    track = pd.DataFrame({"chrom": ["d", "c", "c"], "start": [5, 9, 0], "end": [20, 12, 10], "bits": [1.0, 2.0, 2.0]})
    with pytest.raises(ValueError, match="one value per base, but c:9-12 overlaps c:0-10"):
        write_bedgraph(track, tmp_path / "t")
    assert not (tmp_path / "t").exists()
    track["bits"] = [1.0, 2.0, np.nan]  # what has no value is not written, and in nobody's way
    write_bedgraph(track, tmp_path / "t", header=False)
    assert (tmp_path / "t").read_text().splitlines() == ["c\t9\t12\t2.0", "d\t5\t20\t1.0"]
