"""``python -m titans_ts``: the forecaster from the command line."""

from titans_ts.cli.commands import app

if __name__ == "__main__":
    app(prog_name="python -m titans_ts")
