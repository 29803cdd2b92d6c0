"""A release: the wheel and what is in it, its papers, and the files for those who deploy it."""

import email
import json
import os
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
from vicinal.compiled import compute_source_digest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def run(*command, **options):
    """Return a finished process, with its outputs as text."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel with the builder that is here; nothing is fetched."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    done = run(*build, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_is_small_and_holds_the_package(wheel):
    assert wheel.stat().st_size < 2_000_000
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
    known = run("git", "ls-files", "src/vicinal", cwd=ROOT).stdout.split()
    assert known
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

    monkeypatch.setattr("vicinal.datasets.dataset.files", lambda _: tmp_path)
    with pytest.raises(MissingExtra, match=r"vicinal\[demo\]"):
        load_mnist()


def test_version_and_python_are_the_same_everywhere():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    assert project["version"] == __version__
    assert f"\nversion: {__version__}\n" in text("CITATION.cff")
    assert f"\n## [{__version__}] - 20" in text("CHANGELOG.md")
    versions = [c.rpartition(" ")[2] for c in project["classifiers"] if ":: Python :: 3." in c]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
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


def unit_of(*names):
    """Return the sections of a unit with its drop-ins: each key has all of its values."""
    found = {}
    for name in names:
        section = ""
        for line in text(f"examples/deploy/{name}").splitlines():
            if line.startswith("["):
                section = line.strip("[]")
            elif "=" in line and not line.startswith("#"):
                key, _, value = line.partition("=")
                found.setdefault((section, key), []).extend(value.split())
    return found


def test_the_unit_starts_what_there_is():
    unit = unit_of("vicinal.service")
    assert unit["Service", "ExecStart"][1:3] == ["serve", "/var/lib/vicinal/store"]
    assert unit["Service", "LimitCORE"] == ["0"]
    assert int(unit["Service", "TimeoutStopSec"][0]) > 30
    # Its own folders, and the witness's disk, which must be there first.
    assert unit["Service", "ReadWritePaths"] == ["/srv/vicinal-witness"]
    assert "/srv/vicinal-witness" in unit["Unit", "RequiresMountsFor"]


def test_a_ledger_elsewhere_can_be_reached_and_nothing_else():
    """Fails if the way to a remote server, or what proves its user, is closed by the unit."""
    unit = unit_of("vicinal.service", "postgresql.conf")
    assert unit["Service", "IPAddressDeny"] == ["any"]
    assert unit["Service", "IPAddressAllow"] == ["localhost", "192.0.2.10"]
    places = dict(pair.split("=") for pair in unit["Service", "Environment"])
    assert {places[name] for name in ("XDG_CONFIG_HOME", "PGPASSFILE")} == {
        "/var/lib/vicinal/config", "/var/lib/vicinal/pgpass",
    }  # fmt: skip
    assert "network-online.target" in unit["Unit", "After"]


@pytest.mark.parametrize("drop_in", [False, True])
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit(tmp_path, drop_in):
    """With a program and a user that are here, as it checks both."""
    unit = text("examples/deploy/vicinal.service")
    unit = unit.replace("/opt/vicinal/bin/vicinal", "/bin/true")
    copy = tmp_path / "vicinal.service"
    copy.write_text(re.sub("(User|Group)=vicinal", r"\1=root", unit), encoding="utf-8")
    if drop_in:
        folder = tmp_path / "vicinal.service.d"
        folder.mkdir()
        shutil.copy(DEPLOY / "postgresql.conf", folder)
    done = run("systemd-analyze", "verify", copy)
    told = [line for line in done.stderr.splitlines() if "vicinal.service" in line]
    assert (done.returncode, told) == (0, []), done.stderr


_READ_ONLY = r"""
set -e
for top in /var/lib /var/cache /srv /etc/systemd; do mount -t tmpfs -o mode=755 none $top; done
for place; do mkdir -p $place; mount --bind $place $place; done
if [ -d "$KERNELS" ]; then
    mkdir -m 700 "$XDG_CACHE_HOME/vicinal"
    cp -a "$KERNELS" "$XDG_CACHE_HOME/vicinal"
fi
findmnt -rno TARGET | grep -vE '^/(proc|sys|dev)' | while read at; do
    case " $* " in *" $at "*) ;; *) mount -o remount,bind,ro $at ;; esac
done
! touch /srv/x /var/lib/x /etc/x 2>/dev/null
"$PYTHON" -B -c "$CHILD"
"""


def test_the_unit_may_write_all_that_a_service_writes():
    """The unit's folders and nothing else can be written; fails if a service needs more."""
    unit = unit_of("vicinal.service")
    program = """
import pathlib, subprocess, sys
import serving_tools, store_tools as tools
from vicinal.serving.keys import KeyFile
witness = pathlib.Path("/srv/vicinal-witness/store.witness")
folder = pathlib.Path("/var/lib/vicinal/store")
with tools.make(folder, witness=witness):
    key = KeyFile(folder).add("anna", "analyst", "default")
before = witness.read_bytes()
command = [sys.executable, "-B", "-m", "vicinal", *ARGUMENTS, "--port", "0"]
with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
    url = next(line for line in process.stderr if line.startswith("http"))
    port = int(url.split(":")[2].split("/")[0])
    service = serving_tools.Service(port, folder, None, {"analyst": key})
    reply = service.predict(tools.Q[:2].tolist())
    process.terminate()
assert (reply.status, reply.body["charged"], process.returncode) == (200, 2, 0), reply.body
assert witness.read_bytes() != before
print("served")
"""
    if not _can_mount():
        pytest.skip("only root can mount here")
    states = [f"/var/lib/{name}" for name in unit["Service", "StateDirectory"]]
    caches = [f"/var/cache/{name}" for name in unit["Service", "CacheDirectory"]]
    settings = dict(pair.split("=") for pair in unit["Service", "Environment"])
    arguments = [w for w in unit["Service", "ExecStart"][1:] if w not in ("--port", "8000")]
    environment = {
        **os.environ, **settings, "PYTHON": sys.executable, "TMPDIR": caches[0],
        "CHILD": program.replace("ARGUMENTS", repr(arguments)),
        "KERNELS": str(find_compiled_kernels()), "PYTHONPATH": f"{ROOT}/src:{ROOT}/tests",
    }  # fmt: skip
    places = [*states, *caches, *unit["Service", "ReadWritePaths"]]

    service = ("unshare", "-m", "sh", "-c", _READ_ONLY, "sh")
    done = run(*service, *places, env=environment, cwd="/")
    assert (done.returncode, done.stdout) == (0, "served\n"), done.stderr
    done = run(*service, *places[:-1], env=environment, cwd="/")
    assert done.returncode, "without the witness's disk nothing is served"


def find_compiled_kernels():
    """Return the folder of the code that tests have compiled: compiling takes half a minute."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    digest = compute_source_digest(ROOT / "src" / "vicinal" / "compiled.py")
    return base / "vicinal" / f"kernels-{digest}"


def _can_mount():
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/srv"]
    return shutil.which("unshare") and not subprocess.run(command, check=False).returncode


def test_the_container_is_small_and_no_root_and_has_two_volumes():
    """No builder is here: this reads what a linter would."""
    content = re.sub(r"(?m)^#.*\n", "", text("examples/deploy/Containerfile"))
    lines = re.sub(r"\\\n", " ", content).splitlines()
    steps = [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]
    bases = [step[1].split()[0] for step in steps if step[0] == "FROM"]
    pinned = r"docker\.io/library/python:3\.\d+\.\d+-slim-\w+"
    assert all(re.fullmatch(pinned, base) for base in bases), bases
    last = dict(steps[[step[0] for step in steps].index("FROM", 1) :])
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", last["USER"])
    unit = unit_of("vicinal.service")
    witness = unit["Service", "ReadWritePaths"]
    assert json.loads(last["VOLUME"]) == ["/var/lib/vicinal", *witness]
    assert json.loads(last["CMD"])[:2] == unit["Service", "ExecStart"][1:3]
    for step in steps:
        if step[0] == "COPY" and "--from" not in step[1]:
            assert all((ROOT / source).exists() for source in step[1].split()[:-1]), step


def test_deployments_install_pinned_versions_only():
    """Fails if a command of the page or of the container resolves versions itself."""
    page = text("docs/how-to/deploy.md")
    for content in (page, text("examples/deploy/Containerfile")):
        commands = re.findall(r"/opt/vicinal/bin/pip install (.*)", content.replace("\\\n", " "))
        assert len(commands) >= 2
        for command in commands:
            words = command.split()
            assert "--no-deps" in words
            files = [word for word in words if word.startswith("requirements/")]
            assert ("--require-hashes" in words) == bool(files)
            assert all((ROOT / file).is_file() for file in files)
            assert files or words[-2:] == ["--no-build-isolation", "."]
    assert "\nhatchling==" in text("requirements/core.txt")


def test_the_proxy_keeps_ids_and_metrics_inside():
    conf = text("examples/deploy/nginx.conf")
    code = re.sub(r"#.*", "", conf)
    assert code.count("{") == code.count("}") > 5
    lines = [line.strip() for line in code.splitlines() if line.strip()]
    assert [line for line in lines if line[-1] not in ";{}"] == []
    assert "~^/v1/subjects/ 0;" in code
    assert "$request_uri" not in code.split("log_format")[1].split(";")[0]
    assert re.search(r"location = /metrics \{\s*deny all;", code)
    assert "proxy_pass http://127.0.0.1:8000;" in code


def test_nginx_takes_the_configuration(tmp_path):
    conf = text("examples/deploy/nginx.conf")
    conf = re.sub(r"listen 443 ssl;|http2 on;|ssl_\w+ [^;]*;", "", conf)
    conf = conf.replace("/var/log/nginx", str(tmp_path))
    copy = tmp_path / "nginx.conf"
    copy.write_text(f"pid {tmp_path}/pid;\n{conf}", encoding="utf-8")
    done = run(programs.needed("nginx"), "-t", "-c", copy)
    assert done.returncode == 0, done.stderr
