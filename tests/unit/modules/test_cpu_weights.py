"""What a manifest's weight is in terms of `nice`, and whose share of the CPU a module stands behind."""

from __future__ import annotations

import itertools
import subprocess
import sys

from corral.modules.process.process_values import DEFAULT_NICE, nice_of


def test_a_module_that_names_no_weight_has_the_default_one():
    assert nice_of(0) == nice_of(100) == DEFAULT_NICE


def test_twice_the_weight_is_three_steps():
    """Of a quarter each: about twice the time."""
    assert [nice_of(weight) for weight in (25, 50, 100, 200)] == [11, 8, 5, 2]


def test_more_weight_never_means_less_and_no_weight_goes_before_the_host():
    found = [nice_of(weight) for weight in range(1, 10_001)]
    assert all(before >= after for before, after in itertools.pairwise(found))
    assert (found[0], found[-1]) == (19, 0)


def test_a_host_that_was_started_by_the_first_process_in_no_session_of_its_own_is_no_obstacle():
    """Of such a one the kernel has a file that says nothing; the first process itself is mostly one."""
    program = "from corral.sdk.runner.process_setup import stand_with; stand_with(1)"
    subprocess.run([sys.executable, "-c", program], check=True, start_new_session=True)
