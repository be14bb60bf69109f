"""What users do with P: flows, forecasts, what follows from it, change, and tables by unit.

Pure functions of counts and estimates: numpy and scipy only, no engine is imported here.
"""
