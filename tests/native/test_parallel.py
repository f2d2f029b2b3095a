"""The thread pool, through a loop that does nothing but sleep."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from megalabel import _native, get_threads, set_threads

sleep_loop = _native.sleep_loop


@pytest.fixture(autouse=True)
def two_threads():
    before = get_threads()
    set_threads(2)
    yield
    set_threads(before)


def seconds(function, *arguments):
    start = time.monotonic()
    function(*arguments)
    return time.monotonic() - start


def python(code, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def output(code, **environment):
    process = python(code, **environment)
    out, err = process.communicate(timeout=60)
    return process.returncode, out.strip(), err.strip()


# --- the number of threads


def test_pieces_run_side_by_side():
    assert seconds(sleep_loop, 20, 0.03) < 0.55
    set_threads(1)
    assert seconds(sleep_loop, 20, 0.03) >= 0.6
    set_threads(10)
    assert seconds(sleep_loop, 20, 0.03) < 0.29


def test_set_threads_takes_at_least_one():
    set_threads(3)
    assert get_threads() == 3
    for bad in (0, -1):
        with pytest.raises(ValueError, match=f"at least 1 thread, not {bad}"):
            set_threads(bad)
    assert get_threads() == 3


SHOW = "from megalabel._native import get_threads; print(get_threads())"


def test_threads_follow_the_environment_and_the_affinity():
    assert output(SHOW, MEGALABEL_THREADS="5")[1] == "5"
    processors = len(os.sched_getaffinity(0))
    assert output(SHOW, MEGALABEL_THREADS="")[1] == str(processors)
    pinned = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
    assert output(pinned + SHOW, MEGALABEL_THREADS="")[1] == "1"


@pytest.mark.parametrize("bad", ["0", "-2", "two", "2x", " 2", "99999999999"])
def test_a_bad_number_in_the_environment_is_told(bad):
    code, _, error = output(SHOW, MEGALABEL_THREADS=bad)
    assert code == 1
    assert f"MEGALABEL_THREADS must be a whole number of at least 1, not '{bad}'" in error


def test_an_empty_loop():
    sleep_loop(0, 1.0)


# --- exceptions


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_exceptions_cross_back_and_cancel_the_rest(threads):
    set_threads(threads)
    for fail_at in (0, 1, 7):
        start = time.monotonic()
        with pytest.raises(RuntimeError, match=f"piece {fail_at} failed"):
            sleep_loop(10_000, 0.01, fail_at)
        assert time.monotonic() - start < 1
    sleep_loop(4, 0.001)


def test_an_exception_in_the_last_piece():
    for _ in range(200):
        with pytest.raises(RuntimeError, match="piece 1 failed"):
            sleep_loop(2, 0.0, 1)


# --- Ctrl-C

INTERRUPTED = """
from megalabel._native import set_threads, sleep_loop
set_threads({threads})
print("ready", flush=True)
try:
    sleep_loop(10**6, 0.01)
except KeyboardInterrupt:
    sleep_loop(4, 0.001)
    print("stopped", flush=True)
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_stops_a_loop(threads):
    process = python(INTERRUPTED.format(threads=threads))
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    assert process.stdout.readline() == "stopped\n"
    assert time.monotonic() - start < 1
    process.communicate(timeout=10)
    assert process.returncode == 0


def test_a_signal_is_handled_while_the_caller_waits_for_helpers():
    # Either thread may take the third piece; when it is the helper, the caller only waits.
    code = """
import signal, time
from megalabel._native import set_threads, sleep_loop
set_threads(2)
delays = [1.0]
signal.signal(signal.SIGALRM, lambda *_: delays.append(time.monotonic() - start))
while len(delays) < 20 and min(delays) > 0.45:
    start = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    sleep_loop(3, 0.25)
print(min(delays) < 0.45)
"""
    assert output(code) == (0, "True", "")


def test_ctrl_c_reaches_a_forked_child():
    code = """
import os, signal, threading, time
from megalabel._native import sleep_loop
sleep_loop(4, 0.001)
def fork():
    child = os.fork()
    if child == 0:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        signal.signal(signal.SIGUSR1, signal.default_int_handler)
        try:
            sleep_loop(1000, 0.01)
        except KeyboardInterrupt:
            os._exit(42)
        os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread = threading.Thread(target=fork)
thread.start()
thread.join()
"""
    assert output(code)[:2] == (0, "42")


# --- threads, forks and the end


def test_calls_from_several_threads():
    with ThreadPoolExecutor(8) as pool:
        loops = [pool.submit(sleep_loop, 20, 0.001, 5 if i % 2 else -1) for i in range(40)]
        failed = [loop.exception(timeout=30) is not None for loop in loops]
    assert failed == [bool(i % 2) for i in range(40)]


def test_other_python_threads_run_meanwhile():
    done = threading.Event()
    threading.Thread(target=done.set).start()
    sleep_loop(10, 0.01)
    assert done.is_set()


def in_child(queue):
    start = time.monotonic()
    sleep_loop(20, 0.03)
    queue.put(time.monotonic() - start)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_children_have_their_own_workers():
    context = multiprocessing.get_context("fork")
    sleep_loop(4, 0.001)
    busy = threading.Thread(target=sleep_loop, args=(500, 0.005))
    busy.start()  # the children are forked while workers run and locks may be held
    for _ in range(3):
        queue = context.Queue()
        child = context.Process(target=in_child, args=(queue,))
        child.start()
        assert queue.get(timeout=30) < 0.55
        child.join(timeout=30)
        assert child.exitcode == 0
    busy.join()
    sleep_loop(4, 0.001)


def test_many_forks_while_loops_start_and_end():
    code = """
import os, threading
from megalabel._native import set_threads, sleep_loop
set_threads(4)
ending = threading.Event()
def churn():
    while not ending.is_set():
        sleep_loop(8, 0.0)
threads = [threading.Thread(target=churn) for _ in range(3)]
for thread in threads:
    thread.start()
good = True
for _ in range(50):
    child = os.fork()
    if child == 0:
        sleep_loop(8, 0.0)
        os._exit(7)
    good &= os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
ending.set()
print(good)
"""
    assert output(code)[:2] == (0, "True")


def test_a_fork_in_a_signal_handler_ends_the_loop_in_the_child():
    code = """
import os, signal
from megalabel._native import set_threads, sleep_loop
set_threads(4)
sleep_loop(8, 0.0)
children = []
def fork(*_):
    if not children:
        children.append(os.fork())
signal.signal(signal.SIGALRM, fork)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    sleep_loop(100, 0.02)
    print(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))
except RuntimeError:
    sleep_loop(8, 0.0)
    os._exit(7)
"""
    for _ in range(3):
        assert output(code)[:2] == (0, "7")  # newer Pythons warn of any fork beside threads


def test_the_interpreter_ends_while_a_daemon_thread_is_in_a_loop():
    code = """
import threading, time
from megalabel._native import sleep_loop
threading.Thread(target=sleep_loop, args=(10**6, 0.001), daemon=True).start()
time.sleep(0.1)
"""
    for _ in range(3):
        assert output(code) == (0, "", "")


def test_a_system_that_gives_no_more_threads():
    code = """
import resource
from megalabel._native import set_threads, sleep_loop
set_threads(64)
limit = 256 << 20
with open("/proc/self/statm") as file:
    limit += int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
sleep_loop(200, 0.001)
print("done")
"""
    assert output(code) == (0, "done", "")
