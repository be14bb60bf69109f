"""The readers and sums that the Beam engine stands on until it is built on `aggmc_beam.sums`; then to be deleted."""
