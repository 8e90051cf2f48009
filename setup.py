"""Packages whose folder has another name, and the static C programs that run inside and around a sandbox."""

import subprocess
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent

# The package's name -> its folder in the source tree.
RENAMED = {
    name: folder
    for name, folder in {"tvsnap_cli": "cli", "tvsnap_images": "images"}.items()
    if (HERE / folder).is_dir()
}


class BuildWithNative(build_py):
    """Compiles the C programs before their binaries are collected as package data."""

    def run(self) -> None:
        # The Makefile is the one place that knows how they are compiled; a second run does nothing.
        subprocess.run(["make", "--no-print-directory", "native"], cwd=HERE, check=True)
        super().run()


class PlatformDistribution(Distribution):
    """Says that the package holds machine code, so that its wheel is not taken for one that runs anywhere."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    packages=[*find_packages(include=["tvsnap", "tvsnap.*"]), *RENAMED],
    package_dir=RENAMED,
    package_data={
        "tvsnap": [
            "py.typed",
            "guest/rc",
            "host/bin/*",
            "host/bin/criu_plugin/*",
            "**/*.sql",
        ],
        "tvsnap_images": ["*/*", "*/**/*"],
    },
    cmdclass={"build_py": BuildWithNative},
    distclass=PlatformDistribution,
)
