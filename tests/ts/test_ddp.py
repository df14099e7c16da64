"""Two processes started by torchrun train the same model as one process."""

import runpy
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest

SCRIPT = """
    import os, pandas as pd, torch
    torch.set_num_threads(1)
    from titans_ts import TitansForecaster, forecaster
    from titans_ts.network import memory_training
    forecaster.LEAST_MEMORY_STEPS, memory_training.LEARNING_RATE = 3, 2e-2  # as in the test, which runs this too
    wide = pd.read_parquet("wide.parquet")
    model = TitansForecaster(h=4, input_size=12, patch_size=4, dim=8, num_layers=1, dropout=0.0, max_epochs=3,
                             batch_size=42, device="cpu", random_state=0, verbose=0).fit(wide, val_size=21)
    rank = os.environ.get("RANK", "alone")
    model.predict().to_parquet(f"{rank}.parquet")
    pd.DataFrame(model.history_.epochs).to_parquet(f"losses-{rank}.parquet")
"""


# 252 windows in batches of 42: each process has as many as the other, so their mean gradient is that of the whole
@pytest.mark.slow
def test_two_processes_match_one(wide, tmp_path, monkeypatch):
    wide.to_parquet(tmp_path / "wide.parquet")
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [sys.executable, "-W", "ignore", *torchrun, "train.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr[-3000:]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)
    runpy.run_path("train.py")
    alone, first, second = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("alone", "0", "1"))
    pd.testing.assert_frame_equal(first, second)
    np.testing.assert_allclose((first - alone) / wide.std(), 0, atol=1e-3)
    losses = [pd.read_parquet(tmp_path / f"losses-{name}.parquet") for name in ("alone", "0")]
    np.testing.assert_allclose(losses[0]["val_loss"], losses[1]["val_loss"], rtol=1e-4)
    np.testing.assert_allclose(losses[0]["train_loss"], losses[1]["train_loss"], rtol=1e-3)


def test_processes_without_a_common_seed_are_refused(tiny, wide, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "of this test")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"2 processes of torchrun .* need one seed.* Give random_state, an integer"):
        tiny(random_state=None).fit(wide)
