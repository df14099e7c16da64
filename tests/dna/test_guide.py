"""The examples of docs/genomes.md run from top to bottom, with very short trainings."""

import re
from pathlib import Path

import matplotlib as mpl
import pytest
from random_dna import bases

from titans_dna import DNALanguageModel, TitansDNAClassifier, attribute, fit_mixture

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "genomes.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Create the files named in the examples in their working folder."""
    monkeypatch.chdir(tmp_path)
    chromosome = bases(30_000)
    places = range(1000, 29_000, 1200)
    other = str.maketrans("ACGT", "CATG")
    texts = {
        "genome.fa": f">I\n{bases(10_000, 1)}\n>IV\n{chromosome}\n",
        "another.fa": f">I\n{bases(10_000, 2)}\n",
        "sequences.fa": "".join(f">{i}\n{bases(65, i)}\n" for i in range(60)),
        "genes.gff": "".join(f"IV\t.\tgene\t{at}\t{at + 500}\t.\t+\t.\tID=g{at}\n" for at in places),
        "calls.vcf": "##fileformat=VCFv4.2\n"
        + "".join(f"IV\t{at + 1}\t.\t{chromosome[at]}\t{chromosome[at].translate(other)}\n" for at in places[:3]),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_examples_run_from_top_to_bottom(files, monkeypatch):
    mpl.use("Agg")
    small = dict(max_steps=2, dim=16, num_heads=2, window=32, length=256, verbose=0)
    for function, settings in (
        (DNALanguageModel.__init__, small),
        (TitansDNAClassifier.__init__, dict(max_epochs=2, dim=16, verbose=0)),
        (attribute, dict(steps=8)),
        (DNALanguageModel.compare, dict(max_order=5)),
        (fit_mixture, dict(order=5)),
    ):
        for name, value in settings.items():
            monkeypatch.setitem(function.__kwdefaults__, name, value)
    labels, split = ["enhancer", "other"] * 30, ["train"] * 40 + ["test"] * 20
    names = {"labels": labels, "split": split, "predicted": labels[40:]}
    for block in BLOCKS:
        exec(block.replace("n_trials=50", "n_trials=2").replace("IV:430000-490000", "IV:8000-28000"), names)
    assert len(names["scores"]) == 3
    assert names["scores"]["score"].notna().all()
    assert len(names["track"]) == 20_000
    assert len(names["best"].study_.trials) == 2
