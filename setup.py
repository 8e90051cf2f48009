"""Packages whose folder has another name, and the static C programs that run inside and around a sandbox."""

import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent

# The package's name -> its folder in the source tree.
RENAMED = {
    name: folder
    for name, folder in {
        "tvsnap_cli": "cli",
        "tvsnap_cli.plugins": "cli/plugins",
        "tvsnap_cli.plugins.screens": "cli/plugins/screens",
        "tvsnap_images": "images",
    }.items()
    if (HERE / folder).is_dir()
}


# What `tvsnap setup` runs and builds from; in the package it has the same paths below this one.
SCRIPTS = [
    "scripts/common.sh",
    "scripts/apt_sources.sh",
    "scripts/build_criu.sh",
    "scripts/ensure_criu.sh",
    "native/criu",
]
CARRIED = "tvsnap/host/setup"


class BuildWithNative(build_py):
    """Compiles the C programs before their binaries are collected as package data, and adds scripts."""

    def run(self) -> None:
        # The Makefile is the one place that knows how they are compiled; a second run does nothing.
        subprocess.run(["make", "--no-print-directory", "native"], cwd=HERE, check=True)
        super().run()
        if self.editable_mode:
            return
        for path in SCRIPTS:
            target = Path(self.build_lib, CARRIED, path)
            if (HERE / path).is_dir():
                shutil.copytree(HERE / path, target, dirs_exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(HERE / path, target)


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
            "host/bin/**/*",
            "plugins/server/page/*",
            "**/*.sql",
        ],
        "tvsnap_cli": ["*.css", "*.js"],
        "tvsnap_images": ["*/*", "*/**/*"],
    },
    cmdclass={"build_py": BuildWithNative},
    distclass=PlatformDistribution,
)
