"""BLAS is held to one thread while sums are made, and given back its own setting after."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread

import numpy.linalg  # noqa: F401 - loads the BLAS that is asked about
import pytest
import scipy.linalg  # noqa: F401 - and that of scipy
from threadpoolctl import threadpool_info, threadpool_limits

from aggmc_beam.fit.blas import blas_for, one_blas_thread


def blas():
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


def set_aside(limits):
    """In a thread that ends, so that nobody stays in control."""
    thread = Thread(target=threadpool_limits, args=[limits])
    thread.start()
    thread.join()


@pytest.fixture(autouse=True)
def three_threads():
    before = {lib["prefix"]: lib["num_threads"] for lib in threadpool_info()}
    set_aside(dict.fromkeys(before, 3))
    yield
    set_aside(before)


def test_the_setting_is_given_back_also_after_an_error():
    with one_blas_thread():
        assert blas() == {1}
    assert blas() == {3}
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        raise ZeroDivisionError
    assert blas() == {3}


def test_small_matrices_have_one_thread_and_large_ones_all():
    with blas_for(100):
        assert blas() == {1}
    with blas_for(1000):
        assert blas() == {3}
    assert blas() == {3}


def test_threads_that_overlap_see_one_and_leave_the_setting_as_it_was():
    both = Barrier(2)

    def first():
        with one_blas_thread():
            both.wait()  # the other is inside too
        both.wait()

    def second():
        with one_blas_thread():
            both.wait()
            both.wait()  # the first has left
            return blas()

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(first), pool.submit(second)]
        assert found[1].result(10) == {1}
        assert blas() == {3}


def test_the_blas_that_scipy_brings_during_an_estimate_has_one_thread_too():
    """It is loaded when it is first used. With all threads an estimate of 50 states took ten times as long."""
    code = """if True:
        import sys
        from threadpoolctl import threadpool_info
        import aggmc_beam
        from aggmc_beam.fit.blas import one_blas_thread
        assert "scipy.linalg" not in sys.modules
        with one_blas_thread():
            import scipy.linalg
            print({lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"})
        """
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "{1}\n"
