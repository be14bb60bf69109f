"""The Beam plugin."""
