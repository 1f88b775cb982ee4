"""Plug-ins are found by entry points."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from chakrascope.converter import read_logs
from chakrascope.errors import ConfigError, UsageError
from chakrascope.support import code_version, load_plugin, plugin_names

from .source_tree import registered_plugins

TOY = """
from chakrascope.converter import CollectiveType, NodeType
from chakrascope.converter.readers.logs import Comm, LoggedOp, LogReader, RankLog

def read(paths):
    op = LoggedOp("all", 0, "all_reduce", NodeType.COMM_COLL, CollectiveType.ALL_REDUCE, 64)
    return [RankLog(rank, str(path), [op], {"all": Comm(2, rank)}) for rank, path in enumerate(paths)], []

READER = LogReader("Toy", lambda head: head.startswith(b"TOY"), read)
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a function that installs a distribution with a module and entry points."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(distribution, entries, **files):
        metadata = tmp_path / f"{distribution}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(entries)
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        forget()

    yield install
    forget()


def forget():
    load_plugin.cache_clear()
    from chakrascope.support import _plugins

    _plugins._entries.cache_clear()


def test_all_of_ours_are_installed_and_can_be_imported():
    for group, name, module in registered_plugins():
        installed = {entry.name: entry.value for entry in entry_points(group=group)}
        assert installed[name].partition(":")[0] == f"chakrascope.{module}", "install the package again"
        assert load_plugin(group.removeprefix("chakrascope."), name) is not None
    assert len(registered_plugins()) >= 6


def test_logs_of_a_tool_that_another_distribution_reads(site, tmp_path):
    site("toy-logs", "[chakrascope.log_readers]\ntoy = toy_logs:READER\n", toy_logs=TOY)
    assert {"toy", "flight", "inspector"} <= set(plugin_names("log_readers"))
    folder = tmp_path / "logs"
    folder.mkdir()
    for rank in (0, 1):
        (folder / f"{rank}.toy").write_text("TOY")
    logs = read_logs([folder])
    assert (logs.kind, logs.world_size, logs.groups) == ("toy", 2, {"all": (0, 1)})
    (folder / "0.toy").write_text("TOI")
    (folder / "1.toy").write_text("TOI")
    with pytest.raises(UsageError, match=r"Logs can be read from: .*Toy"):
        read_logs([folder])


def test_two_distributions_with_one_name_are_named(site):
    site("one", "[chakrascope.transports]\nwire = one:Wire\n")
    site("other", "[chakrascope.transports]\nwire = other:Wire\n")
    with pytest.raises(ConfigError, match=r"o\w+ and o\w+ both register 'wire' as chakrascope.transports"):
        plugin_names("transports")


@pytest.mark.parametrize("text", ["import nothing_of_this_name", "Other = 1"])
def test_a_plugin_that_cannot_be_imported_is_named_with_its_distribution(site, text):
    site("broken", "[chakrascope.clusters]\nbroken = broken_cluster:Cluster\n", broken_cluster=text)
    with pytest.raises(ConfigError, match=r"plug-in 'broken' \(broken_cluster:Cluster\) of broken cannot be"):
        load_plugin("clusters", "broken")


@pytest.mark.parametrize("folder", ["site", "site [1]*"])
def test_the_digest_of_the_code_changes_with_each_file_and_the_version(tmp_path, monkeypatch, folder):
    package = tmp_path / folder / "chakrascope"
    for part in ("converter", "runner/presets", "support", "tracer"):
        (package / part).mkdir(parents=True)
    monkeypatch.setattr("chakrascope.support._plugins.__file__", str(package / "support" / "_plugins.py"))
    digests = [code_version.__wrapped__()]
    for name in ("converter/a.py", "runner/presets/system.json", "support/units.yml", "tracer/core.so"):
        (package / name).write_text("")
        digests.append(code_version.__wrapped__())
        (package / name).write_text("1")
        digests.append(code_version.__wrapped__())
    (package / "converter" / "a.py").rename(package / "converter" / "b.py")
    digests.append(code_version.__wrapped__())
    for version in ("1.0", "1.1"):
        metadata = package.parent / f"chakrascope-{version}.dist-info"
        metadata.mkdir()
        digests.append(code_version.__wrapped__())
        metadata.rmdir()
    own = tmp_path / "own.yml"
    own.write_text("")
    monkeypatch.setenv("CHAKRASCOPE_KERNEL_PATTERNS", str(own))
    digests.append(code_version.__wrapped__())
    own.write_text("[]")
    digests.append(code_version.__wrapped__())
    own.unlink()  # the next answer is an error
    digests.append(code_version.__wrapped__())
    assert len({*digests}) == len(digests)
