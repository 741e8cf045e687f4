"""What the workflows, templates and hooks name exists, and they cover what CONTRIBUTING promises."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from academy.exercises import files
from tests.kernels.harness import ROOT

WORKFLOWS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / ".github/workflows").glob("*.yml")}
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")


def lines(workflow):
    """What a workflow runs, as one text."""
    return "\n".join(step.get("run", "") for job in WORKFLOWS[workflow]["jobs"].values() for step in job["steps"])


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_a_workflow_names_exists(name):
    makefile = (ROOT / "Makefile").read_text("utf-8").replace("$(VENV)", ".venv")
    for target in re.findall(r"\bmake ([\w./-]+)", lines(name)):
        assert re.search(rf"^{re.escape(target)}:", makefile, re.M), target
    for path in re.findall(r"(?<!\S)tests/\S+", lines(name)):
        assert (ROOT / path).exists(), path
    assert all("timeout-minutes" in job for job in WORKFLOWS[name]["jobs"].values())


def test_the_night_is_for_mutants_and_the_other_versions_of_triton():
    assert "pytest -m nightly" in lines("nightly")
    versions = [entry["triton"] for entry in WORKFLOWS["nightly"]["jobs"]["triton"]["strategy"]["matrix"]["include"]]
    assert versions == ["3.6.0", "3.9.0"]


def test_the_wheel_is_tried_away_from_the_repository():
    steps = WORKFLOWS["package"]["jobs"]["wheel"]["steps"]
    tried = [step for step in steps if step.get("working-directory") == "/tmp"]
    text = "\n".join(step["run"] for step in tried)
    assert "/tmp/empty/bin/academy trace" in text and "/tmp/empty/bin/academy exercise check" in text
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
    wanted = {each.path.relative_to(ROOT) for each in files.every()} | {Path("docs/learn/index.md")}
    assert {path.relative_to(brought) for path in found} == wanted
    assert {"numpy", "pyyaml", "rich"} <= set(project["project"]["dependencies"])


def test_a_gpu_is_asked_for_and_never_by_a_strangers_pull_request():
    workflow = WORKFLOWS["gpu"]
    assert "gpu" in workflow["jobs"]["kernels"]["runs-on"] and "tests/kernels" in lines("gpu")
    assert "pull_request" not in workflow[True]  # YAML reads `on` as true


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_asks_for_something(path):
    form = yaml.safe_load(path.read_text("utf-8"))
    assert form["name"] and form["description"]
    identifiers = [part["id"] for part in form["body"]]
    assert len(set(identifiers)) == len(identifiers)
    assert any(part.get("validations", {}).get("required") for part in form["body"])


def test_hooks_run_the_tools_of_the_environment():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    entries = [hook["entry"] for hook in repository["hooks"]]
    assert entries and all(re.match(r"\.venv/bin/(ruff|academy) ", entry) for entry in entries)
