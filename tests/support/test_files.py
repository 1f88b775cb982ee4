"""Files and folders appear completely or not at all, whatever happens in the meantime."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from chakrascope.errors import StudyError
from chakrascope.support import (
    is_temporary,
    new_file,
    new_folder,
    open_file,
    remove_folder,
    remove_leftover_of,
    remove_leftovers,
    write_file,
    writing,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def synced(monkeypatch):
    """Return the names that were synced to the disk, in order."""
    real, found = os.fsync, []

    def fsync(descriptor: int) -> None:
        found.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, synced):
    write_file(tmp_path / "status.json", "µs")
    assert (tmp_path / "status.json").read_bytes() == "µs".encode()
    assert names(tmp_path) == ["status.json"]
    assert is_temporary(synced[0])
    assert synced[1:] == [tmp_path.name]


def test_a_file_whose_loss_is_harmless_costs_no_sync(tmp_path, synced):
    write_file(tmp_path / "status.json", b"1", sync=False)
    write_file(tmp_path / "status.json", b"2", sync=False)
    assert (tmp_path / "status.json").read_bytes() == b"2"
    assert synced == []


def test_a_link_to_a_folder_is_not_replaced_by_a_file(tmp_path):
    (tmp_path / "study").mkdir()
    (tmp_path / "link").symlink_to("study")
    for name in ("study", "link"):
        with pytest.raises(IsADirectoryError):
            write_file(tmp_path / name, "")
    assert (tmp_path / "link").is_symlink()


def test_a_pipe_is_written_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_file(pipe, "text", parents=True)
    assert os.read(reading, 9) == b"text"
    os.close(reading)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("name", ["pipe", "/dev/zero"])
def test_what_may_have_no_end_is_not_opened(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a device or a named pipe, not a file") as caught:
        open_file(tmp_path / name)
    assert caught.value.filename == str(tmp_path / name)


def test_a_broken_link_is_no_missing_file(tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(OSError, match="it is a link to a missing file") as caught:
        open_file(tmp_path / "link")
    assert not isinstance(caught.value, FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "nowhere")


def test_the_pipe_of_another_process_is_read_to_its_end(tmp_path):
    command = [sys.executable, "-c", "import time; time.sleep(0.2); print('late')"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as process,
        open_file(f"/dev/fd/{process.stdout.fileno()}") as file,
    ):
        assert file.read() == b"late\n"


def test_a_reader_sees_the_old_file_until_the_end(tmp_path):
    target = tmp_path / "a"
    write_file(target, "old")
    with new_file(target) as temporary:
        temporary.write_text("new", encoding="utf-8")
        assert temporary.parent == tmp_path
        assert is_temporary(temporary.name)
        assert target.read_text(encoding="utf-8") == "old"
    assert target.read_text(encoding="utf-8") == "new"


@pytest.mark.parametrize("failure", [KeyboardInterrupt, SystemExit, OSError, ValueError])
def test_failure_keeps_the_old_file(tmp_path, failure):
    def fill(make, name):
        with make(tmp_path / name) as temporary:
            (temporary / "part" if temporary.is_dir() else temporary).write_text("half", encoding="utf-8")
            raise failure

    write_file(tmp_path / "file", "old")
    for make, name in ((new_file, "file"), (new_file, "other"), (new_folder, "folder")):
        with pytest.raises(failure):
            fill(make, name)
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text(encoding="utf-8") == "old"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_failed_write_leaves_no_file(tmp_path, monkeypatch, number):
    def refuse(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match=os.strerror(number)):
        write_file(tmp_path / "file", "content")
    with pytest.raises(OSError, match=os.strerror(number)), new_folder(tmp_path / "folder") as folder:
        (folder / "part").write_text("content", encoding="utf-8")
    assert names(tmp_path) == []


@pytest.mark.parametrize("make", [new_file, new_folder])
def test_a_full_disk_is_that_of_the_target_even_if_a_copy_names_its_source(tmp_path, monkeypatch, make):
    def refuse(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "source").write_text("content", encoding="utf-8")
    monkeypatch.setattr(os, "sendfile", refuse)
    with pytest.raises(OSError, match="No space") as full, make(tmp_path / "copy") as made:
        shutil.copyfile(tmp_path / "source", made / "part" if made.is_dir() else made)
    assert full.value.filename == str(tmp_path / "copy")


@pytest.mark.parametrize("make", [new_file, new_folder])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_an_error_at_another_file_keeps_its_name(tmp_path, make, number):
    with pytest.raises(OSError, match=os.strerror(number)) as refused, make(tmp_path / "copy"):
        raise OSError(number, os.strerror(number), "/elsewhere/part")
    assert refused.value.filename == "/elsewhere/part"


def test_a_file_system_that_cannot_sync_can_still_be_written(tmp_path, monkeypatch):
    def refuse(_descriptor: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", refuse)
    write_file(tmp_path / "file", "content")
    with new_folder(tmp_path / "folder"):
        pass
    assert names(tmp_path) == ["file", "folder"]


def test_the_longest_name_can_be_written(tmp_path):
    for name in ("n" * 255, "µ" * 127):
        write_file(tmp_path / name, "content")
    assert names(tmp_path) == sorted(["n" * 255, "µ" * 127])


def test_folder_is_synced_before_it_is_renamed(tmp_path, synced):
    with new_folder(tmp_path / "a" / "run") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "x").write_text("x", encoding="utf-8")
        (folder / "y").write_text("y", encoding="utf-8")
        (folder / "nowhere").symlink_to("missing")
        assert names(tmp_path / "a") == [folder.name]
        assert is_temporary(folder.name)
    assert names(tmp_path / "a") == ["run"]
    assert names(tmp_path / "a" / "run") == ["inner", "nowhere", "y"]
    assert sorted(synced[:-1]) == sorted(["x", "inner", "y", folder.name])
    assert synced[-1] == "a"


def filled(target: Path, content: str, **options):
    with new_folder(target, **options) as folder:
        (folder / "content").write_text(content, encoding="utf-8")


def test_existing_folder_is_refused_kept_or_replaced(tmp_path):
    target = tmp_path / "run"
    filled(target, "first")
    with pytest.raises(OSError, match="not empty"):
        filled(target, "second")
    filled(target, "third", existing="keep")
    assert (target / "content").read_text(encoding="utf-8") == "first"
    filled(target, "fourth", existing="replace")
    assert (target / "content").read_text(encoding="utf-8") == "fourth"
    filled(target, "fifth", choose=lambda filled: filled.with_name("run-2"))
    assert names(tmp_path) == ["run", "run-2"]


def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    target = tmp_path / "run"
    filled(target, "first")
    real = Path.rename

    def rename(self, other):
        if self.joinpath("content").read_text(encoding="utf-8") == "second" and not target.exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(self, other)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError, match="Input/output"):
        filled(target, "second", existing="replace")
    assert names(tmp_path) == ["run"]
    assert (target / "content").read_text(encoding="utf-8") == "first"


def test_a_removed_folder_is_gone(tmp_path):
    filled(tmp_path / "run", "first")
    remove_folder(tmp_path / "run")
    assert names(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        remove_folder(tmp_path / "run")


KILLED = """
    import os, signal
    from pathlib import Path
    from chakrascope.support import new_file, new_folder

    with new_folder("folder") as folder, new_file("file") as file:
        (folder / "part").write_text("half")
        file.write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_in(folder: Path) -> int:
    """Return the id of a process that died while it wrote a file and a folder."""
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(KILLED)], cwd=folder)
    assert process.wait() == -signal.SIGKILL
    return process.pid


def test_what_a_killed_process_left_is_recognised_and_removed(tmp_path):
    pid = killed_in(tmp_path)
    left = names(tmp_path)
    assert len(left) == 2
    assert all(is_temporary(name) and f"-{pid}-" in name for name in left)
    with new_file(tmp_path / "mine") as temporary:
        temporary.touch()
        remove_leftovers(tmp_path)
        assert names(tmp_path) == [temporary.name]
    assert names(tmp_path) == ["mine"]


def test_new_folder_removes_leftovers_of_dead_processes(tmp_path):
    killed_in(tmp_path)
    filled(tmp_path / "folder", "whole")
    assert names(tmp_path) == ["folder"]


def test_rewriting_a_file_removes_leftovers(tmp_path):
    """Temporary files of running processes, and those of other targets, are not removed."""
    killed_in(tmp_path)
    with new_file(tmp_path / "file") as being_written:
        being_written.write_text("of a running job")
        write_file(tmp_path / "file", "whole")
        write_file(tmp_path / "fil", "another")
        left = [name for name in names(tmp_path) if is_temporary(name)]
        assert [name[:8] for name in left] == [".file." + being_written.name[6:8], ".folder."]
        assert (tmp_path / being_written.name).read_text() == "of a running job"
    assert [name for name in names(tmp_path) if is_temporary(name)] == left[1:]


def test_only_leftovers_of_one_name_are_removed(tmp_path):
    pid = killed_in(tmp_path)
    remove_leftover_of(tmp_path / "folder", pid + 1)
    remove_leftover_of(tmp_path / "fold", pid)
    assert len(names(tmp_path)) == 2
    remove_leftover_of(tmp_path / "folder", pid)
    assert [name[:6] for name in names(tmp_path)] == [".file."]


def test_unfinished_folder_of_another_machine_remains(tmp_path):
    pid = killed_in(tmp_path)
    for name in names(tmp_path):
        place = name.split(".")[-2].partition("-")[0]
        foreign = name.replace(place, f"{int(place, 16) ^ 1:08x}")
        (tmp_path / name).rename(tmp_path / foreign)
    remove_leftovers(tmp_path)
    remove_leftover_of(tmp_path / "other", pid)
    assert len(names(tmp_path)) == 2
    assert all(is_temporary(name) for name in names(tmp_path))
    remove_leftover_of(tmp_path / "file", pid)
    remove_leftover_of(tmp_path / "folder", pid)
    assert names(tmp_path) == []


def test_removing_leftovers_of_no_folder_is_nothing_to_do(tmp_path):
    remove_leftovers(tmp_path / "missing")


@pytest.mark.parametrize(
    "name", ["run.json", ".run.json.tmp", ".tmp", ".a.1234.tmp", "a.0123abcd-12-0123abcd.tmp"]
)
def test_other_names_are_not_ours_to_remove(name):
    assert not is_temporary(name)


def test_what_the_system_refuses_becomes_the_callers_error(tmp_path):
    (tmp_path / "file").touch()
    target = tmp_path / "file" / "inner"
    with (
        pytest.raises(StudyError, match=r"inner cannot be written \(Not a directory\); a file has") as caught,
        writing(target, StudyError),
    ):
        write_file(target, "")
    assert isinstance(caught.value.__cause__, OSError)
    with (
        pytest.raises(StudyError, match=r"^The report cannot be written \(of its own\); choose another\.$"),
        writing("The report", StudyError, "choose another"),
    ):
        raise OSError("of its own")
