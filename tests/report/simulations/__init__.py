"""What the report decides about made-up runs whose truth is known.

A module for each decision, all of one shape: ``findings(rng, trials)``, ``TRIALS`` for the tables of
``docs/simulations.md``, which ``scripts/simulate-decisions`` prints, and ``FEW_TRIALS`` for the tests.
"""
