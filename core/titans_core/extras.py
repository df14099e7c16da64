"""Packages that come with an extra of the installation."""

from importlib import metadata


def require(package: str, what: str, extra: str) -> None:
    """Raise an ImportError if a package of an extra is not installed.

    Checks the installed packages instead of ``import``, because a local folder named ``datasets`` can be imported too.
    """
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError as error:
        raise ImportError(f"{what} needs the package {package}: pip install 'titans-suite[{extra}]'") from error
