"""What the workflows, templates and hooks name exists, they cover what CONTRIBUTING promises, and may do no more."""

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from academy.book import exercise_files
from tests.kernels.harness import ROOT
from tests.test_constraints import SETS

WORKFLOWS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / ".github/workflows").glob("*.yml")}


canary = SimpleNamespace(**runpy.run_path(str(ROOT / ".ci/canary.py")))
JOBS = [(workflow, name) for workflow, content in WORKFLOWS.items() for name in content["jobs"]]


def steps(workflow, job):
    return WORKFLOWS[workflow]["jobs"][job].get("steps", [])


def lines(workflow):
    """What a workflow runs, as one text."""
    return "\n".join(step.get("run", "") for job in WORKFLOWS[workflow]["jobs"] for step in steps(workflow, job))


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_a_workflow_names_exists(name):
    makefile = (ROOT / "Makefile").read_text("utf-8").replace("$(VENV)", ".venv")
    for target in re.findall(r"\bmake (?:\w+=\S+ )*([\w./-]+)", lines(name)):
        # a rule may make several targets
        assert re.search(rf"^(?:[^:\n]* )?{re.escape(target)}(?: [^:\n]*)?:", makefile, re.M), target
    for path in re.findall(r"(?<!\S)tests/\S+", lines(name)):
        assert (ROOT / path).exists(), path
    for job in WORKFLOWS[name]["jobs"].values():
        assert "timeout-minutes" in job or (ROOT / job["uses"]).is_file()


def test_the_night_judges_every_public_function_and_runs_all_the_rest():
    assert "pytest -m nightly -n auto ${{ matrix.tests }}" in lines("nightly")
    (judge, rest) = WORKFLOWS["nightly"]["jobs"]["nightly"]["strategy"]["matrix"]["tests"]
    assert rest == f"tests --ignore {judge}"
    assert (ROOT / judge / "test_public.py").is_file()


def test_every_supported_python_and_torch_is_tested():
    matrix = WORKFLOWS["test"]["jobs"]["test"]["strategy"]["matrix"]["include"]
    pythons = {"3.11", "3.12", "3.13", "3.14"}
    assert {entry["python"] for entry in matrix} == pythons
    assert {entry["torch"] for entry in matrix} == {path.stem.removeprefix("torch-") for path in SETS}
    default = re.search(r"^TORCH +\?= (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.M)[1]
    assert {entry["python"] for entry in matrix if entry["torch"] == default} == pythons


def test_the_canary_may_fail_and_opens_with_what_changed():
    job, run = WORKFLOWS["canary"]["jobs"]["canary"], lines("canary")
    newest = max(SETS, key=lambda path: tuple(map(int, re.findall(r"\d+", path.stem))))
    assert job["continue-on-error"] is True and f"torch-{job['env']['TORCH']}" == newest.stem
    assert run.index("make ") < run.index("canary.py") < run.index("GITHUB_STEP_SUMMARY") < run.index("pytest")
    others = [job for workflow, name in JOBS if workflow != "canary" for job in [WORKFLOWS[workflow]["jobs"][name]]]
    assert not any("continue-on-error" in job for job in others)


def test_what_changed_is_said_by_name():
    before = dict(packages=["numpy 2.4.6", "triton 3.8.0"], names=["tl.advance", "tl.load"])
    after = dict(packages=["numpy 2.4.6", "triton 3.9.0"], names=["tl.atomic_load", "tl.load"])
    said = canary.changes(before, after)
    assert said[2:] == [
        "- packages, gone: `triton 3.8.0`",
        "- packages, new: `triton 3.9.0`",
        "- names, gone: `tl.advance`",
        "- names, new: `tl.atomic_load`",
    ]
    assert canary.changes(after, after)[2:] == ["Nothing: they are the pinned ones."]
    triton = pytest.importorskip("triton")
    found = canary.surface()
    assert f"triton {triton.__version__}" in found["packages"]
    assert {"tl.atomic_add", "launch option enable_fp_fusion", "interpreter.InterpreterBuilder"} <= set(found["names"])


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_an_action_is_pinned_by_its_commit(path):
    """A tag can be moved to other code by whoever owns the action. The comment says which version the commit is."""
    used = re.findall(r"^ *(?:- )?uses: (.+)$", path.read_text("utf-8"), re.M)
    assert used and all(re.fullmatch(r"\./\S+|[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each) for each in used), (
        used
    )


@pytest.mark.parametrize(("workflow", "job"), JOBS)
def test_a_job_may_only_do_what_it_needs(workflow, job):
    assert WORKFLOWS[workflow]["permissions"] == {}
    permissions = WORKFLOWS[workflow]["jobs"][job]["permissions"]
    writes = (workflow, job) == ("pages", "publish")
    assert permissions == {"contents": "write" if writes else "read"}
    for step in steps(workflow, job):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert writes or step["with"]["persist-credentials"] is False


def test_beside_the_right_to_write_only_what_is_pinned_runs():
    """Everything there comes from the constraints, by `make`; no other installer is called."""
    run = "\n".join(step.get("run", "") for step in steps("pages", "publish"))
    assert "make CPU=1 .venv/.installed" in run
    assert not re.search(r"\b(npm|npx|pipx|pip|curl|wget|apt-get)\b", run)


def test_a_release_is_built_and_tried_but_not_published():
    release = WORKFLOWS["release"]
    assert release[True] == {"push": {"tags": ["v*"]}} and release["jobs"]["wheel"]["uses"].endswith("/package.yml")
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    assert "## Releases" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")


@pytest.mark.parametrize(("tag", "passes"), [("v{}", True), ("v9.9.9", False)])
def test_a_tag_has_to_name_the_version(tag, passes, tmp_path):
    """The lines of the release workflow. In the changelog, the version's heading is there once it is released."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(
        re.sub(r"^## Unreleased.*$", f"## {version}", changelog.read_text("utf-8"), count=1, flags=re.M)
    )
    run = steps("release", "version")[-1]["run"]
    done = shell(run, tmp_path, GITHUB_REF_NAME=tag.format(version))
    assert (done.returncode == 0) == passes, done.stdout + done.stderr


def shell(run, folder, **environment):
    """Run the lines of a step as GitHub does, without what this environment has on its PATH."""
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["bash", "-e", "-c", run], cwd=folder, env=variables | environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.skipif(not shutil.which("git"), reason="needs git, which is not installed")
def test_the_pages_are_published(tmp_path):
    """The steps of the workflow, with a site of one page, each time in a new clone of a bare repository."""
    (tmp_path / "first").mkdir()
    start = """
        git init -q --bare -b main ../remote.git && git init -q -b main .
        mkdir docs theme && echo "# Hello" > docs/index.md && echo .venv > .gitignore
        printf 'site_name: Test\nplugins: []\n' > mkdocs.yml
        echo 'theme: {name: null, custom_dir: theme, static_templates: [404.html]}' >> mkdocs.yml
        echo '{{ page.content }}' > theme/main.html && echo "Not here" > theme/404.html
        git add . && git -c user.name=a -c user.email=a@example.org commit -qm start
        git push -q ../remote.git main
    """
    done = shell(start, tmp_path / "first")
    assert done.returncode == 0, done.stderr
    for number, ref in enumerate(["refs/heads/main", "refs/tags/v1.2.0", "refs/heads/main"]):
        (folder := tmp_path / str(number)).mkdir()
        assert shell("git clone -q ../remote.git clone", folder).returncode == 0
        (folder / "clone/.venv").symlink_to(Path(sys.executable).parents[1])
        for name in ("Add the version", "Publish"):
            run = next(step["run"] for step in steps("pages", "publish") if step.get("name") == name)
            done = shell(run, folder / "clone", GITHUB_REF=ref, GITHUB_REF_NAME=ref.rpartition("/")[2])
            assert done.returncode == 0, f"{ref}, {name}: {done.stdout}{done.stderr}"
    published = shell("git ls-tree --name-only -r gh-pages", tmp_path / "remote.git").stdout.split()
    assert {"latest/index.html", "1.2.0/index.html", "index.html", "404.html", "versions.json"} <= set(published)


def test_the_wheel_is_tried_away_from_the_repository():
    steps = WORKFLOWS["package"]["jobs"]["wheel"]["steps"]
    tried = [step for step in steps if step.get("working-directory") == "/tmp"]
    text = "\n".join(step["run"] for step in tried)
    assert "/tmp/empty/bin/academy trace" in text and "/tmp/empty/bin/academy exercise check" in text
    assert "/tmp/empty/bin/triton-academy judge" in text and "/tmp/empty/bin/academy judge" in text
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert scripts["triton-academy"] == scripts["academy"]  # so `uvx triton-academy` finds it
    pairs = WORKFLOWS["package"]["jobs"]["wheel"]["strategy"]["matrix"]["torch"]
    assert pairs == [path.stem.removeprefix("torch-") for path in SETS]
    modules = re.findall(r"annotated_examples(?:\.\w+)+", text)
    assert modules and all((ROOT / f"{module.replace('.', '/')}.py").is_file() for module in modules)


def test_the_wheel_brings_the_exercises_and_what_its_command_imports():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    brought = ROOT / "academy/exercises/brought"
    found = {
        path
        for pattern in project["tool"]["setuptools"]["package-data"]["academy.exercises"]
        for path in (ROOT / "academy/exercises").glob(pattern)
    }
    wanted = {each.path.relative_to(ROOT) for each in exercise_files.every()} | {Path("docs/learn/index.md")}
    assert {path.relative_to(brought) for path in found} == wanted
    assert {"numpy", "pyyaml", "rich"} <= set(project["project"]["dependencies"])


def test_a_gpu_is_asked_for_and_never_by_a_strangers_pull_request():
    workflow = WORKFLOWS["gpu"]
    assert "gpu" in workflow["jobs"]["kernels"]["runs-on"] and "tests/kernels" in lines("gpu")
    assert "pull_request" not in workflow[True]  # YAML reads `on` as true


def test_hooks_run_the_tools_of_the_environment():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    entries = [hook["entry"] for hook in repository["hooks"]]
    assert entries and all(re.match(r"\.venv/bin/(ruff|academy) ", entry) for entry in entries)
