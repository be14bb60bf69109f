"""What every CombineFn must bear, in one place."""

from __future__ import annotations

import itertools
import random

from apache_beam.internal import pickler


def check_combine_fn(fn, inputs, same, rng=None):
    """Put a CombineFn through all that a runner may do with it.

    `inputs` are a few elements, `same(found, expected)` asserts that two outputs agree.
    """
    fn = pickler.loads(pickler.dumps(fn))
    coder = fn.get_accumulator_coder()
    rng = rng or random.Random(1)

    def stored(accumulator):
        return coder.decode(coder.encode(accumulator))

    def of(part):
        accumulator = fn.create_accumulator()
        for element in part:
            accumulator = stored(fn.add_input(accumulator, element))
        return accumulator

    expected = fn.extract_output(of(inputs))
    empty = fn.extract_output(fn.create_accumulator())
    same(fn.extract_output(fn.merge_accumulators([])), empty)
    same(fn.extract_output(fn.merge_accumulators(fn.create_accumulator() for _ in range(3))), empty)
    same(fn.extract_output(stored(fn.create_accumulator())), empty)
    assert coder.encode(of(inputs)) == coder.encode(of(inputs))
    assert coder.is_deterministic()

    for cuts in itertools.product([False, True], repeat=len(inputs) - 1):
        parts, last = [], 0
        for at, cut in enumerate(cuts, 1):
            if cut:
                parts.append(inputs[last:at])
                last = at
        parts.append(inputs[last:])
        accumulators = [of(part) for part in parts]
        before = [coder.encode(a) for a in accumulators]
        found = fn.merge_accumulators(a for a in accumulators)
        assert [coder.encode(a) for a in accumulators[1:]] == before[1:], "a later accumulator was changed"
        same(fn.extract_output(stored(found)), expected)

    for _ in range(10):
        trees = [of([element]) for element in rng.sample(inputs, len(inputs))]
        trees.insert(rng.randrange(len(trees)), fn.create_accumulator())
        while len(trees) > 1:
            a, b = (trees.pop(rng.randrange(len(trees))) for _ in range(2))
            trees.append(stored(fn.merge_accumulators(iter([a, b]))))
        same(fn.extract_output(fn.compact(trees[0])), expected)
