"""Start test jobs of several ranks from one process that has imported torch, which takes most of their time.

``ranks.py SOCKET MODULE,...`` serves, with torch and these modules imported; ``ranks.py SOCKET N SCRIPT ...``
asks it to run SCRIPT as N ranks, with this process's environment, working directory and output, and exits as
the first failing rank does. A process that records a rank without its peers starts others that do so.
"""

import importlib
import json
import os
import runpy
import socket
import sys


def serve(address, *modules):
    for name in ("torch", *modules):
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address + ".new")
        listening.listen()
        os.rename(address + ".new", address)  # any process that finds it can connect
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                supervise(connection)
                os._exit(0)
            connection.close()


def supervise(connection):
    message, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 2)
    job = json.loads(message)
    os.dup2(descriptors[0], 1)
    os.dup2(descriptors[1], 2)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    if not is_alone():
        os.environ.update(WORLD_SIZE=str(job["ranks"]), MASTER_ADDR="localhost")
        reserved = reserved_port()
        os.environ["MASTER_PORT"] = str(reserved.getsockname()[1])
    children = [start_rank(rank, job["words"]) for rank in range(job["ranks"])]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    connection.send(str(next((code for code in codes if code), 0)).encode())


def is_alone():
    """Return whether the rank has no peers: it is recorded without running, or in a fake world."""
    options = json.loads(os.environ.get("CHAKRASCOPE_CAPTURE", "{}"))
    return bool(options.get("fake_run") or options.get("fake_world"))


def pose():
    """Let this fork have its own environment instead of that of the process that imported torch."""
    agent, torch = sys.modules["_chakrascope_agent"], sys.modules["torch"]
    options = agent.launch_options()
    own = options.get("fake_run") or {"rank": 0, "world": options["fake_world"]}
    if "fake_run" in options:
        agent.fake_run.devices.stand_in_for_cuda(torch)
    begin = torch.distributed.init_process_group
    for name, cell in zip(begin.__code__.co_freevars, begin.__closure__, strict=True):
        if name in ("rank", "ranks"):
            cell.cell_contents = own["rank" if name == "rank" else "world"]


def reserved_port():
    """Return a socket on a port that stays reserved while it is open; rank 0 may still listen there."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("localhost", 0))
    return reserved


def start_rank(rank, words):
    child = os.fork()
    if child:
        return child
    sys.argv = words
    if is_alone():
        pose()
    else:
        os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
    try:
        runpy.run_path(words[0], run_name="__main__")
        sys.exit(0)
    except SystemExit as leaving:
        finish(leaving.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        finish(1)


def finish(code):
    import atexit

    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def ask(address, ranks, words):
    job = {"ranks": ranks, "words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(job).encode()], [1, 2])
        return int(connection.recv(16) or b"1")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        serve(sys.argv[1], *sys.argv[2].split(","))
    sys.exit(ask(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
