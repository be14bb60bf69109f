"""Answers of the product through its public doors, kept to compare later code with."""
