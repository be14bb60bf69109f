"""Estimators of the transition matrix: functions of the latent moments."""
