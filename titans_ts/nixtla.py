"""The network as a neuralforecast model: ``NeuralForecast(models=[Titans(...), PatchTST(...)], freq="h")``.

Import this module before ``NeuralForecast.load``, which then knows the classes here. darts also accepts the class:
``darts.models.NeuralForecastModel(model=Titans, ...)``. Before its ``load``, call
``darts.utils.serialization.add_safe_globals([Titans])``, which exists, and is needed, from darts 0.48 on.
"""

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any

try:
    import neuralforecast.core
    from neuralforecast.common._base_auto import BaseAuto, MockTrial
    from neuralforecast.common._base_model import BaseModel
    from neuralforecast.losses.pytorch import MAE, DistributionLoss
    from pytorch_lightning import Trainer
    from ray import tune
    from ray.tune.search.basic_variant import BasicVariantGenerator
except ImportError as error:
    raise ImportError("titans_ts.nixtla needs neuralforecast: pip install 'titans-suite[nixtla]'") from error

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core.checks import at_least, below_one
from titans_ts.network.simba import Simba, SimbaConfig, default_patch, default_reach, mean_of_known
from titans_ts.units.column_units import ColumnUnits, Moments

ROUNDING = 1e-6  # relative rounding error of a mean in float32


class Titans(BaseModel):
    """:class:`~titans_ts.network.simba.Simba` as a multivariate neuralforecast model.

    The network normalises each window itself, so ``scaler_type`` defaults to "identity". A distribution loss expects
    its parameters in the units of neuralforecast's scaler: the network then does not normalise, and ``scaler_type``
    must be another, such as "standard". Exogenous columns are standardised by their values in training. With a scaler
    this holds only for static columns; the others are scaled in each window by ``scaler_type``. Where a window has no
    value (before a series that begins late, and where ``available_mask`` is 0), the network reads the mean of the rest;
    before the first value, it reads the means of the exogenous columns too.

    Args:
        h: horizon, in steps.
        input_size: lookback, in steps.
        n_series: number of series in the data.
        futr_exog_list, hist_exog_list, stat_exog_list: exogenous columns by kind.
        exclude_insample_y: must be False, since the network needs the past of the target.
        patch_size, dim, num_layers, num_heads, memory_depth, chunk_size, mixer, multivariate, dropout: as in
            :class:`~titans_ts.TitansForecaster` and :class:`~titans_ts.network.simba.SimbaConfig`.
        loss, valid_loss, max_steps and the rest: as in every neuralforecast model. ``batch_size`` counts series, and
            ``windows_batch_size`` counts windows of all series.

    Raises:
        ValueError: ``exclude_insample_y=True``, a distribution loss without a scaler, or invalid sizes.
        TypeError: an argument that neither this class nor Lightning's Trainer has, or an invalid loss.
    """

    EXOGENOUS_FUTR = True
    EXOGENOUS_HIST = True
    EXOGENOUS_STAT = True
    EXOGENOUS_CAT = True
    MULTIVARIATE = True
    RECURRENT = False

    def __init__(
        self,
        h: int,
        input_size: int,
        n_series: int,
        futr_exog_list: list[str] | None = None,
        hist_exog_list: list[str] | None = None,
        stat_exog_list: list[str] | None = None,
        exclude_insample_y: bool = False,
        patch_size: int | None = None,
        dim: int = 32,
        num_layers: int = 2,
        num_heads: int = 4,
        memory_depth: int = 2,
        chunk_size: int = 4,
        mixer: str = "einfft",
        multivariate: bool = False,
        dropout: float = 0.5,
        loss: Any = MAE(),  # noqa: B008  (as in every model there)
        valid_loss: Any = None,
        max_steps: int = 1000,
        learning_rate: float = 2e-3,
        num_lr_decays: int = -1,
        early_stop_patience_steps: int = -1,
        val_monitor: str = "ptl/val_loss",
        val_check_steps: int = 100,
        batch_size: int = 32,
        valid_batch_size: int | None = None,
        windows_batch_size: int = 64,
        inference_windows_batch_size: int = 256,
        start_padding_enabled: bool = False,
        training_data_availability_threshold: float = 0.0,
        step_size: int = 1,
        scaler_type: str = "identity",
        random_seed: int = 1,
        drop_last_loader: bool = False,
        alias: str | None = None,
        optimizer: Any = None,
        optimizer_kwargs: Any = None,
        lr_scheduler: Any = None,
        lr_scheduler_kwargs: Any = None,
        dataloader_kwargs: Any = None,
        **trainer_kwargs: Any,
    ) -> None:
        if exclude_insample_y:
            raise ValueError("Titans needs the past of the target: exclude_insample_y=True is not supported.")
        _check_names(trainer_kwargs, "Titans")
        _check_loss(loss)
        at_least("input_size", input_size)
        sizes: dict[str, Any] = {
            "h": h,
            "input_size": input_size,
            "patch_size": default_patch(input_size) if patch_size is None else patch_size,
            "dim": dim,
            "num_layers": num_layers,
            "num_heads": num_heads,
            "memory_depth": memory_depth,
            "chunk_size": chunk_size,
        }
        for name, size in {**sizes, "n_series": n_series}.items():
            at_least(name, size)
        below_one("dropout", dropout)
        if loss.is_distribution_output and scaler_type in (None, "identity"):
            raise ValueError(
                "a distribution loss needs a scaler, since its parameters are in units of the scaled series: pass "
                "scaler_type='standard'."
            )
        super().__init__(
            h=h,
            input_size=input_size,
            n_series=n_series,
            futr_exog_list=futr_exog_list,
            hist_exog_list=hist_exog_list,
            stat_exog_list=stat_exog_list,
            exclude_insample_y=exclude_insample_y,
            loss=loss,
            valid_loss=valid_loss,
            max_steps=max_steps,
            learning_rate=learning_rate,
            num_lr_decays=num_lr_decays,
            early_stop_patience_steps=early_stop_patience_steps,
            val_monitor=val_monitor,
            val_check_steps=val_check_steps,
            batch_size=batch_size,
            valid_batch_size=valid_batch_size,
            windows_batch_size=windows_batch_size,
            inference_windows_batch_size=inference_windows_batch_size,
            start_padding_enabled=start_padding_enabled,
            training_data_availability_threshold=training_data_availability_threshold,
            step_size=step_size,
            scaler_type=scaler_type,
            random_seed=random_seed,
            drop_last_loader=drop_last_loader,
            alias=alias,
            optimizer=optimizer,
            optimizer_kwargs=optimizer_kwargs,
            lr_scheduler=lr_scheduler,
            lr_scheduler_kwargs=lr_scheduler_kwargs,
            dataloader_kwargs=dataloader_kwargs,
            **trainer_kwargs,
        )
        sizes_of = {"hist": self.hist_exog_size, "futr": self.futr_exog_size, "stat": self.stat_exog_size}
        # a scaler scales all columns in each window but static ones, which are constant there
        own = ("stat",) if scaler_type not in (None, "identity") else tuple(sizes_of)
        categories = trainer_kwargs.get("cat_exog_list") or ()
        numbers = {kind: sum(c not in categories for c in getattr(self, f"{kind}_exog_list")) for kind in own}
        self.units = nn.ModuleDict(
            {kind: Standardised(count, 1 if kind == "stat" else n_series) for kind, count in numbers.items() if count}
        )
        self.network = Simba(
            SimbaConfig(
                **sizes,
                num_series=n_series if multivariate else None,
                mixer=mixer,
                dropout=dropout,
                outputs=self.loss.outputsize_multiplier,
                **sizes_of,
                reach=default_reach(sizes["patch_size"]),
                normalise=not loss.is_distribution_output,
            )
        )

    def _fit(self, *args: Any, **kwargs: Any) -> Any:
        # BaseModel shuffles the series of each training batch (neuralforecast 3.3), as if they came in several, but
        # here each has its own place, with its own units and, if they are mixed, weights
        return super()._fit(*args, **{**kwargs, "shuffle_train": False})

    def forward(self, windows_batch: dict[str, Tensor]) -> Tensor:
        """insample_y ``[B, L, N]``, hist_exog ``[B, X, L, N]``, futr_exog ``[B, F, L + h, N]``, stat_exog ``[N, S]`` ->
        ``[B, h, N * outputs]``. The outputs of one series are adjacent, unless the loss expects each output for all
        series in turn."""
        x = windows_batch["insample_y"]
        if x.shape[-1] != self.n_series:
            raise ValueError(f"Titans was created with n_series={self.n_series}, but got {x.shape[-1]} series.")
        mask = windows_batch.get("insample_mask")
        known = None if mask is None else mask.reshape(*x.shape[:2], -1).expand_as(x)  # darts: one mask for all series
        begun = None
        if known is not None:
            there = known > 0  # the rest is padding
            x = x.where(there, mean_of_known(x, there)[0])
            begun = F.pad(there.cumsum(1) > 0, (0, 0, 0, self.h), value=True)[..., None]
        columns = {}
        for kind in ("hist", "futr", "stat"):
            given = windows_batch.get(f"{kind}_exog")
            if given is None or not getattr(self.network.config, kind):
                continue
            # static columns are rows of one series
            given = given[None, :, None] if kind == "stat" else given.permute(0, 2, 3, 1)
            if begun is not None and kind != "stat":  # later, columns may be known where the series is not
                rows = begun[:, : given.shape[1]]
                given = given.where(rows, mean_of_known(given, rows)[0])
            if kind in self.units:
                given = self.units[kind](given, None if kind == "stat" else known)
            columns[kind] = given[:, :, 0].expand(len(x), -1, -1) if kind == "stat" else given
        y: Tensor = self.network(x, **columns)
        # this loss expects the first parameter of all series, then the second, ...
        domain_map = getattr(self.loss, "domain_map", None)
        if getattr(domain_map, "__func__", None) is DistributionLoss._domain_map:
            y = y.reshape(len(x), self.h, x.shape[-1], -1).transpose(-2, -1)
        return y.reshape(len(x), self.h, -1)


class Standardised(nn.Module):
    """Standardises columns ``[B, T, series, columns]`` by running statistics over the training batches.

    See :class:`~titans_ts.units.column_units.ColumnUnits`. The estimator computes them once from all training rows,
    but a neuralforecast model sees only windows. Their zero padding beyond the ends of a series is excluded.
    """

    number: Tensor
    mean: Tensor
    variance: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, columns: int, series: int) -> None:
        super().__init__()
        nothing = torch.zeros(series, columns)
        end = nothing + torch.inf
        for name, part in Moments(nothing.long(), nothing, nothing, end, -end)._asdict().items():
            self.register_buffer(name, part.clone())

    def forward(self, x: Tensor, known: Tensor | None = None) -> Tensor:
        """``known`` ``[B, L, series]`` marks the values that are not padding in the first L rows of x. Further columns
        of x, the embeddings of categories, stay as they are: they are learned, and so change in training."""
        x, embedded = x.tensor_split([self.mean.shape[-1]], dim=-1)
        seen = Moments(*(getattr(self, name) for name in Moments._fields))
        if self.training:
            rows = x.detach() if known is None else x.detach()[:, : known.shape[1]]
            true = torch.ones_like(rows[..., :1]) if known is None else known[..., None]
            seen = seen.joined(Moments.of(rows.flatten(0, 1), true.flatten(0, 1) > 0))
            for name, part in seen._asdict().items():
                getattr(self, name).copy_(part)
        # the number of rows is unknown, since each is in many windows: once=0 does without it
        return torch.cat((ColumnUnits.of(seen, ROUNDING, once=0.0).standardised(x), embedded), dim=-1)


class AutoTitans(BaseAuto):
    """:class:`Titans` with a hyperparameter search by Ray Tune (``backend="ray"``) or Optuna (``backend="optuna"``).

    Arguments as in every Auto model of neuralforecast.
    """

    default_config = {  # noqa: RUF012  (neuralforecast copies it)
        "input_size_multiplier": [1, 2, 3, 4],
        "h": None,
        "n_series": None,
        "patch_size": tune.choice([8, 16, 24]),
        "dim": tune.choice([16, 32, 64]),
        "num_layers": tune.choice([1, 2, 3]),
        "memory_depth": tune.choice([1, 2]),
        "chunk_size": tune.choice([2, 4, 8]),
        "multivariate": tune.choice([False, True]),
        "dropout": tune.choice([0.0, 0.1, 0.3, 0.5]),
        "learning_rate": tune.loguniform(5e-4, 1e-2),
        "max_steps": tune.choice([300, 600, 1000]),
        "loss": None,
        "random_seed": tune.randint(1, 20),
    }

    def __init__(
        self,
        h: int,
        n_series: int,
        loss: Any = MAE(),  # noqa: B008
        valid_loss: Any = None,
        config: Any = None,
        search_alg: Any = None,
        num_samples: int = 10,
        time_budget: int | None = None,
        refit_with_val: bool = False,
        verbose: bool = False,
        alias: str | None = None,
        backend: str = "ray",
        callbacks: Any = None,
        ray_options: Any = None,
        optuna_options: Any = None,
    ) -> None:
        at_least("h", h)
        at_least("n_series", n_series)
        _check_loss(loss)
        if backend not in ("ray", "optuna"):
            raise ValueError(f"backend must be 'ray' or 'optuna', got {backend!r}.")
        if config is None:
            # the parameters of a distribution loss are in units of a scaler
            scaler = "standard" if loss.is_distribution_output else "identity"
            config = self.get_default_config(h=h, backend=backend, n_series=n_series, scaler_type=scaler)
        if backend == "ray":
            if not isinstance(config, Mapping):
                raise TypeError(f"config must be a dict for backend='ray', got {type(config).__name__}.")
            config = {**config, "n_series": n_series}
            names: Any = config
        else:
            names = config(MockTrial()) if callable(config) else None
            if not isinstance(names, Mapping):
                raise TypeError("config must be a function trial -> dict for backend='optuna'.")
            if names.get("n_series") != n_series:
                raise ValueError(f"config must return 'n_series': {n_series}, the number of series in the data.")
        # neuralforecast turns the multiplier of default_config into a lookback
        _check_names(set(names) - {*signature(Titans).parameters, "input_size_multiplier"}, "config of AutoTitans")
        if search_alg is None and backend == "ray":
            search_alg = BasicVariantGenerator(random_state=1)
        super().__init__(
            cls_model=Titans,
            h=h,
            loss=loss,
            valid_loss=valid_loss,
            config=config,
            search_alg=search_alg,
            num_samples=num_samples,
            time_budget=time_budget,
            refit_with_val=refit_with_val,
            verbose=verbose,
            alias=alias,
            backend=backend,
            callbacks=callbacks,
            ray_options=ray_options,
            optuna_options=optuna_options,
        )

    @classmethod
    def get_default_config(cls, h: int, backend: str, n_series: int, **fixed: Any) -> Any:
        """The default search space: a dict for Ray, a function of a trial for Optuna. ``fixed`` adds constants."""
        config: Any = cls.default_config | fixed
        multipliers = config.pop("input_size_multiplier")
        config.setdefault("input_size", tune.choice([h * x for x in multipliers]))
        if backend == "optuna":
            config["n_series"] = n_series
            config = cls._ray_config_to_optuna(config)
        return config


def _check_names(names: Iterable[str], where: str) -> None:
    """Reject arguments that neither Lightning's Trainer has, which gets all that the model does not know, nor
    BaseModel, whose arguments a saved model contains."""
    unknown = sorted(set(names) - set(signature(Trainer).parameters) - set(signature(BaseModel).parameters))
    if unknown:
        raise TypeError(
            f"{where}: neither Titans nor Lightning's Trainer has {unknown}. Titans has the sizes patch_size, dim, "
            "num_layers, num_heads, memory_depth and chunk_size."
        )


def _check_loss(loss: Any) -> None:
    if not hasattr(loss, "is_distribution_output"):
        raise TypeError(f"loss must be one of neuralforecast.losses.pytorch, such as MAE(), got {loss!r}.")


# NeuralForecast.save and load look classes up here
neuralforecast.core.MODEL_FILENAME_DICT.update({"titans": Titans, "autotitans": Titans})
