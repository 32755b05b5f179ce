"""What a stranger installs is all there and works far from this folder."""

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHIPPED = ("app", "planner", "presets")
PACKED = {".csv", ".py", ".toml", ".typed"}
PIP = (sys.executable, "-m", "pip")


def run(*command, cwd):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from a copy, for a build leaves its traces beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in SHIPPED:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, source)
    run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source, cwd=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The `bin` folder of an environment that has the wheel, and every other library from the running one."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv")
    bin_folder = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    python = bin_folder / "python"
    run(*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    own = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    # The path files of a folder that is itself named by a path file are not read, so an editable install stays out.
    Path(own, "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return bin_folder


def test_every_file_is_in_the_wheel(wheel):
    expected = {
        ("" if name == "planner" else "planner/") + path.relative_to(ROOT).as_posix()
        for name in SHIPPED
        for path in (ROOT / name).rglob("*")
        if path.suffix in PACKED and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert sorted(packed ^ expected) == []


def test_the_installed_planner_loads_a_preset(installed, tmp_path):
    code = "import planner; print(planner.__file__); print(planner.parameters(planner.load('llama-3.1-8b')))"
    where, parameters = run(installed / "python", "-I", "-c", code, cwd=tmp_path).splitlines()
    assert Path(where).is_relative_to(installed.parent)
    assert int(parameters) == 8_030_261_248


def test_the_installed_command_compares(installed, tmp_path):
    assert run(installed / "planner", "compare", cwd=tmp_path)
