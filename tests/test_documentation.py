"""The commands and snippets of the documentation work, in the order of the pages."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from importlib import import_module

import click
import pytest

from chakrascope.cli import cli, main
from chakrascope.runner import Study
from chakrascope.runner.config import preset_text

from .pages import PAGES, ROOT, anchors, blocks, command_spans, figures, links, name_of, scripts

# Placeholders for a reader's own names.
STUDIES = ("STUDY", "study", "my-study")
TEXT_WORKLOAD = "DATA\n1\nconv1 -1 1000 NONE 0 1000 NONE 0 1000 ALLREDUCE 1048576 10\n"

WITH_CODE = [page for page in PAGES if any(block.reason is None for block in blocks(page))]
# Words that readers stumbled over (patterns), and the field's term for each.
WORDS = {
    r"tells? apart|told apart": "distinguish",
    r"(?:is|are) told (?:by|from)": "follows from, is recognised by",
    r"whoever|nobody knows": "who, unrecognised",
    r"longest of the shortest ways": "diameter",
    r"stretch(?:es)? of time": "interval",
    r"(?:first|no) word after": "first message after",
    r"seconds? of a processor|processor seconds?": "CPU time",
    r"ever the same": "constant, deterministic",
    r"of whatever": "of any",
    r"was started anew|starts? anew": "restarted",
    r"circles? of dependenc\w+|dependency circles?": "dependency cycle",
    r"held against": "compared with",
    r"is no change": "is not a valid change",
}
WITH_SCRIPTS = sorted({script for page in PAGES for script in scripts(page)})


@pytest.fixture(scope="module")
def captured(tmp_path_factory, data_dir):
    """Make a study of a captured job: its traces, its workload, and two runs of it."""
    study = Study.create(tmp_path_factory.mktemp("documentation") / "study")
    shutil.copytree(data_dir / "converter" / "mlp_2", study.path / "traces" / "capture-1")
    run("convert", study.path)
    run("run", study.path, "--network", "hgx-h100-2x8")
    run("run", study.path, "--network", "dgx-a100-2x8", "--backend", "analytical-aware")
    return study


@pytest.fixture
def desk(captured, data_dir, tmp_path, monkeypatch):
    """Change to a folder with all files that the pages name."""
    for name in STUDIES:
        shutil.copytree(captured.path, tmp_path / name)
    prefix = captured.workload_prefix()
    for part in prefix.parent.glob(f"{prefix.name}.*"):
        shutil.copy(part, tmp_path / part.name.replace(prefix.name, "PREFIX", 1))
    public = data_dir / "converter" / "dlrm_v100_8"
    for rank in range(2):
        shutil.copy(public / f"kineto_{rank}.json.gz", tmp_path)
        shutil.copy(public / f"kineto_{rank}.json.gz", tmp_path / f"rank{rank}.pt.trace.json.gz")
        shutil.copy(public / f"et_{rank}.json.gz", tmp_path)
    shutil.copy(data_dir / "converter" / "linked" / "linked_0.json.gz", tmp_path / "linked_0.json")
    (tmp_path / "network.yml").write_text(preset_text("network", "ring-2"))
    (tmp_path / "system.json").write_text(preset_text("system", "default"))
    shutil.copytree(data_dir / "converter" / "logs", tmp_path / "logs")
    plan = data_dir / "runner" / "programs" / "single_node_allreduce_nvls_zero_copy.json.gz"
    shutil.copy(plan, tmp_path / "plan.json.gz")
    shutil.copy(plan, tmp_path / "nvls.json.gz")
    shutil.copy(plan.with_name("single_node_allreduce_pkt.json.gz"), tmp_path / "packets.json.gz")
    (tmp_path / "memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}', "utf-8")
    (tmp_path / "groups.json").write_text('{"1": [0, 1]}', "utf-8")
    (tmp_path / "Resnet50_DataParallel.txt").write_text(TEXT_WORKLOAD, "utf-8")
    monkeypatch.chdir(tmp_path)
    return captured


def run(*arguments):
    """Run one `chakrascope` command in this process; the command must succeed."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert not end.value.code, f"chakrascope {shlex.join(map(str, arguments))} exits with {end.value.code}"


def as_typed(command, study):
    """Return the words of *command*, with placeholder names replaced by names of *study*."""
    edge = study.workload().graphs[0].edges.iloc[0]
    meant = {
        "3f2a": study.runs()[0].id[:8],
        "0/17-23": f"0/{edge['src']}-{edge['dst']}",
        "PRESET": "ring-2",
        "--trials 60": "--trials 3",
        "search --model llama3-70b --gpus 512": "search --model llama3-8b --gpus 8 --simulate 2",
        "chakrascope sweep": "chakrascope sweep --workers 0",
    }
    for written, stand_in in meant.items():
        command = command.replace(written, stand_in)
    return shlex.split(command, comments=True)


def told_command(words):
    """Return the command in *words* and its options, without those of a training script."""
    own = words[: words.index("--")] if "--" in words else words
    return own[1], [word.split("=")[0] for word in own[2:] if re.match(r"-[-a-z]", word)]


def texts():
    """Yield the texts for users: pages, CHANGELOG, help of every command, and messages in the code."""
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        yield name_of(page), page.read_text("utf-8")
    commands = [(cli, click.Context(cli, info_name="chakrascope"))]
    for command, context in commands:
        yield context.command_path, " ".join(command.get_help(context).split())
        if isinstance(command, click.Group):
            commands += [
                (inner, click.Context(inner, info_name=name, parent=context))
                for name, inner in command.commands.items()
            ]
    for package in ("cli", "converter", "errors", "runner", "support", "tracer", "viewer"):
        for file in sorted((ROOT / package).rglob("*.py")):
            code = re.sub(r'(?s)""".*?"""|(?m:^ *#.*$)', "", file.read_text("utf-8"))
            yield name_of(file), " ".join(re.findall(r'"([^"\n]{20,})"', code))


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_commands_and_snippets_of_a_page_run(page, desk):
    names: dict = {}
    for block in blocks(page):
        if block.reason is not None:
            continue
        if block.language == "python":
            exec(compile(block.text, f"{page}:{block.line}", "exec"), names)
            continue
        for command in block.commands:
            program, *arguments = as_typed(command, desk)
            assert program == "chakrascope", f"{command!r} is not ours: tell why it is not run here"
            run(*arguments)


def test_the_answers_of_the_readme_run(desk):
    """Run the commands in the README's table, except for those that need ns-3 and those that a page runs."""
    text = (ROOT / "README.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "?" in line]
    asked = [command for row in rows for command in re.findall(r"`(chakrascope [^`]+)`", row)]
    assert len(asked) > 10
    run_by_pages = {
        without_study(command)
        for page in WITH_CODE
        for block in blocks(page)
        for command in block.commands
        if block.reason is None
    }
    for command in asked:
        if "ns3" not in command and without_study(command) not in run_by_pages:
            run(*as_typed(command, desk)[1:])


def without_study(command):
    """Return the words of *command* with one name for every study: `desk` has the same under each."""
    return tuple("study" if word in STUDIES else word for word in shlex.split(command, comments=True))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_and_option_exists(page):
    context = click.Context(cli)
    written = [command for block in blocks(page) for command in block.commands if block.language == "sh"]
    for text in [*written, *command_spans(page)]:
        words = re.sub(r"[][|]", " ", text.partition("  #")[0]).split()
        if words[0] != "chakrascope" or not re.fullmatch(r"[a-z-]+", words[1]) or words[1].startswith("--"):
            continue
        name, options = told_command(words)
        command = cli.get_command(context, name)
        assert command is not None, f"there is no command: {text}"
        # A group with options of its own works without a command below it.
        if isinstance(command, click.Group) and ({*words[2:3]} & {*command.commands} or not command.params):
            command = command.commands[words[2]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(options) <= known, f"{set(options) - known} of: {text}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_name_a_snippet_imports_exists(page):
    for block in blocks(page):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("chakrascope"):
                    module = import_module(node.module)
                    assert all(hasattr(module, alias.name) for alias in node.names), block.text


def test_every_target_of_make_exists():
    known = set(re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text("utf-8")))
    told = {
        word
        for page in PAGES
        for block in blocks(page)
        for command in block.commands
        if command.startswith("make ")
        for word in shlex.split(command, comments=True)[1:]
        if "=" not in word
    }
    assert {"demo", "wheels"} <= told <= known


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_figure_names_the_script_that_makes_it(page):
    text = page.read_text("utf-8")
    for figure in figures(page):
        path = (page.parent / figure).resolve()
        assert path.is_file()
        commands = re.findall(r"python [\w/]+\.py[^`\n]*", text)
        assert any(
            path.stem in script.read_text("utf-8") or any(path.name in command for command in commands)
            for script in scripts(page)
        ), f"{name_of(page)} does not tell what makes {figure}"


@pytest.mark.parametrize("script", WITH_SCRIPTS, ids=name_of)
def test_every_script_that_is_named_starts(script, monkeypatch, capsys):
    """Scripts import all packages before they read their arguments, so that `--help` tests the imports."""
    monkeypatch.setattr("sys.argv", [str(script), "--help"])
    monkeypatch.syspath_prepend(script.parent)
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(script), run_name="__main__")
    assert not end.value.code
    assert "usage:" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for link in links(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "examples"], ids=name_of)
def test_prose_is_wrapped(page):
    wrapped = runpy.run_path(str(ROOT / "scripts" / "prose.py"))["wrapped"]
    text = page.read_text("utf-8")
    assert page.name == "README.md" or wrapped(text) == text, f"run `python scripts/prose.py` on {page.name}"


def test_words_have_their_replacement():
    """Check texts for the unclear words in `WORDS`, which has the field's term for each."""
    pattern = re.compile(rf"(?i)(?<![\w`-])({'|'.join(WORDS)})(?![\w`-])")
    places = [f"{name}: {found[0]!r}" for name, text in texts() for found in pattern.finditer(text)]
    assert not places, f"write the field's term (WORDS): {places}"


def test_the_documentation_stays_short():
    words = sum(len(page.read_text("utf-8").split()) for page in (ROOT / "docs").rglob("*.md"))
    assert words <= 35_000
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


def test_the_changelog_has_one_line_a_change():
    lines = (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()
    assert all(line.startswith(("#", "* ")) and len(line) <= 120 for line in lines if line)
    groups = {line[4:] for line in lines if line.startswith("### ")}
    assert groups <= {"Added", "Changed", "Deprecated", "Removed", "Fixed"}


def test_the_newest_release_of_the_changelog_is_the_version():
    """While CHANGELOG.md has the heading Unreleased, the version is above the newest release."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    (version,) = re.findall(r'^version = "(.+)"$', project, re.MULTILINE)
    releases = re.findall(r"^## (\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)$", text, re.MULTILINE)
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert len(headings) - len(releases) == (headings[0] == "Unreleased")
    assert releases == sorted(set(releases), key=_numbers, reverse=True)
    if headings[0] == "Unreleased":
        assert _numbers(version) > _numbers(releases[0])
    else:
        assert version == releases[0]


def _numbers(version):
    return [int(part) for part in version.split(".")]


# The site is complete, can be searched offline, and loads nothing from other hosts.

# Resources that load when a page is shown; links to other hosts are allowed.
LOADED = re.compile(r'<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)="(?P<address>[^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_of_the_documentation_is_in_the_navigation(site):
    text = (site / "index.html").read_text("utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        address = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert f'href="{address}"' in text, f"{address} is not in the nav of mkdocs.yml"


def test_every_command_is_in_the_reference(site):
    text = (site / "reference" / "commands.html").read_text("utf-8")
    for name in cli.list_commands(None):
        assert f'id="chakrascope-{name}"' in text


def test_what_the_runner_exports_is_in_the_reference(site):
    text = (site / "reference" / "chakrascope.runner.html").read_text("utf-8")
    for name in ("simulate", "critical_path", "Study", "Result"):
        assert f'id="chakrascope.runner.{name}"' in text


def test_nothing_loads_from_a_foreign_host(site):
    for page in site.rglob("*.html"):
        for found in LOADED.finditer(page.read_text("utf-8")):
            if 'rel="canonical"' not in found[0]:
                assert not found["address"].startswith(("http:", "https:", "//")), f"{page}: {found[0]}"


@pytest.mark.browser
def test_search_works_from_the_disk(site, browser):
    page = browser.new_page()
    foreign = []
    page.on("request", lambda request: foreign.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.locator("input.md-search__input").fill("critical path")
    page.locator(".md-search-result__item").first.wait_for()
    assert not [url for url in foreign if url.startswith("http")]
    page.close()


def test_the_tables_of_a_result_are_described_with_all_their_columns():
    from chakrascope.runner._result import COLUMNS

    text = (ROOT / "docs" / "reference" / "file-formats.md").read_text("utf-8")
    for table, columns in COLUMNS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{table}` |"))
        assert set(columns) <= set(re.findall(r"`(\w+)`", row)), table
