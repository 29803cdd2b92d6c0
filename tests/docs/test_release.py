"""A release: the wheel and what is in it, its papers, and the files for those who deploy it."""

import configparser
import email
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import programs
from docs.sbom import document, pinned
from vicinal import __version__

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel with the builder that is here; nothing is fetched."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_is_small_and_holds_the_package(wheel):
    assert wheel.stat().st_size < 2_000_000
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
    assert not [name for name in names if name.endswith("mnist.npz")]
    known = subprocess.run(
        ["git", "ls-files", "src/vicinal"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    missing = {name.removeprefix("src/") for name in known} - names
    assert missing == {"vicinal/datasets/data/mnist.npz"}


def test_the_wheel_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as files:
        (name,) = (n for n in files.namelist() if n.endswith("/METADATA"))
        told = email.message_from_bytes(files.read(name))
    assert (told["Name"], told["Version"]) == ("vicinal", __version__)
    assert told["License-Expression"] == "Apache-2.0"
    assert {"serve", "text", "demo", "docs"} <= set(told.get_all("Provides-Extra"))


def test_without_the_digits_it_is_said_what_to_install(monkeypatch, tmp_path):
    from vicinal.datasets import load_mnist
    from vicinal.errors import MissingExtra

    monkeypatch.setattr("vicinal.datasets._dataset.files", lambda _: tmp_path)
    with pytest.raises(MissingExtra, match=r"vicinal\[demo\]"):
        load_mnist()


def test_the_version_is_one():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    assert project["version"] == __version__
    assert f"\nversion: {__version__}\n" in text("CITATION.cff")
    assert f"\n## [{__version__}] - 20" in text("CHANGELOG.md")


def test_python_is_the_same_everywhere():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    versions = [c.rpartition(" ")[2] for c in project["classifiers"] if ":: Python :: 3." in c]
    assert versions == ["3.11", "3.12", "3.13"]
    for page in ("README.md", "SECURITY.md"):
        assert all(version in text(page) for version in (versions[0], versions[-1])), page


def test_the_bill_of_materials_holds_every_pin():
    found = document(pinned())
    pins = re.findall(r"^([\w.-]+)(?:\[.*?\])?==([^\s;\\]+)", pinned(), flags=re.MULTILINE)
    plain = [component["name"] for component in found["components"] if "hashes" not in component]
    assert plain == ["torch"]  # pinned by its version alone: CPU and CUDA builds share one
    names = {(c["name"], c["version"]) for c in found["components"]}
    assert names == {(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in pins}
    assert len(names) > 50
    assert json.dumps(found)


def test_hashes_of_pins_are_in_the_bill():
    hashed = "".join(f" \\\n    --hash=sha256:{digest * 32}" for digest in ("ab", "cd"))
    hashed = f"numpy==2.4.6{hashed}\nnext==1\n"
    first, second = document(hashed)["components"]
    assert [h["content"] for h in first["hashes"]] == ["ab" * 32, "cd" * 32]
    assert "hashes" not in second


def test_the_unit_starts_what_there_is():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(DEPLOY / "vicinal.service")
    service = unit["Service"]
    assert service["ExecStart"].split()[1:3] == ["serve", "/var/lib/vicinal/store"]
    assert service["LimitCORE"] == "0"
    assert int(service["TimeoutStopSec"]) > 30


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit(tmp_path):
    """With a program and a user that are here, as it checks both."""
    unit = (DEPLOY / "vicinal.service").read_text(encoding="utf-8")
    unit = unit.replace("/opt/vicinal/bin/vicinal", "/bin/true").replace(
        "=vicinal\nGroup", "=root\nGroup"
    )
    copy = tmp_path / "vicinal.service"
    copy.write_text(unit.replace("Group=vicinal", "Group=root"), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    told = [line for line in done.stderr.splitlines() if "vicinal.service" in line]
    assert (done.returncode, told) == (0, []), done.stderr


def test_the_proxy_keeps_ids_and_metrics_inside():
    conf = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    code = re.sub(r"#.*", "", conf)
    assert code.count("{") == code.count("}") > 5
    lines = [line.strip() for line in code.splitlines() if line.strip()]
    assert [line for line in lines if line[-1] not in ";{}"] == []
    assert "~^/v1/subjects/ 0;" in code
    assert "$request_uri" not in code.split("log_format")[1].split(";")[0]
    assert re.search(r"location = /metrics \{\s*deny all;", code)
    assert "proxy_pass http://127.0.0.1:8000;" in code


def test_nginx_takes_the_configuration(tmp_path):
    conf = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    conf = re.sub(r"listen 443 ssl;|http2 on;|ssl_\w+ [^;]*;", "", conf)
    conf = conf.replace("/var/log/nginx", str(tmp_path))
    copy = tmp_path / "nginx.conf"
    copy.write_text(f"pid {tmp_path}/pid;\n{conf}", encoding="utf-8")
    command = [programs.needed("nginx"), "-t", "-c", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
