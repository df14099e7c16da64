"""Time series: where each set is published, its checksum, and its content."""

from titans_datasets.sources.entries import SeriesInfo

__all__ = ["ALIASES", "SERIES"]

_GITHUB = "https://raw.githubusercontent.com"
_ETT = f"{_GITHUB}/zhouhaoyi/ETDataset/1d16c8f4f943005d613b5bc962e9eeb06058cf07/ETT-small"
_LSTNET = f"{_GITHUB}/laiguokun/multivariate-time-series-data/7f402f185cc2435b5e66aed13a3b560ed142e023"
_WEATHER = f"{_GITHUB}/ljnvs/HiCR-Mamba/d472c100956ed4373e9ca3700481ce88f8f1e4dd/datasets/weather"
_DARTS = f"{_GITHUB}/unit8co/darts/2be8e43fbdc1265209f33bbe8bae81f3e4d9146f/datasets"

_ETT_COLUMNS = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
_ETT_LICENCE = "CC BY-ND 4.0: share unmodified and with attribution; do not share scaled or derived copies"
_ETT_CITATION = "Zhou et al., Informer, AAAI 2021 (arXiv:2012.07436)"
_ETT_NOTE = (
    "Six load features of an electricity transformer and its oil temperature OT (degrees Celsius). "
    "The benchmark protocol uses the first 20 months only; see protocol_split."
)
_LSTNET_LICENCE = "not stated for the data; its README offers it for research"
_LSTNET_CITATION = "Lai et al., Modeling Long- and Short-Term Temporal Patterns, SIGIR 2018 (arXiv:1703.07015)"
_STAMPS_NOTE = (
    "The published file has neither header nor stamps. The stamps (hourly from 2016-07-01 02:00) and the column "
    "names ('0', '1', ..., last column 'OT') are the convention of the benchmark's csv files, "
    "not the dates of measurement"
)
# the published header has U+FFFD where the degree, mu and superscript signs were lost
_WEATHER_COLUMNS = (
    "p (mbar)",
    "T (degC)",
    "Tpot (K)",
    "Tdew (degC)",
    "rh (%)",
    "VPmax (mbar)",
    "VPact (mbar)",
    "VPdef (mbar)",
    "sh (g/kg)",
    "H2OC (mmol/mol)",
    "rho (g/m**3)",
    "wv (m/s)",
    "max. wv (m/s)",
    "wd (deg)",
    "rain (mm)",
    "raining (s)",
    "SWDR (W/m\ufffd)",
    "PAR (\ufffdmol/m\ufffd/s)",
    "max. PAR (\ufffdmol/m\ufffd/s)",
    "Tlog (degC)",
    "OT",
)


def _ett(name: str, sha256: str) -> SeriesInfo:
    hourly = name.startswith("ETTh")
    return SeriesInfo(
        name=name,
        file=f"{name}.csv",
        url=f"{_ETT}/{name}.csv",
        checksum=f"sha256:{sha256}",
        layout="csv",
        licence=_ETT_LICENCE,
        citation=_ETT_CITATION,
        shape=(17420 if hourly else 69680, 7),
        columns=_ETT_COLUMNS,
        freq="h" if hourly else "15min",
        season_length=24 if hourly else 96,
        start="2016-07-01 00:00:00",
        end="2018-06-26 19:00:00" if hourly else "2018-06-26 19:45:00",
        note=_ETT_NOTE,
    )


def _benchmark_columns(n: int) -> tuple[str, ...]:
    return (*map(str, range(n - 1)), "OT")


SERIES = (
    _ett("ETTh1", "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066"),
    _ett("ETTh2", "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b"),
    _ett("ETTm1", "6ce1759b1a18e3328421d5d75fadcb316c449fcd7cec32820c8dafda71986c9e"),
    _ett("ETTm2", "db973ca252c6410a30d0469b13d696cf919648d0f3fd588c60f03fdbdbadd1fd"),
    SeriesInfo(
        name="weather",
        file="weather.csv",
        url=f"{_WEATHER}/weather.csv.gz",
        checksum="sha256:34ee981d07313e51da2a50bb600072c8ae4a69cb4b0651f4cb93a069d7a2ba63",
        layout="csv",
        licence="not stated; measured by the Max Planck Institute for Biogeochemistry, Jena",
        citation="Wu et al., Autoformer, NeurIPS 2021 (arXiv:2106.13008), from the public record of the Jena station",
        shape=(52696, 21),
        columns=_WEATHER_COLUMNS,
        freq="10min",
        season_length=144,
        start="2020-01-01 00:10:00",
        end="2021-01-01 00:00:00",
        regular=False,
        note=(
            "Kept as published: 81 readings of -9999 mean 'missing' (wv 1, max. PAR 30, OT 50; all in the training "
            "rows), the stamp 2020-05-12 06:00 occurs twice (rows 19043 and 19044, 0-based), 100 minutes pass before "
            "row 21514, and the header lost some signs to U+FFFD. Published benchmark numbers leave all of this in."
        ),
    ),
    SeriesInfo(
        name="ECL",
        file="electricity.txt.gz",
        url=f"{_LSTNET}/electricity/electricity.txt.gz",
        checksum="git:df158a9fff65428ece107200432a72c992d5e4e9",
        layout="matrix",
        licence=f"{_LSTNET_LICENCE}. Derived from UCI ElectricityLoadDiagrams20112014 (CC BY 4.0 by its UCI page)",
        citation=f"{_LSTNET_CITATION}; Trindade, ElectricityLoadDiagrams20112014, UCI",
        shape=(26304, 321),
        columns=_benchmark_columns(321),
        freq="h",
        season_length=24,
        start="2016-07-01 02:00:00",
        end="2019-07-02 01:00:00",
        note=(
            f"Hourly electricity consumption (kWh) of 321 clients. {_STAMPS_NOTE} (2012 to 2014). "
            "For sha256sum: 3c4c069588198c1fcc95cace7bb69c99922129edfd673b7286661dad20badefa, as reported by "
            "several users of the file; load checks the git blob id."
        ),
    ),
    SeriesInfo(
        name="traffic",
        file="traffic.txt.gz",
        url=f"{_LSTNET}/traffic/traffic.txt.gz",
        checksum="git:63ddb74bf7602568f36056a0b1a47aa407f0a6fe",
        layout="matrix",
        licence=f"{_LSTNET_LICENCE}. Derived from the Caltrans PeMS record",
        citation=f"{_LSTNET_CITATION}; California Department of Transportation, PeMS",
        shape=(17544, 862),
        columns=_benchmark_columns(862),
        freq="h",
        season_length=24,
        start="2016-07-01 02:00:00",
        end="2018-07-02 01:00:00",
        note=(
            f"Hourly road occupancy (0 to 1) at 862 sensors of San Francisco Bay Area freeways. {_STAMPS_NOTE} "
            "(2015 to 2016). "
            "For sha256sum: c7be5a00519d344a5ec0eabdbfec5ea0c7dd1eed5f9b1a3843a93bb88086a56d, as reported by "
            "several users of the file; load checks the git blob id."
        ),
    ),
    SeriesInfo(
        name="AirPassengers",
        file="AirPassengers.csv",
        url=f"{_DARTS}/AirPassengers.csv",
        checksum="sha256:5f8b316b84545d9cfb05612298df8415ce4c44421c7012d109465564b07ebc06",
        layout="csv",
        licence="Apache-2.0 (the repository that publishes this copy)",
        citation="Box, Jenkins, Time Series Analysis: Forecasting and Control, series G",
        shape=(144, 1),
        columns=("#Passengers",),
        freq="MS",
        season_length=12,
        start="1949-01-01 00:00:00",
        end="1960-12-01 00:00:00",
        note="Passengers of international airlines per month, in thousands. Not part of the benchmark; for examples.",
    ),
)

ALIASES = {"electricity": "ecl"}  # its name in Time-Series-Library
