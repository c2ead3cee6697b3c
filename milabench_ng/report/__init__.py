"""Records in, decision out: summary, score, comparison, cost, and the forms in which they are printed."""
