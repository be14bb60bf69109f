"""From sums to estimates: pure mathematics, the same for every engine."""
